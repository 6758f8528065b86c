#include "server/metrics/store_metrics.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "manager/words/fetch_outcome.h"
#include "server/calls/metric_family.h"

namespace pagoda::server {
namespace {

using Families = std::vector<prometheus::MetricFamily>;

// One sample for each kind, also for those that did not occur.
template <class Kind, size_t kKinds>
void AddKinds(prometheus::MetricFamily& family, const MetricLabels& labels, const char* label,
              const std::array<uint64_t, kKinds>& counts, const char* (*name)(Kind)) {
  for (size_t i = 0; i < kKinds; ++i) {
    AddSample(family, WithLabel(labels, label, name(static_cast<Kind>(i))), AsDouble(counts[i]));
  }
}

template <class Stats>
struct Row {
  const char* name;
  const char* help;
  uint64_t Stats::*field;
};

template <class Stats, size_t kRows>
void AddCounters(const Row<Stats> (&rows)[kRows], const Stats& stats, Families& out) {
  for (const Row<Stats>& row : rows) {
    out.push_back(Counter(row.name, row.help, AsDouble(stats.*row.field)));
  }
}

}  // namespace

Families CollectExchangeMetrics(const ExchangeStats& stats) {
  auto fetches =
      CounterFamily("pagoda_fetches_total",
                    "Fetches of a prefix from the store or from another daemon, by outcome.");
  AddKinds(fetches, {}, "outcome", stats.fetches, FetchOutcomeName);
  Families families;
  families.push_back(std::move(fetches));
  static constexpr Row<ExchangeStats> kCounters[] = {
      {"pagoda_joined_fetches_total", "Fetches that waited for another one of the same blocks.",
       &ExchangeStats::joined_fetches},
      {"pagoda_fetched_blocks_total", "Blocks that fetches have cached.",
       &ExchangeStats::fetched_blocks},
      {"pagoda_fetched_bytes_total", "Bytes of the blocks that fetches have cached.",
       &ExchangeStats::fetched_bytes},
      {"pagoda_fetched_tokens_total", "Prompt tokens whose KV fetches have cached.",
       &ExchangeStats::fetched_tokens},
      {"pagoda_fetched_invalid_blocks_total",
       "Values that were read and were not the block. They are never used.",
       &ExchangeStats::invalid_blocks},
      {"pagoda_published_blocks_total", "Blocks written into the store.",
       &ExchangeStats::published_blocks},
      {"pagoda_published_bytes_total", "Bytes of the blocks written into the store.",
       &ExchangeStats::published_bytes},
      {"pagoda_publish_skipped_blocks_total",
       "Blocks that a write left out, because the budget of bytes was used up.",
       &ExchangeStats::skipped_blocks},
      {"pagoda_publish_failed_blocks_total", "Blocks that the store did not take.",
       &ExchangeStats::failed_blocks},
  };
  AddCounters(kCounters, stats, families);
  families.push_back(Gauge("pagoda_fetch_bytes_per_second",
                           "The measured speed of fetches from the store; 0: no fetch has ended.",
                           stats.bytes_per_second));
  families.push_back(Gauge("pagoda_exchange_waiting", "Fetches and writes that have not ended.",
                           AsDouble(stats.waiting)));
  return families;
}

Families CollectPublisherMetrics(const PublisherStats& stats) {
  auto dropped = CounterFamily("pagoda_publisher_dropped_prefixes_total",
                               "Listed prefixes that were not published, by reason.");
  AddKinds(dropped, {}, "reason", stats.dropped, PublishDropName);
  auto prefixes =
      GaugeFamily("pagoda_publisher_prefixes", "Listed prefixes that wait or are being written.");
  AddSample(prefixes, {{"state", "waiting"}}, AsDouble(stats.waiting));
  AddSample(prefixes, {{"state", "in_flight"}}, AsDouble(stats.in_flight));
  Families families;
  families.push_back(std::move(dropped));
  families.push_back(std::move(prefixes));
  static constexpr Row<PublisherStats> kCounters[] = {
      {"pagoda_publisher_listed_prefixes_total", "Prefixes that the cache listed for the store.",
       &PublisherStats::listed},
      {"pagoda_publisher_published_prefixes_total",
       "Listed prefixes whose blocks in memory are all in the store.", &PublisherStats::published},
      {"pagoda_publisher_failed_tries_total", "Writes of which the store did not take each block.",
       &PublisherStats::failed_tries},
      {"pagoda_publisher_short_tries_total", "Writes that the budget of bytes cut off.",
       &PublisherStats::short_tries},
      {"pagoda_publisher_forgotten_blocks_total",
       "Blocks that were forgotten because the cache's list was full.",
       &PublisherStats::forgotten_blocks},
  };
  AddCounters(kCounters, stats, families);
  families.push_back(Gauge("pagoda_publisher_queued_blocks",
                           "Blocks in the cache's list, before the publisher takes them.",
                           stats.queued_blocks));
  families.push_back(Gauge("pagoda_publisher_store_away",
                           "1 if the last write failed, so that the others wait.",
                           stats.is_store_away ? 1 : 0));
  return families;
}

Families CollectStoreMetrics(const StoreStats& stats) {
  auto operations = CounterFamily("pagoda_store_operations_total",
                                  "Operations on single keys of the store, by outcome.");
  for (const auto& [operation, counts] :
       {std::pair("get", &stats.gets), std::pair("put", &stats.puts),
        std::pair("exists", &stats.exists)}) {
    AddKinds(operations, {{"operation", operation}}, "outcome", *counts, StoreOutcomeName);
  }
  auto faults = CounterFamily("pagoda_store_invalid_values_total",
                              "Values that were not the block, by what was wrong.");
  for (size_t i = 1; i < kValueFaults; ++i) {  // 0 is no fault.
    AddSample(faults, {{"fault", ValueFaultName(static_cast<ValueFault>(i))}},
              AsDouble(stats.faults[i]));
  }
  auto bytes = CounterFamily("pagoda_store_bytes_total",
                             "Bytes of blocks that were verified, or that the store confirmed.");
  AddSample(bytes, {{"direction", "read"}}, AsDouble(stats.bytes_read));
  AddSample(bytes, {{"direction", "write"}}, AsDouble(stats.bytes_written));
  Families families;
  for (auto* family : {&operations, &faults, &bytes}) families.push_back(std::move(*family));
  static constexpr Row<StoreStats> kCounters[] = {
      {"pagoda_store_redirections_total", "Answers that named another server of the cluster.",
       &StoreStats::redirections},
      {"pagoda_store_refused_servers_total",
       "Connections that were not begun, because store.allowed_networks does not allow the server "
       "or it would get the password without TLS.",
       &StoreStats::refused_servers},
      {"pagoda_store_connects_total", "Connections that became ready.", &StoreStats::connects},
      {"pagoda_store_connect_failures_total", "Connections that did not become ready.",
       &StoreStats::connect_failures},
      {"pagoda_store_disconnects_total", "Ready connections that ended.", &StoreStats::disconnects},
  };
  AddCounters(kCounters, stats, families);
  families.push_back(Gauge("pagoda_store_up",
                           "1 if a connection to one of the store's servers is ready.",
                           stats.connected > 0 ? 1 : 0));
  families.push_back(
      Gauge("pagoda_store_servers", "Servers of the store that are known.", stats.nodes));
  families.push_back(
      Gauge("pagoda_store_connections", "Ready connections to the store.", stats.connected));
  families.push_back(Gauge("pagoda_store_waiting_operations",
                           "Operations on the store that have not ended.",
                           AsDouble(stats.waiting)));
  return families;
}

Families CollectSourceMetrics(const std::vector<Sources::PeerRow>& rows) {
  if (rows.empty()) return {};
  auto up = GaugeFamily("pagoda_source_up", "1 if a connection to the other daemon is ready.");
  auto gets =
      CounterFamily("pagoda_source_gets_total", "Blocks asked of the other daemon, by outcome.");
  auto bytes =
      CounterFamily("pagoda_source_bytes_total", "Bytes of the blocks that it has brought.");
  auto failures = CounterFamily("pagoda_source_connect_failures_total",
                                "Connections to it that did not become ready.");
  auto speed =
      GaugeFamily("pagoda_source_bytes_per_second", "Its measured speed; 0: no fetch has ended.");
  for (const Sources::PeerRow& row : rows) {
    const MetricLabels labels = {{"address", row.address}};
    AddSample(up, labels, row.stats.connected > 0 ? 1 : 0);
    AddKinds(gets, labels, "outcome", row.stats.gets, StoreOutcomeName);
    AddSample(bytes, labels, AsDouble(row.stats.bytes_read));
    AddSample(failures, labels, AsDouble(row.stats.connect_failures));
    AddSample(speed, labels, row.bytes_per_second);
  }
  Families families;
  for (auto* family : {&up, &gets, &bytes, &failures, &speed}) {
    families.push_back(std::move(*family));
  }
  return families;
}

Families CollectPeerMetrics(const PeerStats& stats) {
  auto gets = CounterFamily("pagoda_peer_gets_total",
                            "Blocks that other daemons asked for, by outcome: hit, miss, refused.");
  AddSample(gets, {{"outcome", "hit"}}, AsDouble(stats.hits));
  AddSample(gets, {{"outcome", "miss"}}, AsDouble(stats.misses));
  AddSample(gets, {{"outcome", "refused"}}, AsDouble(stats.refused_gets));
  Families families;
  families.push_back(std::move(gets));
  static constexpr Row<PeerStats> kCounters[] = {
      {"pagoda_peer_commands_total", "Commands of other daemons.", &PeerStats::commands},
      {"pagoda_peer_exists_total", "Blocks of which other daemons asked whether they are cached.",
       &PeerStats::exists},
      {"pagoda_peer_sent_bytes_total", "Bytes sent to other daemons.", &PeerStats::bytes_sent},
      {"pagoda_peer_value_bytes_total", "Bytes of the blocks sent to other daemons.",
       &PeerStats::value_bytes_sent},
      {"pagoda_peer_accepted_connections_total", "Connections of other daemons that were let in.",
       &PeerStats::accepted},
      {"pagoda_peer_refused_connections_total", "Connections beyond the limit.",
       &PeerStats::refused},
      {"pagoda_peer_failed_connections_total",
       "Connections that an error of the protocol or of TLS, or a time-out, has closed.",
       &PeerStats::failed},
      {"pagoda_peer_authentication_failures_total", "Tokens that the daemon does not know.",
       &PeerStats::authentication_failures},
  };
  AddCounters(kCounters, stats, families);
  families.push_back(Gauge("pagoda_peer_connections", "Connections of other daemons.",
                           AsDouble(stats.connections)));
  return families;
}

Families CollectPeerIndexMetrics(const std::vector<PeerServer::CacheStats>& rows) {
  if (rows.empty()) return {};
  auto blocks =
      GaugeFamily("pagoda_peer_index_blocks", "Blocks of the cache that other daemons can read.");
  auto left_out = CounterFamily("pagoda_peer_index_left_out_blocks_total",
                                "Blocks that other daemons cannot read, because the block before "
                                "them was unknown.");
  auto resets = CounterFamily("pagoda_peer_index_resets_total",
                              "Times that the index began again, because the event log had passed "
                              "it.");
  for (const PeerServer::CacheStats& row : rows) {
    const MetricLabels labels = {{"cache", row.name}};
    AddSample(blocks, labels, AsDouble(row.index.blocks));
    AddSample(left_out, labels, AsDouble(row.index.left_out));
    AddSample(resets, labels, AsDouble(row.index.resets));
  }
  Families families;
  for (auto* family : {&blocks, &left_out, &resets}) families.push_back(std::move(*family));
  return families;
}

}  // namespace pagoda::server
