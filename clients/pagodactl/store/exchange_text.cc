#include "clients/pagodactl/store/exchange_text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "clients/command_line/terminal/format.h"
#include "clients/pagodactl/command/further_counts.h"
#include "google/protobuf/repeated_field.h"

namespace pagoda {
namespace {

using Counts = google::protobuf::RepeatedPtrField<v1::NamedCount>;

// "fetched 12, missing 3".
std::string CountsText(const Counts& counts) {
  if (counts.empty()) return "none";
  return absl::StrJoin(counts, ", ", [](std::string* out, const v1::NamedCount& one) {
    absl::StrAppend(out, absl::StrReplaceAll(one.name(), {{"_", " "}}), " ",
                    FormatCount(one.count()));
  });
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

// A row of the counters that these texts do not show.
void AddFurther(const google::protobuf::Message& message, int last_known, LabelledTexts& texts) {
  const std::string further = FurtherCounts(message, last_known);
  if (!further.empty()) texts.emplace_back("", absl::StrCat("further: ", further));
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
    AddFurther(store, v1::StoreStatus::kLastErrorFieldNumber, texts);
  }
  if (status.has_peer_server()) {
    const v1::PeerServerStatus& server = status.peer_server();
    texts.emplace_back("peers", absl::StrCat("other daemons read at ", server.address(), ": ",
                                             FormatCounted(server.connections(), "connection"),
                                             ", ", FormatCount(server.hits_total()), " found, ",
                                             FormatCount(server.misses_total()), " not found, ",
                                             FormatCount(server.refused_gets_total()), " refused, ",
                                             FormatBytes(server.value_bytes_total())));
    AddFurther(server, v1::PeerServerStatus::kIndexBlocksFieldNumber, texts);
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
  AddFurther(exchange, v1::ExchangeStatus::kPublisherFieldNumber, texts);
  if (!exchange.has_publisher()) return texts;
  texts.emplace_back("publishes", absl::StrCat(FormatBlocks(exchange.published_blocks_total()),
                                               ", ", FormatBytes(exchange.published_bytes_total()),
                                               "; ", PublisherText(exchange.publisher())));
  AddFurther(exchange.publisher(), v1::PublisherStatus::kForgottenBlocksTotalFieldNumber, texts);
  return texts;
}

}  // namespace pagoda
