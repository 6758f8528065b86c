#include "server/peers/peer_commands.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/printable.h"
#include "pools/store/stored_value.h"
#include "server/callers/tokens_file.h"

namespace pagoda::server {
namespace {

constexpr size_t kAnyNumber = size_t{1} << 20;
constexpr int kMaxFailures = 3;       // A connection's wrong tokens.
constexpr size_t kMaxNameShown = 64;  // In an error.
constexpr size_t kMaxEchoBytes = 16 << 10;

// Commands that write. There are more: the others are unknown, which refuses them too.
constexpr absl::string_view kWrites[] = {
    "APPEND",   "COPY",    "DECR",     "DECRBY",   "DEL",     "EXPIRE",  "EXPIREAT",
    "FLUSHALL", "FLUSHDB", "GETDEL",   "GETEX",    "GETSET",  "HSET",    "INCR",
    "INCRBY",   "LPUSH",   "MSET",     "MSETNX",   "PERSIST", "PEXPIRE", "PEXPIREAT",
    "PSETEX",   "RENAME",  "RENAMENX", "RESTORE",  "RPUSH",   "SADD",    "SET",
    "SETBIT",   "SETEX",   "SETNX",    "SETRANGE", "UNLINK",  "XADD",    "ZADD"};

// What a peer sent, for an error: printable, and not long.
std::string Shown(absl::string_view text) {
  return Printable(std::string(text.substr(0, kMaxNameShown)));
}

}  // namespace

struct PeerCommands::Command {
  absl::string_view name;
  Handler handler;
  size_t least;  // Arguments after the name.
  size_t most;
  bool is_free;  // Also for peers that have not shown a token.
};

const PeerCommands::Command* PeerCommands::Find(absl::string_view name) {
  using P = PeerCommands;
  static constexpr Command kCommands[] = {
      {"ASKING", &P::Ok, 0, 0, false},
      {"AUTH", &P::Auth, 1, 2, true},
      {"CLIENT", &P::Ok, 1, kAnyNumber, false},
      {"CLUSTER", &P::Cluster, 1, kAnyNumber, false},
      {"COMMAND", &P::EmptyArray, 0, kAnyNumber, false},
      {"DBSIZE", &P::DbSize, 0, 0, false},
      {"ECHO", &P::Echo, 1, 1, false},
      {"EXISTS", &P::Exists, 1, kAnyNumber, false},
      {"GET", &P::Get, 1, 1, false},
      {"HELLO", &P::Hello, 0, kAnyNumber, true},
      {"INFO", &P::Info, 0, kAnyNumber, false},
      {"PING", &P::Ping, 0, 1, false},
      {"QUIT", &P::Quit, 0, 0, true},
      {"READONLY", &P::Ok, 0, 0, false},
      {"READWRITE", &P::Ok, 0, 0, false},
      {"SELECT", &P::Select, 1, 1, false},
      {"STRLEN", &P::StrLen, 1, 1, false},
  };
  const auto found = std::find_if(std::begin(kCommands), std::end(kCommands),
                                  [name](const Command& command) { return command.name == name; });
  return found == std::end(kCommands) ? nullptr : found;
}

void PeerCommands::Run(absl::Span<const std::string> arguments, bool is_cut, PeerSession& session,
                       ReplyQueue& out) {
  ++stats_.commands;
  const std::string name = absl::AsciiStrToUpper(arguments[0].substr(0, kMaxNameShown));
  const Command* const command = Find(name);
  if (!session.is_let_in && (command == nullptr || !command->is_free)) {
    if (name == "GET") ++stats_.refused_gets;
    return out.AddError("NOAUTH Authentication required.");
  }
  if (command == nullptr) {
    const bool is_write =
        std::find(std::begin(kWrites), std::end(kWrites), name) != std::end(kWrites);
    return out.AddError(is_write ? std::string("READONLY You can't write to a cache of Pagoda.")
                                 : absl::StrCat("ERR unknown command '", Shown(arguments[0]), "'"));
  }
  const size_t count = arguments.size() - 1;
  if (count < command->least || count > command->most) {
    return out.AddError(absl::StrCat("ERR wrong number of arguments for '",
                                     absl::AsciiStrToLower(command->name), "' command"));
  }
  if (is_cut) return out.AddError("ERR the command is too long");
  (this->*command->handler)(arguments.subspan(1), session, out);
}

void PeerCommands::Ping(Arguments arguments, PeerSession& session, ReplyQueue& out) {
  if (arguments.empty()) return out.AddText("PONG");
  Echo(arguments, session, out);
}

void PeerCommands::Echo(Arguments arguments, PeerSession&, ReplyQueue& out) {
  if (arguments[0].size() > kMaxEchoBytes) return out.AddError("ERR the text is too long");
  out.AddBulk(arguments[0]);
}

void PeerCommands::Ok(Arguments, PeerSession&, ReplyQueue& out) { out.AddText("OK"); }

void PeerCommands::EmptyArray(Arguments, PeerSession&, ReplyQueue& out) { out.AddArray(0); }

bool PeerCommands::LetIn(absl::string_view token, PeerSession& session, ReplyQueue& out) {
  if (!tokens_.are_required()) {
    out.AddError("ERR AUTH called without any password configured for the default user.");
    return false;
  }
  if (const absl::Duration wait = guard_.Wait(session.network, session.now);
      wait > absl::ZeroDuration()) {
    ++stats_.authentication_failures;
    session.is_closing = true;
    out.AddError(absl::StrCat("ERR too many wrong tokens came from this address: wait ",
                              absl::FormatDuration(absl::Ceil(wait, absl::Milliseconds(1)))));
    return false;
  }
  const std::optional<TokenDigest> digest = tokens_.Check(token);
  if (digest.has_value()) {
    session.token = digest;
    session.is_let_in = true;
    return true;
  }
  ++stats_.authentication_failures;
  guard_.Failed(session.network, DigestOf(token), session.now);
  session.is_closing = ++session.failures >= kMaxFailures;
  out.AddError("WRONGPASS invalid username-password pair or user is disabled.");
  return false;
}

void PeerCommands::Auth(Arguments arguments, PeerSession& session, ReplyQueue& out) {
  // A token says who somebody is, so the user's name does not matter.
  if (LetIn(arguments.back(), session, out)) out.AddText("OK");
}

void PeerCommands::Hello(Arguments arguments, PeerSession& session, ReplyQueue& out) {
  if (!arguments.empty() && arguments[0] != "2") {
    return out.AddError("NOPROTO unsupported protocol version");
  }
  for (size_t i = 1; i < arguments.size();) {
    if (absl::EqualsIgnoreCase(arguments[i], "AUTH") && i + 2 < arguments.size()) {
      if (!LetIn(arguments[i + 2], session, out)) return;
      i += 3;
    } else if (absl::EqualsIgnoreCase(arguments[i], "SETNAME") && i + 1 < arguments.size()) {
      i += 2;
    } else {
      return out.AddError(
          absl::StrCat("ERR Syntax error in HELLO option '", Shown(arguments[i]), "'"));
    }
  }
  if (!session.is_let_in) {
    return out.AddError(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
        "<proto> AUTH <user> <pass> option can be used to authenticate the client");
  }
  out.AddArray(14);
  out.AddBulk("server");
  out.AddBulk("pagoda");
  out.AddBulk("version");
  out.AddBulk(options_.version);
  out.AddBulk("proto");
  out.AddInteger(2);
  out.AddBulk("id");
  out.AddInteger(static_cast<int64_t>(session.number));
  out.AddBulk("mode");
  out.AddBulk("standalone");
  out.AddBulk("role");
  out.AddBulk("master");
  out.AddBulk("modules");
  out.AddArray(0);
}

void PeerCommands::Quit(Arguments, PeerSession& session, ReplyQueue& out) {
  session.is_closing = true;
  out.AddText("OK");
}

void PeerCommands::Select(Arguments arguments, PeerSession&, ReplyQueue& out) {
  if (arguments[0] == "0") return out.AddText("OK");
  out.AddError("ERR DB index is out of range");
}

// The text by which clients know a plain server.
void PeerCommands::Cluster(Arguments, PeerSession&, ReplyQueue& out) {
  out.AddError("ERR This instance has cluster support disabled");
}

void PeerCommands::Info(Arguments, PeerSession&, ReplyQueue& out) {
  std::string text = absl::StrCat(
      "# Server\r\nserver_name:pagoda\r\npagoda_version:", options_.version,
      "\r\nredis_mode:standalone\r\n\r\n# Clients\r\nconnected_clients:", stats_.connections,
      "\r\n\r\n# Stats\r\ntotal_connections_received:", stats_.accepted,
      "\r\ntotal_commands_processed:", stats_.commands, "\r\nkeyspace_hits:", stats_.hits,
      "\r\nkeyspace_misses:", stats_.misses, "\r\ntotal_net_output_bytes:", stats_.bytes_sent,
      "\r\n\r\n# Caches\r\ncaches:", caches_.size(), "\r\n");
  for (size_t i = 0; i < caches_.size(); ++i) {
    absl::StrAppend(&text, "cache", i, ":name=", Shown(caches_[i]->name()),
                    ",blocks=", caches_[i]->index_stats().blocks, "\r\n");
  }
  out.AddBulk(text);
}

void PeerCommands::DbSize(Arguments, PeerSession&, ReplyQueue& out) {
  uint64_t blocks = 0;
  for (const std::shared_ptr<PeerCache>& cache : caches_) blocks += cache->index_stats().blocks;
  out.AddInteger(static_cast<int64_t>(blocks));
}

void PeerCommands::Get(Arguments arguments, PeerSession&, ReplyQueue& out) {
  const std::optional<ParsedName> name = ParseStoredName(options_.key_prefix, arguments[0]);
  if (name.has_value()) {
    for (const std::shared_ptr<PeerCache>& cache : caches_) {
      const std::optional<uint32_t> window = cache->WindowOf(*name);
      if (!window.has_value()) continue;
      const std::optional<PeerCache::Value> value = cache->Get(*window, name->digest);
      if (!value.has_value()) continue;
      ++stats_.hits;
      stats_.value_bytes_sent += value->bytes;
      return out.AddValue(cache, *value);
    }
  }
  ++stats_.misses;
  out.AddNull();
}

std::vector<uint64_t> PeerCommands::SizesOf(Arguments names) {
  stats_.exists += names.size();
  std::vector<std::optional<ParsedName>> parsed;
  for (const std::string& name : names) {
    parsed.push_back(ParseStoredName(options_.key_prefix, name));
  }
  std::vector<uint64_t> sizes(names.size(), 0);
  for (const std::shared_ptr<PeerCache>& cache : caches_) {
    // The names that are left, by window.
    std::vector<std::vector<size_t>> asked;
    for (size_t i = 0; i < parsed.size(); ++i) {
      if (!parsed[i].has_value() || sizes[i] != 0) continue;
      const std::optional<uint32_t> window = cache->WindowOf(*parsed[i]);
      if (!window.has_value()) continue;
      asked.resize(std::max<size_t>(asked.size(), *window + 1));
      asked[*window].push_back(i);
    }
    for (uint32_t window = 0; window < asked.size(); ++window) {
      std::vector<DigestIndex::Name> digests;
      for (const size_t i : asked[window]) digests.push_back(parsed[i]->digest);
      const std::vector<bool> exist = cache->Exist(window, digests);
      for (size_t i = 0; i < exist.size(); ++i) {
        if (exist[i]) sizes[asked[window][i]] = cache->value_bytes(window);
      }
    }
  }
  return sizes;
}

void PeerCommands::Exists(Arguments arguments, PeerSession&, ReplyQueue& out) {
  const std::vector<uint64_t> sizes = SizesOf(arguments);
  out.AddInteger(static_cast<int64_t>(sizes.size()) -
                 std::count(sizes.begin(), sizes.end(), uint64_t{0}));
}

void PeerCommands::StrLen(Arguments arguments, PeerSession&, ReplyQueue& out) {
  out.AddInteger(static_cast<int64_t>(SizesOf(arguments).front()));
}

}  // namespace pagoda::server
