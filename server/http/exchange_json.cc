#include "server/http/exchange_json.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "manager/words/fetch_outcome.h"
#include "pools/store/store.h"
#include "server/peers/peer_server.h"
#include "server/store/cache_exchange.h"
#include "server/store/publisher.h"
#include "server/store/sources.h"

namespace pagoda::server {
namespace {

// The kinds that occurred, with their numbers.
template <class Kind, size_t kKinds>
Json CountsJson(const std::array<uint64_t, kKinds>& counts, const char* (*name)(Kind)) {
  Json json = Json::object();
  for (size_t i = 0; i < kKinds; ++i) {
    if (counts[i] != 0) json[name(static_cast<Kind>(i))] = counts[i];
  }
  return json;
}

Json PublisherJson(const PublisherStats& stats) {
  return {{"waiting", stats.waiting},
          {"in_flight", stats.in_flight},
          {"store_away", stats.is_store_away},
          {"queued_blocks", stats.queued_blocks},
          {"totals",
           {{"listed", stats.listed},
            {"published", stats.published},
            {"dropped", CountsJson(stats.dropped, PublishDropName)},
            {"failed_tries", stats.failed_tries},
            {"short_tries", stats.short_tries},
            {"forgotten_blocks", stats.forgotten_blocks}}}};
}

Json ConnectionJson(const StoreStats& stats, MachineDetail detail) {
  Json json = {{"up", stats.connected > 0},
               {"nodes", stats.nodes},
               {"connections", stats.connected},
               {"waiting", stats.waiting},
               {"totals",
                {{"gets", CountsJson(stats.gets, StoreOutcomeName)},
                 {"puts", CountsJson(stats.puts, StoreOutcomeName)},
                 {"exists", CountsJson(stats.exists, StoreOutcomeName)},
                 {"faults", CountsJson(stats.faults, ValueFaultName)},
                 {"read_bytes", stats.bytes_read},
                 {"written_bytes", stats.bytes_written},
                 {"redirections", stats.redirections},
                 {"connects", stats.connects},
                 {"connect_failures", stats.connect_failures},
                 {"disconnects", stats.disconnects}}}};
  if (detail == MachineDetail::kForOperators) json["last_error"] = stats.last_error;
  return json;
}

Json PeerServerJson(const PeerServer* server) {
  if (server == nullptr) return nullptr;
  const PeerStats stats = server->stats();
  uint64_t blocks = 0;
  for (const PeerServer::CacheStats& cache : server->cache_stats()) blocks += cache.index.blocks;
  return {{"connections", stats.connections},
          {"index_blocks", blocks},
          {"totals",
           {{"accepted", stats.accepted},
            {"refused", stats.refused},
            {"failed", stats.failed},
            {"hits", stats.hits},
            {"misses", stats.misses},
            {"refused_gets", stats.refused_gets},
            {"authentication_failures", stats.authentication_failures},
            {"value_bytes", stats.value_bytes_sent}}}};
}

}  // namespace

Json ExchangeJson(const DaemonParts& parts, const CacheParts& cache) {
  if (parts.sources == nullptr || !parts.sources->any()) return nullptr;
  const ExchangeStats stats = cache.exchange->stats();
  const absl::Status& unavailable = cache.exchange->unavailable();
  return {
      {"unavailable", unavailable.ok() ? Json() : Json(std::string(unavailable.message()))},
      {"waiting", stats.waiting},
      {"fetch_bytes_per_second", stats.bytes_per_second},
      {"totals",
       {{"fetches", CountsJson(stats.fetches, FetchOutcomeName)},
        {"joined_fetches", stats.joined_fetches},
        {"fetched_blocks", stats.fetched_blocks},
        {"fetched_bytes", stats.fetched_bytes},
        {"fetched_tokens", stats.fetched_tokens},
        {"invalid_blocks", stats.invalid_blocks},
        {"published_blocks", stats.published_blocks},
        {"published_bytes", stats.published_bytes},
        {"skipped_blocks", stats.skipped_blocks},
        {"failed_blocks", stats.failed_blocks}}},
      {"publisher", cache.exchange->has_store() ? PublisherJson(cache.exchange->publisher_stats())
                                                : Json(nullptr)}};
}

Json StoreJson(const DaemonParts& parts, MachineDetail detail) {
  if (parts.sources == nullptr || parts.sources->store() == nullptr) return nullptr;
  Json json = ConnectionJson(parts.sources->store()->stats(), detail);
  if (detail == MachineDetail::kForOperators) json["servers"] = parts.store_servers;
  return json;
}

Json PeersJson(const DaemonParts& parts, MachineDetail detail) {
  if (parts.sources == nullptr) return nullptr;
  Json sources = Json::array();
  for (const Sources::PeerRow& row : parts.sources->Peers()) {
    Json source = ConnectionJson(row.stats, detail);
    source["bytes_per_second"] = row.bytes_per_second;
    if (detail == MachineDetail::kForOperators) source["address"] = row.address;
    sources.push_back(std::move(source));
  }
  if (parts.peers == nullptr && sources.empty()) return nullptr;
  return {{"server", PeerServerJson(parts.peers)}, {"sources", std::move(sources)}};
}

}  // namespace pagoda::server
