#include "server/admin/exchange_status.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "google/protobuf/repeated_field.h"
#include "manager/words/fetch_outcome.h"
#include "pools/store/store.h"
#include "server/peers/peer_server.h"
#include "server/store/cache_exchange.h"
#include "server/store/publisher.h"
#include "server/store/sources.h"

namespace pagoda::server {
namespace {

template <class Kind, size_t kKinds>
void CountsToProto(const std::array<uint64_t, kKinds>& counts, const char* (*name)(Kind),
                   google::protobuf::RepeatedPtrField<v1::NamedCount>* out) {
  for (size_t i = 0; i < kKinds; ++i) {
    if (counts[i] == 0) continue;
    v1::NamedCount* const count = out->Add();
    count->set_name(name(static_cast<Kind>(i)));
    count->set_count(counts[i]);
  }
}

void PublisherToProto(const PublisherStats& stats, v1::PublisherStatus* out) {
  out->set_listed_total(stats.listed);
  out->set_published_total(stats.published);
  CountsToProto(stats.dropped, PublishDropName, out->mutable_dropped_total());
  out->set_failed_tries_total(stats.failed_tries);
  out->set_short_tries_total(stats.short_tries);
  out->set_waiting(stats.waiting);
  out->set_in_flight(stats.in_flight);
  out->set_store_away(stats.is_store_away);
  out->set_queued_blocks(stats.queued_blocks);
  out->set_forgotten_blocks_total(stats.forgotten_blocks);
}

void StoreToProto(const StoreStats& stats, v1::StoreStatus* out) {
  out->set_up(stats.connected > 0);
  out->set_nodes(stats.nodes);
  out->set_connections(stats.connected);
  out->set_waiting(stats.waiting);
  CountsToProto(stats.gets, StoreOutcomeName, out->mutable_gets_total());
  CountsToProto(stats.puts, StoreOutcomeName, out->mutable_puts_total());
  CountsToProto(stats.exists, StoreOutcomeName, out->mutable_exists_total());
  CountsToProto(stats.faults, ValueFaultName, out->mutable_faults_total());
  out->set_read_bytes_total(stats.bytes_read);
  out->set_written_bytes_total(stats.bytes_written);
  out->set_redirections_total(stats.redirections);
  out->set_connects_total(stats.connects);
  out->set_connect_failures_total(stats.connect_failures);
  out->set_disconnects_total(stats.disconnects);
  out->set_last_error(stats.last_error);
}

}  // namespace

bool Exchanges(const DaemonParts& parts) {
  return parts.sources != nullptr && parts.sources->any();
}

void ExchangeToStatus(const DaemonParts& parts, const CacheParts& cache,
                      v1::GetStatusResponse* out) {
  if (!Exchanges(parts)) return;
  v1::ExchangeStatus* const exchange = out->mutable_exchange();
  exchange->set_unavailable(std::string(cache.exchange->unavailable().message()));
  const ExchangeStats stats = cache.exchange->stats();
  CountsToProto(stats.fetches, FetchOutcomeName, exchange->mutable_fetches_total());
  exchange->set_joined_fetches_total(stats.joined_fetches);
  exchange->set_fetched_blocks_total(stats.fetched_blocks);
  exchange->set_fetched_bytes_total(stats.fetched_bytes);
  exchange->set_fetched_tokens_total(stats.fetched_tokens);
  exchange->set_invalid_blocks_total(stats.invalid_blocks);
  exchange->set_fetch_bytes_per_second(stats.bytes_per_second);
  exchange->set_published_blocks_total(stats.published_blocks);
  exchange->set_published_bytes_total(stats.published_bytes);
  exchange->set_skipped_blocks_total(stats.skipped_blocks);
  exchange->set_failed_blocks_total(stats.failed_blocks);
  exchange->set_waiting(stats.waiting);
  if (cache.exchange->has_store()) {
    PublisherToProto(cache.exchange->publisher_stats(), exchange->mutable_publisher());
  }
}

void OtherMachinesToStatus(const DaemonParts& parts, v1::GetStatusResponse* out) {
  if (parts.sources != nullptr) {
    if (const Store* const store = parts.sources->store(); store != nullptr) {
      StoreToProto(store->stats(), out->mutable_store());
      for (const std::string& server : parts.store_servers) {
        out->mutable_store()->add_servers(server);
      }
    }
    for (const Sources::PeerRow& row : parts.sources->Peers()) {
      v1::PeerSourceStatus* const source = out->add_peer_sources();
      source->set_address(row.address);
      source->set_bytes_per_second(row.bytes_per_second);
      StoreToProto(row.stats, source->mutable_connection());
    }
  }
  if (parts.peers == nullptr) return;
  const PeerStats stats = parts.peers->stats();
  v1::PeerServerStatus* const server = out->mutable_peer_server();
  if (parts.sources != nullptr) server->set_address(parts.sources->advertised());
  server->set_connections(stats.connections);
  server->set_accepted_total(stats.accepted);
  server->set_refused_total(stats.refused);
  server->set_failed_total(stats.failed);
  server->set_hits_total(stats.hits);
  server->set_misses_total(stats.misses);
  server->set_refused_gets_total(stats.refused_gets);
  server->set_authentication_failures_total(stats.authentication_failures);
  server->set_value_bytes_total(stats.value_bytes_sent);
  uint64_t blocks = 0;
  for (const PeerServer::CacheStats& cache : parts.peers->cache_stats()) {
    blocks += cache.index.blocks;
  }
  server->set_index_blocks(blocks);
}

}  // namespace pagoda::server
