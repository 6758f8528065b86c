#include "clients/pagodactl/top/top_json.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "clients/command_line/terminal/format.h"
#include "clients/pagodactl/command/admin_client.h"
#include "clients/pagodactl/events/event_text.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "wire/message_json.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

Json WindowJson(const v1::WindowStatus& window, const TopRates::Window* rates) {
  Json json = {
      {"window", WindowName(WindowFromProto(window.window_size()))},
      {"hit_rate", Share(window.prefix_hit_tokens_total(), window.prefix_lookup_tokens_total())}};
  if (rates == nullptr) return json;
  json["interval_hit_rate"] = nullptr;
  if (rates->hit_rate.has_value()) json["interval_hit_rate"] = *rates->hit_rate;
  json["lookup_tokens_per_second"] = rates->lookup_tokens;
  json["allocated_blocks_per_second"] = rates->allocated_blocks;
  return json;
}

// Null if nothing is known yet.
Json CopiesJson(const std::optional<TopRates>& rates) {
  if (!rates.has_value()) return nullptr;
  Json copies = Json::array();
  for (const TopRates::Direction& direction : rates->directions) {
    copies.push_back({{"source", direction.source},
                      {"target", direction.target},
                      {"copies_per_second", direction.copies},
                      {"bytes_per_second", direction.bytes}});
  }
  return copies;
}

// A message of the daemon, in the form of wire/message_json.h; null if it has none.
Json MessageJson(const google::protobuf::Message& message) {
  return Json::parse(JsonOf(message).value_or("null"));
}

// --- The stream ---

const char* PhaseText(StreamLook::Phase phase) {
  switch (phase) {
    case StreamLook::Phase::kDown:
      return "down";
    case StreamLook::Phase::kSnapshot:
      return "snapshot";
    case StreamLook::Phase::kLive:
      break;
  }
  return "live";
}

Json StreamWindowJson(uint32_t size, const WindowFigures& figures, const v1::CacheInfo& cache,
                      const StreamRates::Window* rates) {
  Json reusable = Json::object(), removed = Json::object(), removed_rates = nullptr;
  for (const auto& [tier, blocks] : figures.reusable) reusable[TierText(tier, cache)] = blocks;
  for (const auto& [reason, blocks] : figures.removed) {
    removed[RemovalReasonText(reason)] = blocks;
    if (rates != nullptr) {
      removed_rates[RemovalReasonText(reason)] = rates->removed.at(reason);
    }
  }
  if (rates != nullptr && removed_rates.is_null()) removed_rates = Json::object();
  const auto rate = [rates](double StreamRates::Window::*member) {
    return rates == nullptr ? Json(nullptr) : Json(rates->*member);
  };
  return {{"window", WindowName(WindowFromProto(size))},
          {"reusable_blocks", reusable},
          {"stored_blocks_total", figures.stored},
          {"stored_blocks_per_second", rate(&StreamRates::Window::stored)},
          {"offloaded_blocks_total", figures.offloaded},
          {"offloaded_blocks_per_second", rate(&StreamRates::Window::offloaded)},
          {"onboarded_blocks_total", figures.onboarded},
          {"onboarded_blocks_per_second", rate(&StreamRates::Window::onboarded)},
          {"reprioritized_blocks_total", figures.reprioritized},
          {"handed_out_blocks_total", figures.handed_out},
          {"removed_blocks_total", removed},
          {"removed_blocks_per_second", removed_rates}};
}

Json EventsJson(const EventFigures& events) {
  return {{"created", events.created},
          {"stored", events.stored},
          {"updated", events.updated},
          {"removed", events.removed}};
}

Json EventRatesJson(const std::optional<StreamRates>& rates) {
  if (!rates.has_value()) return nullptr;
  return {{"created", rates->created_events},
          {"stored", rates->stored_events},
          {"updated", rates->updated_events},
          {"removed", rates->removed_events}};
}

Json RecentJson(const EventSummary& event) {
  return {{"revision", event.revision},
          {"time", absl::FormatTime(absl::RFC3339_full, event.time, absl::UTCTimeZone())},
          {"window", WindowName(WindowFromProto(event.window_size))},
          {"type", event.type},
          {"what", event.detail}};
}

Json StreamJson(const TopSample& sample, const std::optional<StreamRates>& rates) {
  const StreamLook& look = sample.stream;
  const StreamFigures& figures = look.figures;
  Json json = {{"state", PhaseText(look.phase)},
               {"state_seconds", absl::ToDoubleSeconds(look.time - look.phase_since)},
               {"snapshots", figures.snapshots},
               {"interruption", nullptr}};
  if (!look.interruption.ok()) json["interruption"] = std::string(look.interruption.message());
  if (!look.live()) return json;
  json["epoch"] = absl::StrCat(figures.epoch);  // The epoch that the status shows.
  json["revision"] = figures.revision;
  json["snapshot_revision"] = figures.snapshot_revision;
  json["behind_events"] = nullptr;
  if (const auto behind = sample.events_behind()) json["behind_events"] = *behind;
  json["seconds_since_message"] = absl::ToDoubleSeconds(look.time - look.last_message);
  json["events_total"] = EventsJson(figures.events);
  json["events_per_second"] = EventRatesJson(rates);
  json["windows"] = Json::array();
  for (const auto& [size, window] : figures.windows) {
    json["windows"].push_back(
        StreamWindowJson(size, window, sample.status.cache(),
                         rates.has_value() ? &rates->windows.at(size) : nullptr));
  }
  json["recent"] = Json::array();
  for (const EventSummary& event : figures.recent) json["recent"].push_back(RecentJson(event));
  return json;
}

}  // namespace

nlohmann::ordered_json TopJson(const TopState& state) {
  if (!state.error().ok() || !state.sample().has_value()) {
    return {{"endpoint", state.endpoint()}, {"error", std::string(state.error().message())}};
  }
  const v1::GetStatusResponse& status = state.sample()->status;
  const std::optional<TopRates>& rates = state.rates();
  Json windows = Json::array();
  for (int i = 0; i < status.windows_size(); ++i) {
    windows.push_back(
        WindowJson(status.windows(i), rates.has_value() ? &rates->windows[i] : nullptr));
  }
  Json tenants = Json::array();
  for (const v1::TenantInfo& tenant : state.sample()->tenants) {
    tenants.push_back(MessageJson(tenant));
  }
  Json json = {
      {"endpoint", state.endpoint()},
      {"time", absl::FormatTime(absl::RFC3339_full, state.sample()->time, absl::UTCTimeZone())},
      {"status", MessageJson(status)},
      {"tenants", tenants},
      {"events_per_second", nullptr},
      {"windows", windows},
      {"copies", CopiesJson(rates)},
      {"stream", StreamJson(*state.sample(), state.stream_rates())}};
  if (state.stream_rates().has_value()) json["events_per_second"] = state.stream_rates()->events;
  return json;
}

}  // namespace pagoda
