#include "clients/pagodactl/store/exchange_text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "clients/command_line/terminal/format.h"
#include "google/protobuf/repeated_field.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;
using Counts = google::protobuf::RepeatedPtrField<v1::NamedCount>;

// "fetched 12, missing 3".
std::string CountsText(const Counts& counts) {
  if (counts.empty()) return "none";
  return absl::StrJoin(counts, ", ", [](std::string* out, const v1::NamedCount& one) {
    absl::StrAppend(out, absl::StrReplaceAll(one.name(), {{"_", " "}}), " ",
                    FormatCount(one.count()));
  });
}

Json CountsJson(const Counts& counts) {
  Json json = Json::object();
  for (const v1::NamedCount& one : counts) json[one.name()] = one.count();
  return json;
}

std::string SpeedText(double bytes_per_second) {
  if (bytes_per_second <= 0) return "";
  return absl::StrCat(" at ", FormatBytes(static_cast<uint64_t>(bytes_per_second)), "/s");
}

// "up, 6 connections to 3 servers".
std::string ConnectionText(const v1::StoreStatus& store) {
  std::string text = store.up()
                         ? absl::StrCat("up, ", FormatCounted(store.connections(), "connection"),
                                        " to ", FormatCounted(store.nodes(), "server"))
                         : "away";
  if (!store.last_error().empty()) absl::StrAppend(&text, "; last error: ", store.last_error());
  return text;
}

Json ConnectionJson(const v1::StoreStatus& store) {
  return {{"up", store.up()},
          {"nodes", store.nodes()},
          {"connections", store.connections()},
          {"waiting", store.waiting()},
          {"gets_total", CountsJson(store.gets_total())},
          {"puts_total", CountsJson(store.puts_total())},
          {"exists_total", CountsJson(store.exists_total())},
          {"faults_total", CountsJson(store.faults_total())},
          {"read_bytes_total", store.read_bytes_total()},
          {"written_bytes_total", store.written_bytes_total()},
          {"redirections_total", store.redirections_total()},
          {"connects_total", store.connects_total()},
          {"connect_failures_total", store.connect_failures_total()},
          {"disconnects_total", store.disconnects_total()},
          {"last_error", store.last_error()}};
}

std::string PublisherText(const v1::PublisherStatus& publisher) {
  std::string text = absl::StrCat(FormatCount(publisher.published_total()), " of ",
                                  FormatCount(publisher.listed_total()), " listed prefixes, ",
                                  FormatCount(publisher.waiting()), " waiting, ",
                                  FormatCount(publisher.in_flight()), " in flight");
  if (!publisher.dropped_total().empty()) {
    absl::StrAppend(&text, "; given up: ", CountsText(publisher.dropped_total()));
  }
  if (publisher.store_away()) absl::StrAppend(&text, "; waits, because the store is away");
  return text;
}

Json PublisherJson(const v1::PublisherStatus& publisher) {
  return {{"listed_total", publisher.listed_total()},
          {"published_total", publisher.published_total()},
          {"dropped_total", CountsJson(publisher.dropped_total())},
          {"failed_tries_total", publisher.failed_tries_total()},
          {"short_tries_total", publisher.short_tries_total()},
          {"waiting", publisher.waiting()},
          {"in_flight", publisher.in_flight()},
          {"store_away", publisher.store_away()},
          {"queued_blocks", publisher.queued_blocks()},
          {"forgotten_blocks_total", publisher.forgotten_blocks_total()}};
}

}  // namespace

LabelledTexts OtherMachinesTexts(const v1::GetStatusResponse& status) {
  LabelledTexts texts;
  if (status.has_store()) {
    const v1::StoreStatus& store = status.store();
    texts.emplace_back(
        "store", absl::StrCat(absl::StrJoin(store.servers(), ", "), ": ", ConnectionText(store)));
    texts.emplace_back("", absl::StrCat("reads: ", CountsText(store.gets_total()),
                                        "; writes: ", CountsText(store.puts_total())));
    if (!store.faults_total().empty()) {
      texts.emplace_back("", absl::StrCat("invalid values: ", CountsText(store.faults_total())));
    }
  }
  if (status.has_peer_server()) {
    const v1::PeerServerStatus& server = status.peer_server();
    texts.emplace_back("peers", absl::StrCat("other daemons read at ", server.address(), ": ",
                                             FormatCounted(server.connections(), "connection"),
                                             ", ", FormatCount(server.hits_total()), " found, ",
                                             FormatCount(server.misses_total()), " not found, ",
                                             FormatCount(server.refused_gets_total()), " refused, ",
                                             FormatBytes(server.value_bytes_total())));
  }
  for (const v1::PeerSourceStatus& source : status.peer_sources()) {
    texts.emplace_back("source",
                       absl::StrCat(source.address(), ": ", ConnectionText(source.connection()),
                                    "; reads: ", CountsText(source.connection().gets_total()), ", ",
                                    FormatBytes(source.connection().read_bytes_total()),
                                    SpeedText(source.bytes_per_second())));
  }
  return texts;
}

