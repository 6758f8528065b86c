// How those who watch the events do: numbers over all of them.
#ifndef PAGODA_SERVER_METRICS_SUBSCRIBER_METRICS_H_
#define PAGODA_SERVER_METRICS_SUBSCRIBER_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "grpcpp/support/status.h"
#include "prometheus/metric_family.h"

namespace pagoda::server {

// Counts the subscribers that are streams, Watch's and SMG's. Those of ZMQ are not known: what
// their bridge has read is pagoda_bridge_revision. Not by subscriber: whoever connects would make a
// new series. Thread-safe.
class SubscriberMetrics {
 public:
  // Why a subscriber is gone.
  enum class Close : uint8_t {
    kClient,    // It went away, or its connection broke.
    kBehind,    // The log passed it.
    kDraining,  // The daemon shut down.
    kError,     // Anything else.
  };
  static constexpr size_t kNumCloses = 4;

  // Of the status that a stream ended with: the client's CANCELLED, OUT_OF_RANGE (Watch's
  // REVISION_COMPACTED, or a batch of SMG's that is gone), DRAINING's UNAVAILABLE.
  static Close CloseOf(grpc::StatusCode code);

  // Why a subscriber gets a snapshot: it asked for one, or the log passed it and it had asked for
  // one then.
  enum class Snapshot : uint8_t { kAsked, kBehind };
  static constexpr size_t kNumSnapshots = 2;

  // Each once for a subscriber, Opened() first.
  void Opened() { opened_.fetch_add(1, std::memory_order_relaxed); }
  void Closed(Close why) {
    closed_[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
  }

  void SnapshotBegun(Snapshot why) {
    snapshots_[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
  }

  // `lags`: of each that is open, the events that it has yet to be sent. The families are those of
  // README.md whose names begin with pagoda_event_subscriber, and pagoda_event_snapshots_total.
  std::vector<prometheus::MetricFamily> Collect(absl::Span<const uint64_t> lags) const;

 private:
  std::atomic<uint64_t> opened_ = 0;
  std::array<std::atomic<uint64_t>, kNumCloses> closed_ = {};
  std::array<std::atomic<uint64_t>, kNumSnapshots> snapshots_ = {};
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_SUBSCRIBER_METRICS_H_
