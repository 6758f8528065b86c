#include "pools/store/redis_cluster.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/file_descriptor.h"

namespace pagoda {
namespace {

constexpr int kMaxMoves = 5;
constexpr absl::Duration kScanPause = absl::Milliseconds(20);
constexpr size_t kMinPurge = 256;
constexpr int64_t kMaxPasswordBytes = 4096;

// The password that the options name. A file that cannot be read is an error.
absl::StatusOr<std::string> Password(const RedisOptions& options) {
  if (options.password_file.empty()) return options.password;
  const auto fail = [&options](const char* why) {
    return absl::UnavailableError(
        absl::StrCat("the password file \"", options.password_file, "\" ", why));
  };
  // Opening or reading anything but a file could block.
  const FileDescriptor file(open(options.password_file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status;
  if (!file.valid() || fstat(file.get(), &status) != 0) return fail("cannot be opened");
  if (!S_ISREG(status.st_mode) || status.st_size > kMaxPasswordBytes) {
    return fail("is not a password");
  }
  std::string password(static_cast<size_t>(status.st_size), '\0');
  const ssize_t size = read(file.get(), password.data(), password.size());
  if (size <= 0) return fail("is empty or unreadable");
  password.resize(std::min(static_cast<size_t>(size), password.find_first_of("\r\n")));
  if (password.empty()) return fail("is empty or unreadable");
  return password;
}

bool IsOfBatch(const RedisCall& call) {
  return call.command == RedisCommand::kGet || call.command == RedisCommand::kPut ||
         call.command == RedisCommand::kExists;
}

}  // namespace

RedisCluster::RedisCluster(const RedisOptions& options, TlsContext* tls, EventPoll* poll,
                           std::function<void()> wake, StoreStats& stats, Ends& ends)
    : options_(options),
      tls_(tls),
      poll_(*poll),
      stats_(stats),
      ends_(ends),
      resolver_(std::move(wake)),
      random_(std::random_device()() | 1),
      shard_of_slot_(kHashSlots, ClusterMap::kNoShard),
      primary_of_slot_(kHashSlots, nullptr) {
  absl::StatusOr<ServerNetworks> networks = ServerNetworks::Parse(options.allowed_networks);
  PAGODA_CHECK(networks.ok(), "RedisStore::Create has checked the networks");
  networks_ = *std::move(networks);
  LookUpSeeds();
}

RedisCluster::~RedisCluster() = default;

// --- Calls ---

void RedisCluster::Route(std::unique_ptr<RedisCall> call, absl::Time now) {
  now_ = now;
  PAGODA_CHECK(call->batch != nullptr && IsOfBatch(*call), "the call is of a batch");
  if (!has_map_) {
    // Once each server has failed, nothing waits for the next attempt.
    if (map_failures_ >= static_cast<int>(options_.seeds.size())) {
      return EndUnreachable(std::move(call));
    }
    unrouted_.push_back(std::move(call));
    return;
  }
  RedisNode* node = Choose(*call);
  if (node == nullptr) {
    WantMap();
    return EndUnreachable(std::move(call));
  }
  Enqueue(*node, std::move(call));
}

// The server that the call goes to; null if the cluster has none for its key.
RedisNode* RedisCluster::Choose(const RedisCall& call) {
  RedisNode* const primary = primary_of_slot_[call.hash_slot];
  const uint16_t shard_index = shard_of_slot_[call.hash_slot];
  if (options_.read_from_replicas && !are_replicas_refused_ && call.command != RedisCommand::kPut &&
      call.moves == 0 && shard_index != ClusterMap::kNoShard) {
    Shard& shard = shards_[shard_index];
    for (size_t i = 0; i < shard.replicas.size(); ++i) {
      RedisNode* const replica = shard.replicas[shard.next++ % shard.replicas.size()];
      if (!replica->is_failing()) return replica;
    }
  }
  return primary;
}

void RedisCluster::Enqueue(RedisNode& node, std::unique_ptr<RedisCall> call) {
  if (node.is_failing()) {
    if (call->command == RedisCommand::kClusterSlots) return MapFailed("no server answers");
    return EndUnreachable(std::move(call));
  }
  if (call->command == RedisCommand::kClusterSlots) {
    node.waiting.push_front(std::move(call));  // Else it could wait as long as all reads take.
  } else {
    (call->command == RedisCommand::kPut ? node.puts : node.waiting).push_back(std::move(call));
  }
  Touch(node);
}

void RedisCluster::EndUnreachable(std::unique_ptr<RedisCall> call) {
  if (call->batch != nullptr) ends_.OnUnreachable(std::move(call));
}

void RedisCluster::Abandon(RedisCall& call) {
  PAGODA_CHECK(call.batch == nullptr, "the call has no batch");
  if (call.connection == nullptr) {
    ++abandoned_;  // It is dropped when its turn comes, or by Purge.
    return;
  }
  const auto node = nodes_.find(call.connection->address());
  call.connection->Abandon(call);
  Touch(*node->second);  // The connection may be closed now.
}

// Drops the calls that wait without a batch.
void RedisCluster::Purge() {
  const auto drop = [](std::deque<std::unique_ptr<RedisCall>>& calls) {
    std::erase_if(calls,
                  [](const auto& call) { return IsOfBatch(*call) && call->batch == nullptr; });
  };
  drop(unrouted_);
  for (auto& [address, node] : nodes_) {
    drop(node->waiting);
    drop(node->puts);
  }
  abandoned_ = 0;
}

void RedisCluster::OnReply(RedisConnection& connection, std::unique_ptr<RedisCall> call) {
  if (RedisLink* link = LinkOf(NodeAt(connection.address()), connection)) link->has_replied = true;
  if (call->command == RedisCommand::kClusterSlots) return MapArrived(connection, *call);
  if (call->batch == nullptr) return;
  if (call->reply.kind == resp::Kind::kError) {
    const absl::string_view error = call->reply.text;
    std::optional<Redirection> redirection;
    if (!options_.is_plain) redirection = ParseRedirection(error, connection.address());
    if (redirection.has_value()) {
      return Redirect(std::move(call), *redirection);
    }
    if (absl::StartsWith(error, "CLUSTERDOWN") || absl::StartsWith(error, "READONLY")) {
      WantMap();
    }
  }
  ends_.OnReply(std::move(call));
}

void RedisCluster::Redirect(std::unique_ptr<RedisCall> call, const Redirection& redirection) {
  ++stats_.redirections;
  if (++call->moves > kMaxMoves) {
    Complain("a key is moved in a circle");
    return EndUnreachable(std::move(call));
  }
  if (nodes_.size() >= kMaxClusterServers && !nodes_.contains(redirection.address)) {
    Complain("keys are moved to too many servers");
    return EndUnreachable(std::move(call));
  }
  RedisNode& node = NodeAt(redirection.address);
  call->is_asking = redirection.is_ask;
  if (!redirection.is_ask) {
    primary_of_slot_[call->hash_slot] = &node;
    shard_of_slot_[call->hash_slot] = ClusterMap::kNoShard;
    node.is_in_map = true;
    WantMap();
  }
  Enqueue(node, std::move(call));
}

// --- Servers ---

RedisNode& RedisCluster::NodeAt(const RedisAddress& address) {
  std::unique_ptr<RedisNode>& node = nodes_[address];
  if (node == nullptr) {
    node = std::make_unique<RedisNode>();
    node->address = address;
    node->is_seed = IsSeed(address);
  }
  return *node;
}

bool RedisCluster::IsSeed(const RedisAddress& address) const {
  return std::find(options_.seeds.begin(), options_.seeds.end(), address) != options_.seeds.end();
}

// A redirection can come before the other seeds are connected, and their addresses can change.
// Where they are decides which servers are allowed.
void RedisCluster::LookUpSeeds() {
  if (options_.is_plain || now_ < seeds_due_) return;
  seeds_due_ = now_ + options_.max_backoff;
  for (const RedisAddress& seed : options_.seeds) {
    const absl::StatusOr<SocketAddress> number = AddressResolver::Parse(seed);
    number.ok() ? networks_.AddSeed(*number) : resolver_.Begin(seed);
  }
}

void RedisCluster::Touch(RedisNode& node) {
  next_tick_ = now_;
  if (std::exchange(node.is_touched, true)) return;
  touched_.push_back(&node);
  next_scan_ = std::min(next_scan_, now_ + kScanPause);
}

absl::Duration RedisCluster::Backoff(int failures) {
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  // Shortened at random, so that many clients do not come back at once.
  const double jitter = 1 - 0.5 * static_cast<double>(random_ >> 40) / double{1 << 24};
  return std::min(options_.max_backoff,
                  options_.min_backoff * std::exp2(std::min(failures - 1, 20))) *
         jitter;
}

void RedisCluster::Complain(absl::string_view what) { stats_.last_error = std::string(what); }

// Begins a connection, or the look-up that it needs, unless one is being made.
void RedisCluster::Connect(RedisNode& node) {
  if (node.is_connecting()) return;
  if (node.addresses.empty()) {
    absl::StatusOr<SocketAddress> number = AddressResolver::Parse(node.address);
    if (!number.ok()) {
      node.is_resolving = true;
      node.resolve_deadline = now_ + options_.connect_timeout;
      resolver_.Begin(node.address);
      return;
    }
    node.addresses.push_back(*number);
    if (node.is_seed) networks_.AddSeed(*number);
  }
  OpenLink(node);
}

void RedisCluster::OpenLink(RedisNode& node) {
  auto link = std::make_unique<RedisLink>();
  link->node = &node;
  RedisConnection::Owner& owner = *this;
  link->connection =
      std::make_unique<RedisConnection>(options_, node.address, options_.read_from_replicas, owner);
  absl::StatusOr<std::string> password = Password(options_);
  // After a failure, the next of the server's addresses.
  const SocketAddress& to =
      node.addresses[static_cast<size_t>(node.failures) % node.addresses.size()];
  const absl::Status allowed = networks_.Check(
      to, !options_.password.empty() || !options_.password_file.empty(), tls_ != nullptr);
  if (!allowed.ok()) {
    ++stats_.refused_servers;
    LookUpSeeds();
    link->connection->Close(allowed);
  } else if (!password.ok()) {
    link->connection->Close(password.status());
  } else {
    link->connection->Connect(to, tls_, *password, now_);
  }
  Watch(*link);
  node.links.push_back(std::move(link));
  Touch(node);
}

void RedisCluster::Resolved(const RedisAddress& address, AddressResolver::Addresses addresses) {
  if (addresses.ok() && IsSeed(address)) {
    for (const SocketAddress& one : *addresses) networks_.AddSeed(one);
  }
  const auto found = nodes_.find(address);
  if (found == nodes_.end() || !found->second->is_resolving) return;
  RedisNode& node = *found->second;
  node.is_resolving = false;
  node.resolve_deadline = absl::InfiniteFuture();
  if (!addresses.ok()) return Fail(node, addresses.status());
  node.addresses = *std::move(addresses);
  OpenLink(node);
}

void RedisCluster::Fail(RedisNode& node, const absl::Status& why) {
  ++node.failures;
  ++stats_.connect_failures;
  node.retry_at = now_ + Backoff(node.failures);
  next_scan_ = std::min(next_scan_, node.retry_at);
  // A name can have another address by now. Keep the addresses until each was tried.
  if (static_cast<size_t>(node.failures) >= node.addresses.size()) node.addresses.clear();
  Complain(absl::StrCat(ToString(node.address), ": ", why.message()));
  if (node.is_failing()) EndWaiting(node, why);
}

// Nothing waits for a server that fails.
void RedisCluster::EndWaiting(RedisNode& node, const absl::Status& why) {
  if (node.is_in_map) WantMap();
  for (auto* queue : {&node.waiting, &node.puts}) {
    std::deque<std::unique_ptr<RedisCall>> calls = std::exchange(*queue, {});
    for (std::unique_ptr<RedisCall>& call : calls) {
      if (call->command == RedisCommand::kClusterSlots) {
        if (is_map_asked_ && call->index == map_number_) MapFailed(why.message());
      } else if (call->batch != nullptr && primary_of_slot_[call->hash_slot] != &node && has_map_ &&
                 ++call->moves <= kMaxMoves) {
        call->is_asking = false;
        Route(std::move(call), now_);  // From a replica to the primary.
      } else {
        EndUnreachable(std::move(call));
      }
    }
  }
}

RedisLink* RedisCluster::LinkOf(RedisNode& node, const RedisConnection& connection) {
  const auto found = std::find_if(node.links.begin(), node.links.end(), [&](const auto& link) {
    return link->connection.get() == &connection;
  });
  return found == node.links.end() ? nullptr : found->get();
}

// The descriptor can live on in a child process that is being started. So closing it does not
// suffice to stop its events.
void RedisCluster::OnClose(RedisConnection& connection) {
  const auto node = nodes_.find(connection.address());
  RedisLink* const link = node == nodes_.end() ? nullptr : LinkOf(*node->second, connection);
  if (link == nullptr || link->events == 0) return;
  poll_.Remove(connection.fd());
  link->events = 0;
}

void RedisCluster::OnReady(RedisConnection& connection) {
  RedisNode& node = NodeAt(connection.address());
  if (RedisLink* link = LinkOf(node, connection)) link->was_ready = true;
  if (connection.is_readonly_refused() && !std::exchange(are_replicas_refused_, true)) {
    Complain("the user has no right to READONLY, so replicas are not asked");
  }
  node.failures = 0;
  node.retry_at = absl::InfinitePast();
  ++stats_.connects;
  ++stats_.connected;
  if (!has_map_ && !is_map_asked_) map_due_ = next_scan_ = now_;
  Touch(node);
}

void RedisCluster::EndLink(std::unique_ptr<RedisLink> link) {
  RedisNode& node = *link->node;
  const absl::Status why = link->connection->error();
  if (link->was_ready) {
    ++stats_.disconnects;
    --stats_.connected;
    Complain(absl::StrCat(ToString(node.address), ": ", why.message()));
  }
  std::vector<std::unique_ptr<RedisCall>> calls = link->connection->TakeCalls();
  // A server that lets a client in and answers nothing would be asked again without a pause.
  if (!link->has_replied || link->is_stalled) {
    Fail(node, why);
  } else if (node.is_failing()) {
    EndWaiting(node, why);
  }
  link.reset();
  for (std::unique_ptr<RedisCall>& call : calls) {
    if (call->command == RedisCommand::kClusterSlots) {
      if (is_map_asked_ && call->index == map_number_) MapFailed(why.message());
    } else if (IsOfBatch(*call) && call->batch != nullptr) {
      call->is_asking = false;
      if (++call->moves > kMaxMoves || !has_map_) {
        EndUnreachable(std::move(call));
      } else {
        Route(std::move(call), now_);
      }
    }
  }
}

void RedisCluster::EndClosedLinks(RedisNode& node) {
  for (size_t i = 0; i < node.links.size();) {
    if (node.links[i]->connection->state() != RedisConnection::State::kClosed) {
      ++i;
      continue;
    }
    std::unique_ptr<RedisLink> link = std::move(node.links[i]);
    node.links.erase(node.links.begin() + static_cast<ptrdiff_t>(i));
    EndLink(std::move(link));
    i = 0;
  }
}

// Gives waiting calls to the connections that have the fewest.
void RedisCluster::SendWaiting(RedisNode& node) {
  for (auto* queue : {&node.waiting, &node.puts}) {
    while (!queue->empty()) {
      RedisConnection* least = nullptr;
      for (const std::unique_ptr<RedisLink>& link : node.links) {
        RedisConnection& one = *link->connection;
        if (one.HasRoom() && (least == nullptr || one.in_flight() < least->in_flight()))
          least = &one;
      }
      if (least == nullptr) return;
      std::unique_ptr<RedisCall> call = std::move(queue->front());
      queue->pop_front();
      const bool is_map = call->command == RedisCommand::kClusterSlots;
      if (is_map ? call->index != map_number_ : call->batch == nullptr) continue;
      if (call->command == RedisCommand::kPut && !call->has_header) {
        // Hashing brings the bytes into the processor's cache, so it is done just before the write.
        call->header = MakeStoredHeader(call->key, options_.secret, call->pieces);
        call->has_header = true;
      }
      least->Send(std::move(call), now_);
      if (queue == &node.puts) least->Flush();
    }
  }
}

// Brings a server's calls and connections forward.
void RedisCluster::Pump(RedisNode& node) {
  for (const std::unique_ptr<RedisLink>& link : node.links) {
    if (link->connection->has_more()) link->connection->Handle(now_);
  }
  EndClosedLinks(node);
  SendWaiting(node);
  const bool must_connect = (node.is_failing() || !node.is_idle()) && node.retry_at <= now_;
  if (must_connect && node.links.size() < options_.connections_per_node) Connect(node);
  for (const std::unique_ptr<RedisLink>& link : node.links) {
    link->connection->Flush();
    Watch(*link);
    const bool is_closed = link->connection->state() == RedisConnection::State::kClosed;
    if (is_closed || link->connection->has_more()) Touch(node);
  }
}

void RedisCluster::Watch(RedisLink& link) {
  if (link.connection->fd() < 0) return;
  const int fd = link.connection->fd();
  const uint32_t events = EPOLLIN | (link.connection->wants_write() ? EPOLLOUT : 0u);
  if (events == link.events) return;
  if (!(link.events == 0 ? poll_.Add(fd, events, &link) : poll_.Change(fd, events, &link))) {
    return link.connection->Close(absl::UnavailableError(
        absl::StrCat("epoll_ctl: ", absl::ErrnoToStatus(errno, "").message())));
  }
  link.events = events;
}

void RedisCluster::Handle(void* link, absl::Time now) {
  now_ = now;
  RedisLink& ready = *static_cast<RedisLink*>(link);
  ready.connection->Handle(now);
  Touch(*ready.node);
}

void RedisCluster::Tick(absl::Time now) {
  now_ = now;
  next_tick_ = absl::InfiniteFuture();
  for (auto& [address, addresses] : resolver_.Take()) Resolved(address, std::move(addresses));
  if (abandoned_ >= kMinPurge) Purge();
  if (now >= next_scan_) Scan();
  // A pump can touch further servers, and the same one again.
  for (RedisNode* const node : std::exchange(touched_, {})) {
    node->is_touched = false;
    Pump(*node);
  }
  if (has_old_nodes_ && touched_.empty()) RemoveNodes();
  next_tick_ = touched_.empty() ? next_scan_ : now;
  stats_.nodes = static_cast<uint32_t>(nodes_.size());
}

// Checks everything that has a time.
void RedisCluster::Scan() {
  if (is_map_asked_ && now_ >= map_deadline_) MapFailed("the map did not come in time");
  if (!is_map_asked_ && now_ >= map_due_) AskForMap();
  absl::Time next = is_map_asked_ ? map_deadline_ : map_due_;
  for (auto& [address, node] : nodes_) {
    if (node->is_resolving && now_ >= node->resolve_deadline) {
      node->resolve_deadline = absl::InfiniteFuture();
      Fail(*node, absl::DeadlineExceededError("the look-up of the address takes too long"));
    }
    next = std::min(next, node->resolve_deadline);
    if (node->is_failing() && !node->is_connecting() && (node->is_in_map || node->is_seed)) {
      if (now_ >= node->retry_at) {
        Touch(*node);
        next = std::min(next, now_ + kScanPause);
      } else {
        next = std::min(next, node->retry_at);
      }
    }
    for (const std::unique_ptr<RedisLink>& link : node->links) {
      if (now_ >= link->connection->stalled_at()) {
        link->is_stalled = true;
        link->connection->Close(absl::DeadlineExceededError("the server does not answer"));
        Touch(*node);
      }
      next = std::min(next, link->connection->stalled_at());
    }
  }
  // Not before the pause, so that something that stays due does not keep the thread busy.
  next_scan_ = std::max(next, now_ + absl::Milliseconds(1));
}

}  // namespace pagoda
