#include "server/calls/subscriber_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "prometheus/text_serializer.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Text(const SubscriberMetrics& metrics, std::vector<uint64_t> lags = {}) {
  return prometheus::TextSerializer().Serialize(metrics.Collect(lags));
}

TEST(SubscriberMetricsTest, WhoIsBehindCountsByHowFar) {
  const SubscriberMetrics metrics;
  EXPECT_THAT(Text(metrics, {0, 5, 999, 1000, 250'000}),
              AllOf(HasSubstr("pagoda_event_subscribers 5\n"),
                    HasSubstr("pagoda_event_subscriber_max_lag_events 250000\n"),
                    HasSubstr("pagoda_event_subscribers_behind{events=\"1\"} 4\n"),
                    HasSubstr("pagoda_event_subscribers_behind{events=\"1000\"} 2\n"),
                    HasSubstr("pagoda_event_subscribers_behind{events=\"100000\"} 1\n"),
                    HasSubstr("pagoda_event_subscribers_behind{events=\"1000000\"} 0\n")));
  EXPECT_THAT(Text(metrics), AllOf(HasSubstr("pagoda_event_subscribers 0\n"),
                                   HasSubstr("pagoda_event_subscriber_max_lag_events 0\n")));
}

TEST(SubscriberMetricsTest, ASnapshotCountsByItsReason) {
  SubscriberMetrics metrics;
  metrics.SnapshotBegun(SubscriberMetrics::Snapshot::kAsked);
  metrics.SnapshotBegun(SubscriberMetrics::Snapshot::kBehind);
  metrics.SnapshotBegun(SubscriberMetrics::Snapshot::kBehind);
  EXPECT_THAT(Text(metrics),
              AllOf(HasSubstr("pagoda_event_snapshots_total{reason=\"asked\"} 1\n"),
                    HasSubstr("pagoda_event_snapshots_total{reason=\"behind\"} 2\n")));
}

TEST(SubscriberMetricsTest, AnEndCountsByItsStatus) {
  SubscriberMetrics metrics;
  const auto close = [&](grpc::StatusCode code) {
    metrics.Opened();
    metrics.Closed(SubscriberMetrics::CloseOf(code));
  };
  close(grpc::StatusCode::CANCELLED);
  close(grpc::StatusCode::CANCELLED);
  close(grpc::StatusCode::OUT_OF_RANGE);
  close(grpc::StatusCode::UNAVAILABLE);
  close(grpc::StatusCode::INTERNAL);
  metrics.Opened();
  EXPECT_THAT(Text(metrics),
              AllOf(HasSubstr("pagoda_event_subscribers_opened_total 6\n"),
                    HasSubstr("pagoda_event_subscribers_closed_total{reason=\"client\"} 2\n"),
                    HasSubstr("pagoda_event_subscribers_closed_total{reason=\"behind\"} 1\n"),
                    HasSubstr("pagoda_event_subscribers_closed_total{reason=\"draining\"} 1\n"),
                    HasSubstr("pagoda_event_subscribers_closed_total{reason=\"error\"} 1\n")));
}

}  // namespace
}  // namespace pagoda::server
