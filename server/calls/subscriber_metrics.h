// Totals over the subscribers of a cache's events.
#ifndef PAGODA_SERVER_CALLS_SUBSCRIBER_METRICS_H_
#define PAGODA_SERVER_CALLS_SUBSCRIBER_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "grpcpp/support/status.h"
#include "prometheus/metric_family.h"

namespace pagoda::server {

// Counts the subscribers that are streams of Watch or SMG. ZMQ subscribers are unknown to the
// daemon: pagoda_bridge_revision shows what their bridge has read. There is no label per
// subscriber, because each new client would create a series. Thread-safe.
class SubscriberMetrics {
 public:
  // Why a subscriber's stream ended.
  enum class Close : uint8_t {
    kClient,    // The client left, or its connection broke.
    kBehind,    // The event log passed it.
    kDraining,  // The daemon shut down.
    kError,     // Anything else.
  };
  static constexpr size_t kNumCloses = 4;

  // Maps the status that ended a stream: the client's CANCELLED, OUT_OF_RANGE (REVISION_COMPACTED
  // of Watch, or a batch that SMG no longer has), UNAVAILABLE (DRAINING).
  static Close CloseOf(grpc::StatusCode code);

  // Why a subscriber gets a snapshot: it asked for one now, or the log passed it and it had asked
  // for a snapshot in that case.
  enum class Snapshot : uint8_t { kAsked, kBehind };
  static constexpr size_t kNumSnapshots = 2;

  // Call each once per subscriber, Opened() first.
  void Opened() { opened_.fetch_add(1, std::memory_order_relaxed); }
  void Closed(Close why) {
    closed_[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
  }

  void SnapshotBegun(Snapshot why) {
    snapshots_[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
  }

  // `lags`: for each open subscriber, the events not sent to it yet. The families are listed in
  // server/METRICS.md: those whose names begin with pagoda_event_subscriber, and
  // pagoda_event_snapshots_total.
  std::vector<prometheus::MetricFamily> Collect(absl::Span<const uint64_t> lags) const;

 private:
  std::atomic<uint64_t> opened_ = 0;
  std::array<std::atomic<uint64_t>, kNumCloses> closed_ = {};
  std::array<std::atomic<uint64_t>, kNumSnapshots> snapshots_ = {};
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLS_SUBSCRIBER_METRICS_H_
