// Which nodes have the longest prefix of a prompt, for a router in front of many daemons.
#ifndef PAGODA_CLIENTS_ROUTER_PREFIX_ROUTER_H_
#define PAGODA_CLIENTS_ROUTER_PREFIX_ROUTER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/thread.h"
#include "clients/router/chunk_hashes.h"
#include "clients/router/node_watch.h"
#include "clients/router/prefix_index.h"
#include "clients/router/served_cache.h"

namespace pagoda {

// How a node gets a whole prompt ready, and how long that takes, is an estimate:
//
//   seconds = onboard + fetch + compute
//   onboard = sum over the farther tiers of (tokens of the prefix there) * bytes_per_token
//             / bytes per second of the tier's medium
//   fetch   = (tokens fetched from another node) * bytes_per_token / peer_bytes_per_second
//   compute = (the other tokens) / recompute_tokens_per_second
//
// A node fetches what the best other node has beyond its own prefix, if that is estimated to be
// faster than computing it. Waiting requests and the load of the node are not in the estimate.
struct RouteCosts {
  double recompute_tokens_per_second = 10'000;
  // To bring bytes from a farther tier of this medium to the engine. The first tier costs nothing.
  double gpu_bytes_per_second = 200e9;
  double host_bytes_per_second = 20e9;
  double disk_bytes_per_second = 2e9;
  // To fetch bytes from another daemon. 0: nodes do not fetch from each other.
  double peer_bytes_per_second = 1e9;
  // 0: from the layers that the daemons report.
  double bytes_per_token = 0;
};

// Watches any number of daemons, and answers which of them have the longest prefix of a prompt, in
// which tier and at what cost. Records are hints: a wrong one costs a request to a node that does
// not have the prefix.
//
// It follows the largest window of each cache. With full attention everywhere, a node has what the
// records say. In a sliding window they say where the longest prefix was last.
//
// Thread-safe. gRPC's threads read the streams; one thread of the router watches leases.
// Invariants
// 1. A node is in an answer only if its stream is open and its last message is younger than the
//    lease (and a twentieth of it, for the thread's pace).
// 2. While a node follows, its records are exactly the chunks of the daemon's prefix tree at
//    NodeFigures::revision. When its events have a gap, the log has passed, or the epoch changes,
//    they are forgotten at once, and begin again with a snapshot.
// 3. All nodes in an answer have caches of one model with one tokens_per_block: those of the first
//    node that answered. Other nodes are refused, until no node has the first node's cache.
//
// Cost: Find hashes the prompt (about 10 us for 8,000 tokens) without a lock, and then looks up
// under a shared lock (PrefixIndex). Changes take the lock for at most 64 records at a time. A
// record takes 18 bytes; a node a connection and about 100 KiB.
class PrefixRouter final : private NodeWatch::Records {
 public:
  struct Options {
    // The daemons' cache. "": the only one of each.
    std::string cache;
    // A multiple of the caches' tokens_per_block; 0: one block. Prefixes are found in whole chunks.
    uint32_t chunk_tokens = 256;
    // A node without a message for so long is dead. Daemons send a progress mark each second
    // (events.progress_interval). At least 10 ms.
    absl::Duration lease = absl::Seconds(10);
    RouteCosts costs;
    // Nodes that send a snapshot at the same time; the others wait. Bounds the memory of messages.
    int max_snapshots = 64;
    // The pause before a node is called again doubles between these.
    absl::Duration first_pause = absl::Milliseconds(50);
    absl::Duration longest_pause = absl::Seconds(2);
  };

  // Errors: INVALID_ARGUMENT; those of Thread::Start.
  static absl::StatusOr<std::unique_ptr<PrefixRouter>> Create(const Options& options);
  ~PrefixRouter() override;
  PrefixRouter(const PrefixRouter&) = delete;
  PrefixRouter& operator=(const PrefixRouter&) = delete;

  // Watches a daemon. Returns at once; a daemon that is away is called until it answers. Errors:
  // INVALID_ARGUMENT (no name or endpoint, the name is taken, PrefixIndex::kMaxNodes are watched;
  // those of MakeChannel).
  absl::Status AddNode(RouterNode node);
  // Forgets the node. When this returns, nothing of its stream is left. Errors: NOT_FOUND.
  absl::Status RemoveNode(std::string_view name);