LabelledTexts ExchangeTexts(const v1::GetStatusResponse& status) {
  if (!status.has_exchange()) return {};
  const v1::ExchangeStatus& exchange = status.exchange();
  if (!exchange.unavailable().empty()) {
    return {{"exchange", absl::StrCat("none: ", exchange.unavailable())}};
  }
  LabelledTexts texts;
  texts.emplace_back(
      "fetches",
      absl::StrCat(
          CountsText(exchange.fetches_total()), "; ",
          FormatCounted(exchange.fetched_tokens_total(), "token"), ", ",
          FormatBytes(exchange.fetched_bytes_total()), SpeedText(exchange.fetch_bytes_per_second()),
          exchange.invalid_blocks_total() == 0
              ? ""
              : absl::StrCat("; ",
                             FormatCounted(exchange.invalid_blocks_total(), "invalid value"))));
  if (!exchange.has_publisher()) return texts;
  texts.emplace_back("publishes", absl::StrCat(FormatBlocks(exchange.published_blocks_total()),
                                               ", ", FormatBytes(exchange.published_bytes_total()),
                                               "; ", PublisherText(exchange.publisher())));
  return texts;
}

Json ExchangeJson(const v1::GetStatusResponse& status) {
  if (!status.has_exchange()) return nullptr;
  const v1::ExchangeStatus& exchange = status.exchange();
  return {{"unavailable", exchange.unavailable().empty() ? Json() : Json(exchange.unavailable())},
          {"fetches_total", CountsJson(exchange.fetches_total())},
          {"joined_fetches_total", exchange.joined_fetches_total()},
          {"fetched_blocks_total", exchange.fetched_blocks_total()},
          {"fetched_bytes_total", exchange.fetched_bytes_total()},
          {"fetched_tokens_total", exchange.fetched_tokens_total()},
          {"invalid_blocks_total", exchange.invalid_blocks_total()},
          {"fetch_bytes_per_second", exchange.fetch_bytes_per_second()},
          {"published_blocks_total", exchange.published_blocks_total()},
          {"published_bytes_total", exchange.published_bytes_total()},
          {"skipped_blocks_total", exchange.skipped_blocks_total()},
          {"failed_blocks_total", exchange.failed_blocks_total()},
          {"waiting", exchange.waiting()},
          {"publisher",
           exchange.has_publisher() ? PublisherJson(exchange.publisher()) : Json(nullptr)}};
}

Json StoreJson(const v1::GetStatusResponse& status) {
  if (!status.has_store()) return nullptr;
  Json json = {{"servers", Json::array()}};
  for (const std::string& server : status.store().servers()) json["servers"].push_back(server);
  json.update(ConnectionJson(status.store()));
  return json;
}

Json PeersJson(const v1::GetStatusResponse& status) {
  if (!status.has_peer_server() && status.peer_sources().empty()) return nullptr;
  Json server = nullptr;
  if (status.has_peer_server()) {
    const v1::PeerServerStatus& one = status.peer_server();
    server = {{"address", one.address()},
              {"connections", one.connections()},
              {"accepted_total", one.accepted_total()},
              {"refused_total", one.refused_total()},
              {"failed_total", one.failed_total()},
              {"hits_total", one.hits_total()},
              {"misses_total", one.misses_total()},
              {"refused_gets_total", one.refused_gets_total()},
              {"authentication_failures_total", one.authentication_failures_total()},
              {"value_bytes_total", one.value_bytes_total()},
              {"index_blocks", one.index_blocks()}};
  }
  Json sources = Json::array();
  for (const v1::PeerSourceStatus& one : status.peer_sources()) {
    Json source = {{"address", one.address()}, {"bytes_per_second", one.bytes_per_second()}};
    source.update(ConnectionJson(one.connection()));
    sources.push_back(source);
  }
  return {{"server", server}, {"sources", sources}};
}

}  // namespace pagoda
