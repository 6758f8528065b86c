#include "server/calls/subscriber_metrics.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/calls/metric_family.h"

namespace pagoda::server {
namespace {

// In the order of Close.
constexpr const char* kCloseNames[] = {"client", "behind", "draining", "error"};
static_assert(std::size(kCloseNames) == SubscriberMetrics::kNumCloses);

// In the order of Snapshot.
constexpr const char* kSnapshotNames[] = {"asked", "behind"};
static_assert(std::size(kSnapshotNames) == SubscriberMetrics::kNumSnapshots);

// The thresholds in events: any event, one message, a part of the log, the log's default size.
constexpr uint64_t kBehind[] = {1, 1'000, 100'000, 1'000'000};

}  // namespace

SubscriberMetrics::Close SubscriberMetrics::CloseOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
      return Close::kClient;
    case grpc::StatusCode::OUT_OF_RANGE:
      return Close::kBehind;
    case grpc::StatusCode::UNAVAILABLE:
      return Close::kDraining;
    default:
      return Close::kError;
  }
}

std::vector<prometheus::MetricFamily> SubscriberMetrics::Collect(
    absl::Span<const uint64_t> lags) const {
  auto closed = CounterFamily("pagoda_event_subscribers_closed_total",
                              "Subscribers whose stream ended, by reason.");
  for (size_t i = 0; i < kNumCloses; ++i) {
    AddSample(closed, {{"reason", kCloseNames[i]}},
              static_cast<double>(closed_[i].load(std::memory_order_relaxed)));
  }
  auto snapshots = CounterFamily("pagoda_event_snapshots_total", "Snapshots begun, by reason.");
  for (size_t i = 0; i < kNumSnapshots; ++i) {
    AddSample(snapshots, {{"reason", kSnapshotNames[i]}},
              static_cast<double>(snapshots_[i].load(std::memory_order_relaxed)));
  }
  auto behind = GaugeFamily("pagoda_event_subscribers_behind",
                            "Open subscribers with at least this many events not sent yet.");
  for (const uint64_t events : kBehind) {
    AddSample(behind, {{"events", absl::StrCat(events)}},
              static_cast<double>(std::count_if(lags.begin(), lags.end(),
                                                [&](uint64_t lag) { return lag >= events; })));
  }
  const uint64_t most = lags.empty() ? 0 : *std::max_element(lags.begin(), lags.end());
  return {
      Gauge("pagoda_event_subscribers", "Open subscribers.", static_cast<double>(lags.size())),
      Counter("pagoda_event_subscribers_opened_total", "Subscribers whose stream was opened.",
              static_cast<double>(opened_.load(std::memory_order_relaxed))),
      std::move(closed),
      std::move(snapshots),
      std::move(behind),
      Gauge("pagoda_event_subscriber_max_lag_events",
            "The most events not sent yet to an open subscriber.", static_cast<double>(most)),
  };
}

}  // namespace pagoda::server
