#include "pools/store/cluster_map.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace pagoda {
namespace {

constexpr uint16_t kDefaultRedisPort = 6379;

// CRC-16/XMODEM: polynomial 0x1021, initial value 0.
constexpr std::array<uint16_t, 256> MakeCrcTable() {
  std::array<uint16_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1;
    table[byte] = static_cast<uint16_t>(crc);
  }
  return table;
}
constexpr std::array<uint16_t, 256> kCrcTable = MakeCrcTable();

uint16_t Crc16(absl::string_view bytes) {
  uint32_t crc = 0;
  for (const char byte : bytes) {
    crc = ((crc << 8) ^ kCrcTable[((crc >> 8) ^ static_cast<uint8_t>(byte)) & 0xff]) & 0xffff;
  }
  return static_cast<uint16_t>(crc);
}

bool ParsePort(absl::string_view text, uint16_t& port) {
  uint32_t number = 0;
  if (text.empty() || text.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(text, &number) || number == 0 || number > 65535) {
    return false;
  }
  port = static_cast<uint16_t>(number);
  return true;
}

absl::Status BadSlots(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("reply to CLUSTER SLOTS: ", what));
}

absl::StatusOr<RedisAddress> ParseNode(const resp::Value& node, const RedisAddress& asked) {
  if (node.kind != resp::Kind::kArray || node.elements.size() < 2) return BadSlots("a server");
  const resp::Value& host = node.elements[0];
  const resp::Value& port = node.elements[1];
  const bool is_text = host.kind == resp::Kind::kBulk || host.kind == resp::Kind::kText;
  if ((!is_text && host.kind != resp::Kind::kNull) || port.kind != resp::Kind::kInteger ||
      port.integer < 1 || port.integer > 65535) {
    return BadSlots("a server's address");
  }
  // "?" is a name that the cluster does not know.
  const bool is_named = is_text && !host.text.empty() && host.text != "?";
  return RedisAddress{is_named ? host.text : asked.host, static_cast<uint16_t>(port.integer)};
}

}  // namespace

std::string ToString(const RedisAddress& address) {
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  return is_ipv6 ? absl::StrCat("[", address.host, "]:", address.port)
                 : absl::StrCat(address.host, ":", address.port);
}

absl::StatusOr<RedisAddress> ParseRedisAddress(absl::string_view text) {
  RedisAddress address = {"", kDefaultRedisPort};
  absl::string_view rest;
  if (absl::StartsWith(text, "[")) {
    const size_t end = text.find(']');
    if (end != absl::string_view::npos) {
      address.host = std::string(text.substr(1, end - 1));
      rest = text.substr(end + 1);
    }
  } else {
    const size_t colon = std::min(text.find(':'), text.size());
    address.host = std::string(text.substr(0, colon));
    rest = text.substr(colon);
  }
  const bool has_port = !rest.empty();
  if (address.host.empty() || address.host.find_first_of(" \t[]/@") != std::string::npos ||
      (has_port && (rest[0] != ':' || !ParsePort(rest.substr(1), address.port)))) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not an address: use host:port or [ipv6]:port"));
  }
  return address;
}

uint16_t HashSlot(absl::string_view key) {
  const size_t open = key.find('{');
  if (open != absl::string_view::npos) {
    const size_t close = key.find('}', open + 1);
    if (close != absl::string_view::npos && close > open + 1) {
      key = key.substr(open + 1, close - open - 1);
    }
  }
  return Crc16(key) % kHashSlots;
}

absl::StatusOr<ClusterMap> ParseClusterSlots(const resp::Value& reply, const RedisAddress& asked) {
  if (reply.kind != resp::Kind::kArray) return BadSlots("not an array");
  ClusterMap map;
  map.shard_of_slot.assign(kHashSlots, ClusterMap::kNoShard);
  std::map<RedisAddress, uint16_t> shards;
  size_t servers = 0;
  for (const resp::Value& range : reply.elements) {
    if (range.kind != resp::Kind::kArray || range.elements.size() < 3 ||
        range.elements[0].kind != resp::Kind::kInteger ||
        range.elements[1].kind != resp::Kind::kInteger) {
      return BadSlots("a range");
    }
    const int64_t first = range.elements[0].integer, last = range.elements[1].integer;
    if (first < 0 || last < first || last >= kHashSlots) return BadSlots("a range's slots");
    absl::StatusOr<RedisAddress> primary = ParseNode(range.elements[2], asked);
    if (!primary.ok()) return primary.status();
    auto [found, is_new] = shards.try_emplace(*primary, static_cast<uint16_t>(map.shards.size()));
    if (is_new) {
      servers += range.elements.size() - 2;
      if (servers > kMaxClusterServers) return BadSlots("too many servers");
      ClusterShard& shard = map.shards.emplace_back();
      shard.primary = *primary;
      for (size_t i = 3; i < range.elements.size(); ++i) {
        absl::StatusOr<RedisAddress> replica = ParseNode(range.elements[i], asked);
        if (!replica.ok()) return replica.status();
        shard.replicas.push_back(*std::move(replica));
      }
    }
    std::fill(map.shard_of_slot.begin() + first, map.shard_of_slot.begin() + last + 1,
              found->second);
  }
  return map;
}

std::optional<Redirection> ParseRedirection(absl::string_view error, const RedisAddress& asked) {
  const std::vector<absl::string_view> words = absl::StrSplit(error, ' ');
  if (words.size() != 3 || (words[0] != "MOVED" && words[0] != "ASK")) return std::nullopt;
  Redirection redirection;
  redirection.is_ask = words[0] == "ASK";
  uint32_t slot = 0;
  // An IPv6 address has colons and no brackets here.
  const size_t colon = words[2].rfind(':');
  if (!absl::SimpleAtoi(words[1], &slot) || slot >= kHashSlots ||
      colon == absl::string_view::npos ||
      !ParsePort(words[2].substr(colon + 1), redirection.address.port)) {
    return std::nullopt;
  }
  redirection.slot = static_cast<uint16_t>(slot);
  redirection.address.host = std::string(words[2].substr(0, colon));
  if (redirection.address.host.empty() || redirection.address.host == "?") {
    redirection.address.host = asked.host;
  }
  return redirection;
}

}  // namespace pagoda
