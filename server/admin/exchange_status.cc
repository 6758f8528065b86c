#include "server/admin/exchange_status.h"

#include <cstdint>
#include <string>

#include "pools/store/store.h"
#include "server/admin/declared_status.h"
#include "server/peers/peer_server.h"
#include "server/store/cache_exchange.h"
#include "server/store/publisher.h"
#include "server/store/sources.h"

namespace pagoda::server {
namespace {

void StoreToProto(const StoreStats& stats, v1::StoreStatus* out) {
  SetDeclared(kStoreMetrics, stats, out);
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
  SetDeclared(kExchangeMetrics, cache.exchange->stats(), exchange);
  if (cache.exchange->has_store()) {
    SetDeclared(kPublisherMetrics, cache.exchange->publisher_stats(),
                exchange->mutable_publisher());
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
  v1::PeerServerStatus* const server = out->mutable_peer_server();
  if (parts.sources != nullptr) server->set_address(parts.sources->advertised());
  SetDeclared(kPeerMetrics, parts.peers->stats(), server);
  uint64_t blocks = 0;
  for (const PeerServer::CacheStats& cache : parts.peers->cache_stats()) {
    blocks += cache.index.blocks;
  }
  server->set_index_blocks(blocks);
}

}  // namespace pagoda::server
