// One node of a router: the daemon's event stream, and what is known about the daemon.
#ifndef PAGODA_CLIENTS_ROUTER_NODE_WATCH_H_
#define PAGODA_CLIENTS_ROUTER_NODE_WATCH_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "clients/cpp/backoff.h"
#include "clients/cpp/channel.h"
#include "clients/router/followed_stream.h"
#include "clients/router/prefix_index.h"
#include "clients/router/served_cache.h"
#include "grpcpp/channel.h"
#include "pagoda/v1/admin.grpc.pb.h"
#include "pagoda/v1/events.grpc.pb.h"

namespace pagoda {

// A daemon that a router watches.
struct RouterNode {
  // Unique in its router.
  std::string name;
  // "HOST:PORT" or "unix:/path".
  std::string endpoint;
  // Where other daemons fetch from it: its configuration's peers.address. Empty: it serves no
  // peers.
  std::string peer_address;
  ClientCredentials credentials;
};

enum class NodeState : uint8_t {
  kConnecting,  // There was no answer yet, or a snapshot waits for its turn.
  kSnapshot,    // A snapshot arrives. What has arrived counts already.
  kFollowing,   // All its records are known, and changes follow.
  kBroken,      // Its stream broke. Its records are ignored until the stream continues.
  kDead,        // Its lease is over. Its records are forgotten.
  kRefused,     // It refuses the router, or its cache holds other content. See the error.
};
// "connecting", "snapshot" and so on.
std::string_view NodeStateName(NodeState state);

// How a node's stream went.
struct NodeFigures {
  NodeState state = NodeState::kConnecting;
  uint64_t epoch = 0;     // 0: none yet.
  uint64_t revision = 0;  // The revision of the last message.
  uint64_t snapshots = 0;
  // Times that events were missing: a message did not fit, the daemon's log had passed the
  // position, or the daemon has a new epoch.
  uint64_t gaps = 0;
  absl::Duration silent_for;  // Since its last message, or since the watch began.
  absl::Status error;         // The last one. It stays when the stream has recovered.
};

// Bounds how many nodes send snapshots at the same time. Thread-safe.
class SnapshotSlots {
 public:
  explicit SnapshotSlots(int slots) : free_(slots) {}
  bool TryTake() {
    int free = free_;
    while (free > 0) {
      if (free_.compare_exchange_weak(free, free - 1)) return true;
    }
    return false;
  }
  void Give() { ++free_; }

 private:
  std::atomic<int> free_;
};

// Watches one daemon, across broken streams, gaps and restarts, and reports what it has cached.
// Uses no thread of its own: gRPC's threads run its callbacks, and the owner calls Tick. A call's
// object is owned by the call until it is over, and by this object until it lets the call go.
//
// Thread-safe. Invariants
// 1. The records that it reported are those of a prefix of the daemon's events, in order. When
//    events are missing, it forgets all records, and begins with a snapshot.
// 2. When the stream breaks, the records are hidden at once. `lease` after the last message they
//    are forgotten, at the next Tick.
// 3. At most one call is under way that can report anything.
class NodeWatch {
 public:
  struct Change {
    enum class Kind : uint8_t { kAdd, kRemove };
    BlockHash chunk;
    Tier tier = kPrimaryTier;  // Only for kAdd.
    Kind kind = Kind::kAdd;
  };
  // Where it reports to. It calls one function at a time, with its lock held. They must not call it
  // back.
  class Records {
   public:
    virtual ~Records() = default;
    // The node serves this cache. An error refuses the node.
    virtual absl::Status Accept(NodeId node, const ServedCache& cache) = 0;
    virtual void Apply(NodeId node, absl::Span<const Change> changes) = 0;
    virtual void Forget(NodeId node) = 0;
    virtual void Hide(NodeId node) = 0;
    virtual void Show(NodeId node) = 0;
  };
  struct Options {
    std::string cache;
    uint32_t chunk_tokens = 0;
    absl::Duration lease;
    absl::Duration first_pause;  // Before the second try to connect.
    absl::Duration longest_pause;
  };

  // `records` and `slots` must outlive it. Errors: those of MakeChannel.
  static absl::StatusOr<std::unique_ptr<NodeWatch>> Create(std::shared_ptr<const RouterNode> node,
                                                           NodeId id, const Options& options,
                                                           Records* records, SnapshotSlots* slots);
  ~NodeWatch();
  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;

  // Ends what is silent for too long, and starts the next call when it is time. Does not block.
  void Tick(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends its call, and returns when nothing of it is left. It reports nothing any more.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<const RouterNode>& node() const { return node_; }
  NodeId id() const { return id_; }
  NodeFigures Look(absl::Time now) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Call;
  class CacheCall;
  class StreamCall;

  NodeWatch(std::shared_ptr<const RouterNode> node, NodeId id, const Options& options,
            Records* records, SnapshotSlots* slots, std::shared_ptr<grpc::Channel> channel);

  std::shared_ptr<Call> NextCall(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What a call reports. Nothing happens if another call has taken its place.
  void OnCache(const Call* call, const grpc::Status& status, const v1::ListCachesResponse& answer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns whether the call should go on.
  bool OnMessage(const Call* call, const v1::WatchResponse& message) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnStreamEnd(const Call* call, const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // The call's object and its context are gone.
  void OnGone() ABSL_LOCKS_EXCLUDED(mutex_);

  // Lets the call go, and sets when the next one starts. Whoever holds the returned object may
  // cancel it, without the lock.
  std::shared_ptr<Call> Detach(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets the records and the position.
  void Drop(NodeState state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const absl::Status& error, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Apply(const v1::WatchResponse& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveSlot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const RouterNode> node_;  // Also owned by the router's answers.
  const NodeId id_;
  const Options options_;
  Records* const records_;
  SnapshotSlots* const slots_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::AdminService::Stub> admin_;
  const std::unique_ptr<v1::EventService::Stub> events_;

  mutable absl::Mutex mutex_;  // Locked before the lock of `records_`. Not held in calls of gRPC.
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;  // Those that are not gone.
  std::shared_ptr<Call> call_ ABSL_GUARDED_BY(mutex_);
  absl::Time call_began_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_call_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  Backoff backoff_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_sign_ ABSL_GUARDED_BY(mutex_);
  bool accepted_ ABSL_GUARDED_BY(mutex_) = false;     // The daemon's cache is one of this router's,
  uint32_t window_size_ ABSL_GUARDED_BY(mutex_) = 0;  // and has this largest window
  uint64_t cache_epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // and this epoch.
  bool has_slot_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_records_ ABSL_GUARDED_BY(mutex_) = false;  // Some may have been reported.
  bool hidden_ ABSL_GUARDED_BY(mutex_) = false;
  FollowedStream stream_ ABSL_GUARDED_BY(mutex_);
  NodeFigures figures_ ABSL_GUARDED_BY(mutex_);
  // The changes of one message; kept for its memory.
  std::vector<Change> changes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_ROUTER_NODE_WATCH_H_
