#include "server/metrics/store_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "prometheus/text_serializer.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string TextOf(const std::vector<prometheus::MetricFamily>& families) {
  return absl::StrCat("\n", prometheus::TextSerializer().Serialize(families));
}

void ExpectLines(const std::string& text, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\n", line, "\n")));
  }
}

// Every number differs, so that no two fields can be mixed up.
StoreStats SomeStats() {
  StoreStats stats;
  stats.gets = {11, 12, 13, 14, 15, 16, 17, 18};
  stats.puts = {21, 22, 23, 24, 25, 26, 27, 28};
  stats.exists = {31, 32, 33, 34, 35, 36, 37, 38};
  stats.faults = {0, 41, 42, 43, 44, 45};
  stats.bytes_read = 51;
  stats.bytes_written = 52;
  stats.redirections = 53;
  stats.refused_servers = 60;
  stats.connects = 54;
  stats.connect_failures = 55;
  stats.disconnects = 56;
  stats.nodes = 57;
  stats.connected = 58;
  stats.waiting = 59;
  return stats;
}

TEST(StoreMetricsTest, OfTheStore) {
  const std::string text = TextOf(CollectStoreMetrics(SomeStats()));
  ExpectLines(text, {"pagoda_store_operations_total{operation=\"get\",outcome=\"ok\"} 11",
                     "pagoda_store_operations_total{operation=\"get\",outcome=\"cancelled\"} 18",
                     "pagoda_store_operations_total{operation=\"put\",outcome=\"refused\"} 24",
                     "pagoda_store_operations_total{operation=\"exists\",outcome=\"missing\"} 32",
                     "pagoda_store_invalid_values_total{fault=\"foreign\"} 41",
                     "pagoda_store_invalid_values_total{fault=\"forged\"} 45",
                     "pagoda_store_bytes_total{direction=\"read\"} 51",
                     "pagoda_store_bytes_total{direction=\"write\"} 52",
                     "pagoda_store_redirections_total 53", "pagoda_store_refused_servers_total 60",
                     "pagoda_store_connects_total 54", "pagoda_store_connect_failures_total 55",
                     "pagoda_store_disconnects_total 56", "pagoda_store_servers 57",
                     "pagoda_store_connections 58", "pagoda_store_waiting_operations 59",
                     "pagoda_store_up 1"});
  EXPECT_THAT(text, Not(HasSubstr("fault=\"none\"")));
}

TEST(StoreMetricsTest, AStoreWithoutAReadyConnectionIsNotUp) {
  StoreStats stats = SomeStats();
  stats.connected = 0;
  ExpectLines(TextOf(CollectStoreMetrics(stats)), {"pagoda_store_up 0"});
}

TEST(StoreMetricsTest, OfACachesExchange) {
  ExchangeStats stats;
  stats.fetches = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  stats.joined_fetches = 11;
  stats.fetched_blocks = 12;
  stats.fetched_bytes = 13;
  stats.fetched_tokens = 14;
  stats.invalid_blocks = 15;
  stats.published_blocks = 16;
  stats.published_bytes = 17;
  stats.skipped_blocks = 18;
  stats.failed_blocks = 19;
  stats.bytes_per_second = 20;
  stats.waiting = 21;
  ExpectLines(TextOf(CollectExchangeMetrics(stats)),
              {"pagoda_fetches_total{outcome=\"fetched\"} 1",
               "pagoda_fetches_total{outcome=\"no_source\"} 10", "pagoda_joined_fetches_total 11",
               "pagoda_fetched_blocks_total 12", "pagoda_fetched_bytes_total 13",
               "pagoda_fetched_tokens_total 14", "pagoda_fetched_invalid_blocks_total 15",
               "pagoda_published_blocks_total 16", "pagoda_published_bytes_total 17",
               "pagoda_publish_skipped_blocks_total 18", "pagoda_publish_failed_blocks_total 19",
               "pagoda_fetch_bytes_per_second 20", "pagoda_exchange_waiting 21"});
}

