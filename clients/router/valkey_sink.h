// Keeps a router's records in Redis or Valkey, for routers that already live there.
#ifndef PAGODA_CLIENTS_ROUTER_VALKEY_SINK_H_
#define PAGODA_CLIENTS_ROUTER_VALKEY_SINK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/thread.h"
#include "clients/cpp/backoff.h"
#include "clients/router/prefix_router.h"
#include "clients/router/store_layout.h"
#include "clients/router/store_link.h"

namespace pagoda {

// Writes what a PrefixRouter learns into one server (store_layout.h). Several sinks can share a
// server, but each node belongs to one sink. The server must hold all keys: a plain server, not a
// cluster.
//
//   sink = ValkeySink::Create(...), router = PrefixRouter::Create({.sink = sink.get()})
//   sink->Start([&](NodeId id) { router->Refresh(id); })
//   ...
//   sink->Stop(), then the router's end
//
// Its functions of RouterSink only queue, in bounded memory; one thread writes. Thread-safe.
// Invariants
// 1. A record in the store counts only if the node has it, up to the time that a write takes. When
//    records cannot be written (the queue is full, the connection or a lease was lost), the node
//    draws a new generation and begins with a snapshot. So no record of before counts any more.
// 2. A dead or removed node's lease is deleted at once. If the sink itself ends, its nodes' leases
//    expire.
// 3. Writes are idempotent: a pipeline whose replies are lost does no harm.
class ValkeySink final : public RouterSink {
 public:
  struct Options {
    StoreLink::Options store;
    std::string prefix = "pagoda:router";  // Of all keys.
    // About 1/32 of the records that are expected. All sinks and readers of a prefix agree.
    uint32_t buckets = 1 << 16;
    uint32_t chunk_tokens = 256;  // As the router has it.
    // Leases expire after so long, and are renewed three times as often.
    absl::Duration lease = absl::Seconds(10);
    size_t max_waiting = 1 << 20;  // Changes in the queue, 24 bytes each.
    // The entries that the stream of each node keeps, about. 0: no streams.
    uint64_t stream_entries = 10'000;
    // Between two steps of purging. Each looks at eight buckets.
    absl::Duration purge_pause = absl::Milliseconds(100);
  };
  // Errors: INVALID_ARGUMENT.
  static absl::StatusOr<std::unique_ptr<ValkeySink>> Create(const Options& options);
  ~ValkeySink() override;

  // Begins to write. `refresh` is called on the sink's thread until Stop returns: the router begins
  // again with the node. Errors: those of Thread::Start.
  absl::Status Start(std::function<void(NodeId)> refresh);
  // Deletes the nodes' leases if the server answers, and ends the thread.
  void Stop();

  struct Figures {
    bool connected = false;
    uint64_t written = 0;    // Changes.
    uint64_t refreshes = 0;  // Nodes that had to begin again.
    uint64_t purged = 0;     // Records that did not count any more.
    size_t waiting = 0;
    absl::Status error;  // The last one.
  };
  Figures figures() const ABSL_LOCKS_EXCLUDED(mutex_);

  void Begin(NodeId id, const RouterNode& node) override;
  void End(NodeId id) override;
  absl::Status Accept(NodeId id, const ServedCache& cache) override;
  void Apply(NodeId id, const NodeWatch::Position& position,
             absl::Span<const NodeWatch::Change> changes) override;
  void Forget(NodeId id) override;
  void Hide(NodeId id) override;
  void Show(NodeId id) override;

 private:
  struct Node {
    std::string name;
    std::string peer_address;
    uint64_t generation = 0;
    bool live = false;    // It has records of this generation.
    bool hidden = false;  // The router hides it.
    bool lost = false;    // Changes are dropped until the router forgets its records.
    bool wants_refresh = false;
    // Of the sink's thread.
    std::optional<router_store::StoreNode> number;
    std::string lease;               // That is in the store; "": none.
    uint64_t leased_generation = 0;  // Of that lease; 0: none.
    absl::Time renewed;
    uint64_t logged = 0;  // The last revision in its stream.
  };
  struct Batch {
    NodeId id;
    NodeWatch::Position position;
    std::vector<NodeWatch::Change> changes;
  };

  explicit ValkeySink(const Options& options);

  void Run();
  // One round of the thread. Errors end the connection.
  absl::Status Step();
  absl::Status Connect();
  absl::Status CheckMeta();
  absl::Status Number() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Write() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Lease(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Purge(absl::Time now);
  void DeleteLeases() ABSL_LOCKS_EXCLUDED(mutex_);
  void AppendChanges(const Batch& batch, Node& node, std::vector<StoreLink::Command>* commands)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The node's records in the store are void from now on.
  void Lose(NodeId id, Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropQueue(NodeId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !queue_.empty();
  }

  const Options options_;
  std::function<void(NodeId)> refresh_;
  // Of the thread.
  std::unique_ptr<StoreLink> link_;
  bool was_connected_ = false;
  Backoff backoff_;
  absl::Time next_purge_ = absl::InfinitePast();
  uint32_t purge_bucket_ = 0;

  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<router_store::Meta> meta_ ABSL_GUARDED_BY(mutex_);
  std::map<NodeId, Node> nodes_ ABSL_GUARDED_BY(mutex_);
  std::vector<router_store::StoreNode> ended_ ABSL_GUARDED_BY(mutex_);  // Their leases go.
  std::deque<Batch> queue_ ABSL_GUARDED_BY(mutex_);
  Figures figures_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_ROUTER_VALKEY_SINK_H_
