// The part of RedisCluster that knows which server has which keys.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "pools/store/redis_cluster.h"

namespace pagoda {
namespace {

constexpr absl::Duration kMapPause = absl::Milliseconds(100);  // Between two requests for the map.

}  // namespace

// The map is out of date.
void RedisCluster::WantMap() {
  map_due_ = std::min(map_due_, now_ + kMapPause);
  next_scan_ = std::min(next_scan_, map_due_);
  next_tick_ = std::min(next_tick_, next_scan_);
}

void RedisCluster::AskForMap() {
  if (options_.is_plain) return ApplyPlain(NodeAt(options_.seeds.front()));
  // Any ready connection, from a random server on; else the next seed.
  RedisNode* asked = nullptr;
  size_t skip = nodes_.empty() ? 0 : (random_ >> 33) % nodes_.size();
  for (int round = 0; round < 2 && asked == nullptr; ++round) {
    for (auto& [address, node] : nodes_) {
      const bool is_ready = node->has_ready_link();
      if (is_ready && skip == 0) {
        asked = node.get();
        break;
      }
      skip -= skip > 0 ? 1 : 0;
    }
  }
  Backoff(1);  // Another random number.
  if (asked == nullptr) asked = &NodeAt(options_.seeds[next_seed_++ % options_.seeds.size()]);
  auto call = std::make_unique<RedisCall>();
  call->command = RedisCommand::kClusterSlots;
  call->index = ++map_number_;
  resp::AppendCommand({"CLUSTER", "SLOTS"}, call->head);
  is_map_asked_ = true;
  map_deadline_ = now_ + options_.connect_timeout;
  Enqueue(*asked, std::move(call));
}

void RedisCluster::MapFailed(absl::string_view why) {
  is_map_asked_ = false;
  ++map_failures_;
  Complain(absl::StrCat("the cluster's map: ", why));
  const bool has_more_seeds = map_failures_ < static_cast<int>(options_.seeds.size());
  map_due_ = now_ + (has_more_seeds ? absl::ZeroDuration() : Backoff(map_failures_));
  next_scan_ = std::min(next_scan_, map_due_);
  next_tick_ = std::min(next_tick_, map_due_);
  if (has_map_ || has_more_seeds) return;
  std::deque<std::unique_ptr<RedisCall>> calls = std::exchange(unrouted_, {});
  for (std::unique_ptr<RedisCall>& call : calls) EndUnreachable(std::move(call));
}

void RedisCluster::MapArrived(RedisConnection& connection, const RedisCall& call) {
  if (!is_map_asked_ || call.index != map_number_) return;  // Too late.
  const resp::Value& reply = call.reply;
  if (reply.kind == resp::Kind::kError) {
    // A user who may not ask for the map can still follow redirections.
    const bool is_refused = absl::StartsWith(reply.text, "NOPERM");
    const bool is_plain = absl::StrContains(reply.text, "cluster support disabled") ||
                          absl::StartsWith(reply.text, "ERR unknown command");
    if (!is_refused && !is_plain) return MapFailed(reply.text);
    if (is_refused) Complain(reply.text);
    return ApplyPlain(NodeAt(connection.address()));
  }
  absl::StatusOr<ClusterMap> map = ParseClusterSlots(reply, connection.address());
  if (!map.ok()) return MapFailed(map.status().message());
  ApplyMap(*map);
}

void RedisCluster::ApplyPlain(RedisNode& node) {
  // Redirections are kept: they name the servers of a cluster whose map is not readable.
  if (!has_map_) std::fill(primary_of_slot_.begin(), primary_of_slot_.end(), &node);
  for (RedisNode*& primary : primary_of_slot_) {
    if (primary == nullptr || primary->is_failing()) primary = &node;
  }
  for (auto& [address, other] : nodes_) other->is_in_map = false;
  for (RedisNode* primary : primary_of_slot_) primary->is_in_map = true;
  has_old_nodes_ = true;
  MapIsHere();
}

void RedisCluster::ApplyMap(const ClusterMap& map) {
  for (auto& [address, node] : nodes_) node->is_in_map = false;
  shards_.clear();
  for (const ClusterShard& from : map.shards) {
    Shard& shard = shards_.emplace_back();
    shard.primary = &NodeAt(from.primary);
    shard.primary->is_in_map = true;
    if (!options_.read_from_replicas) continue;
    for (const RedisAddress& address : from.replicas) {
      shard.replicas.push_back(&NodeAt(address));
      shard.replicas.back()->is_in_map = true;
    }
  }
  shard_of_slot_ = map.shard_of_slot;
  bool is_whole = true;
  for (size_t slot = 0; slot < kHashSlots; ++slot) {
    const uint16_t shard = shard_of_slot_[slot];
    primary_of_slot_[slot] = shard == ClusterMap::kNoShard ? nullptr : shards_[shard].primary;
    is_whole = is_whole && shard != ClusterMap::kNoShard;
  }
  has_old_nodes_ = true;
  MapIsHere();
  if (!is_whole) map_due_ = now_ + std::min(options_.map_refresh, absl::Seconds(1));
}

void RedisCluster::MapIsHere() {
  is_map_asked_ = false;
  has_map_ = true;
  map_failures_ = 0;
  map_due_ = now_ + options_.map_refresh;
  std::deque<std::unique_ptr<RedisCall>> calls = std::exchange(unrouted_, {});
  for (std::unique_ptr<RedisCall>& call : calls) {
    if (call->batch != nullptr) Route(std::move(call), now_);
  }
}

// Removes servers that the map does not name, when nothing waits for them.
void RedisCluster::RemoveNodes() {
  has_old_nodes_ = false;
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    RedisNode& node = *it->second;
    if (node.is_in_map || node.is_touched || node.is_resolving || node.has_calls()) {
      has_old_nodes_ = has_old_nodes_ || !node.is_in_map;
      ++it;
    } else {
      for (const std::unique_ptr<RedisLink>& link : node.links) {
        if (link->was_ready) --stats_.connected;
        link->connection->Close(absl::CancelledError("the cluster no longer names the server"));
      }
      it = nodes_.erase(it);
    }
  }
}

}  // namespace pagoda