  // A node with a part of the prompt.
  struct Candidate {
    std::shared_ptr<const RouterNode> node;  // Also owned by the router and by other answers.
    // The prompt's first tokens that the node has. At most the prompt's reusable tokens.
    uint32_t tokens = 0;
    Tier tier = kPrimaryTier;  // Where the last of them lie.
    // Until the whole prompt is ready there: see RouteCosts.
    absl::Duration cost;
    // What it fetches from another node in this estimate. If `fetch_from` is set, its peer_address
    // is the `source` for this node's FetchPrefix.
    uint32_t fetch_tokens = 0;
    std::shared_ptr<const RouterNode> fetch_from;
  };
  struct Route {
    // Longest prefix first, then the nearest tier, then in the order of AddNode. All are alive.
    std::vector<Candidate> nodes;
    // A node that has nothing of the prompt: without `node` and `tokens`.
    Candidate other;
  };
  // The best nodes, at most `most` of them. Empty before the first node has answered.
  Route Find(const RoutedPrompt& prompt, size_t most) const ABSL_LOCKS_EXCLUDED(index_mutex_);

  struct NodeRow {
    std::shared_ptr<const RouterNode> node;
    NodeFigures figures;
    uint64_t records = 0;
    // Whether Find can return it.
    bool alive() const {
      return figures.state == NodeState::kSnapshot || figures.state == NodeState::kFollowing;
    }
  };
  // In the order of their names.
  std::vector<NodeRow> Nodes() const ABSL_LOCKS_EXCLUDED(nodes_mutex_, index_mutex_);
  // Returns when each node follows, has failed to connect, is dead or is refused; or after
  // `timeout`.
  void AwaitNodes(absl::Duration timeout) const;

  // The cache that all nodes in answers have. nullopt before the first answer.
  std::optional<ServedCache> cache() const ABSL_LOCKS_EXCLUDED(index_mutex_);
  // The tier of one chunk's nearest copy. nullopt: no such record, or the node is not alive.
  std::optional<Tier> TierOf(std::string_view name, BlockHash chunk) const
      ABSL_LOCKS_EXCLUDED(nodes_mutex_, index_mutex_);
  // The bytes of the index.
  uint64_t memory_bytes() const ABSL_LOCKS_EXCLUDED(index_mutex_);

 private:
  // What Find needs to know about a node.
  struct NodeFacts {
    std::shared_ptr<const RouterNode> node;
    bool accepted = false;
    double bytes_per_token = 0;
    std::array<double, kMaxTiers> onboard_seconds = {};  // For a token in each tier.
  };

  explicit PrefixRouter(const Options& options);

  // NodeWatch::Records.
  absl::Status Accept(NodeId node, const ServedCache& cache) override;
  void Apply(NodeId node, absl::Span<const NodeWatch::Change> changes) override;
  void Forget(NodeId node) override;
  void Hide(NodeId node) override;
  void Show(NodeId node) override;

  uint32_t ChunkTokens(const ServedCache& cache) const {
    return options_.chunk_tokens == 0 ? cache.tokens_per_block : options_.chunk_tokens;
  }
  void Run();
  double OnboardSeconds(const PrefixIndex::Match& match, absl::Span<const BlockHash> chunks) const
      ABSL_SHARED_LOCKS_REQUIRED(index_mutex_);
  // Fills in the cost, and what it fetches from the first of `nodes` that serves peers.
  // `onboard_seconds`: for its own prefix.
  void Estimate(const std::vector<Candidate>& nodes, size_t prompt_tokens, double bytes_per_token,
                double onboard_seconds, Candidate* candidate) const;

  const Options options_;
  SnapshotSlots slots_;

  // Locked before a NodeWatch's lock, which is locked before index_mutex_.
  mutable absl::Mutex nodes_mutex_;
  // By name. Also owned by the router's thread while it visits them.
  std::map<std::string, std::shared_ptr<NodeWatch>, std::less<>> nodes_
      ABSL_GUARDED_BY(nodes_mutex_);
  std::vector<NodeId> free_ids_ ABSL_GUARDED_BY(nodes_mutex_);  // The ids of removed nodes.
  size_t used_ids_ ABSL_GUARDED_BY(nodes_mutex_) = 0;           // The free ones are among them.

  mutable absl::Mutex index_mutex_;
  PrefixIndex index_ ABSL_GUARDED_BY(index_mutex_);
  std::vector<NodeFacts> facts_ ABSL_GUARDED_BY(index_mutex_);  // By id.
  size_t accepted_ ABSL_GUARDED_BY(index_mutex_) = 0;           // Nodes with this cache:
  std::optional<ServedCache> cache_ ABSL_GUARDED_BY(index_mutex_);

  absl::Notification stop_;
  Thread thread_;  // Last: it uses the others.
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_ROUTER_PREFIX_ROUTER_H_