TEST(StoreMetricsTest, OfThePublisher) {
  PublisherStats stats;
  stats.listed = 1;
  stats.published = 2;
  stats.failed_tries = 3;
  stats.short_tries = 4;
  stats.dropped = {5, 6, 7, 8, 9};
  stats.waiting = 10;
  stats.in_flight = 11;
  stats.is_store_away = true;
  stats.queued_blocks = 12;
  stats.forgotten_blocks = 13;
  ExpectLines(
      TextOf(CollectPublisherMetrics(stats)),
      {"pagoda_publisher_listed_prefixes_total 1", "pagoda_publisher_published_prefixes_total 2",
       "pagoda_publisher_failed_tries_total 3", "pagoda_publisher_short_tries_total 4",
       "pagoda_publisher_dropped_prefixes_total{reason=\"tenant\"} 5",
       "pagoda_publisher_dropped_prefixes_total{reason=\"stopped\"} 9",
       "pagoda_publisher_prefixes{state=\"waiting\"} 10",
       "pagoda_publisher_prefixes{state=\"in_flight\"} 11", "pagoda_publisher_store_away 1",
       "pagoda_publisher_queued_blocks 12", "pagoda_publisher_forgotten_blocks_total 13"});
}

TEST(StoreMetricsTest, OfOtherDaemons) {
  const std::string text = TextOf(CollectSourceMetrics(
      {{.address = "10.0.0.1:7072", .stats = SomeStats(), .bytes_per_second = 1.5},
       {.address = "10.0.0.2:7072", .stats = {}, .bytes_per_second = 0}}));
  ExpectLines(text, {"pagoda_source_up{address=\"10.0.0.1:7072\"} 1",
                     "pagoda_source_up{address=\"10.0.0.2:7072\"} 0",
                     "pagoda_source_gets_total{address=\"10.0.0.1:7072\",outcome=\"missing\"} 12",
                     "pagoda_source_bytes_total{address=\"10.0.0.1:7072\"} 51",
                     "pagoda_source_connect_failures_total{address=\"10.0.0.1:7072\"} 55",
                     "pagoda_source_bytes_per_second{address=\"10.0.0.1:7072\"} 1.5"});
  EXPECT_THAT(CollectSourceMetrics({}), IsEmpty());
}

TEST(StoreMetricsTest, OfTheDaemonAsOthersReadIt) {
  PeerStats stats;
  stats.connections = 1;
  stats.accepted = 2;
  stats.refused = 3;
  stats.failed = 4;
  stats.commands = 5;
  stats.hits = 6;
  stats.misses = 7;
  stats.refused_gets = 8;
  stats.exists = 9;
  stats.authentication_failures = 10;
  stats.bytes_sent = 11;
  stats.value_bytes_sent = 12;
  ExpectLines(TextOf(CollectPeerMetrics(stats)),
              {"pagoda_peer_connections 1", "pagoda_peer_accepted_connections_total 2",
               "pagoda_peer_refused_connections_total 3", "pagoda_peer_failed_connections_total 4",
               "pagoda_peer_commands_total 5", "pagoda_peer_gets_total{outcome=\"hit\"} 6",
               "pagoda_peer_gets_total{outcome=\"miss\"} 7",
               "pagoda_peer_gets_total{outcome=\"refused\"} 8", "pagoda_peer_exists_total 9",
               "pagoda_peer_authentication_failures_total 10", "pagoda_peer_sent_bytes_total 11",
               "pagoda_peer_value_bytes_total 12"});
  ExpectLines(TextOf(CollectPeerIndexMetrics(
                  {{.name = "c", .index = {.blocks = 1, .left_out = 2, .resets = 3}}})),
              {"pagoda_peer_index_blocks{cache=\"c\"} 1",
               "pagoda_peer_index_left_out_blocks_total{cache=\"c\"} 2",
               "pagoda_peer_index_resets_total{cache=\"c\"} 3"});
}

}  // namespace
}  // namespace pagoda::server
