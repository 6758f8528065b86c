#include "server/http/status_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace pagoda::server {
namespace {

struct CounterField {
  const char* name;
  uint64_t WindowCounters::*value;
};
constexpr CounterField kCounters[] = {
    {"allocated_blocks", &WindowCounters::allocated_blocks},
    {"freed_blocks", &WindowCounters::freed_blocks},
    {"evicted_blocks", &WindowCounters::evicted_blocks},
    {"displaced_blocks", &WindowCounters::displaced_blocks},
    {"offloaded_blocks", &WindowCounters::offloaded_blocks},
    {"freely_evicted_blocks", &WindowCounters::freely_evicted_blocks},
    {"onboarded_blocks", &WindowCounters::onboarded_blocks},
    {"lost_blocks", &WindowCounters::lost_blocks},
    {"lookup_tokens", &WindowCounters::prefix_lookup_tokens},
    {"hit_tokens", &WindowCounters::prefix_hit_tokens},
    {"secondary_hit_tokens", &WindowCounters::secondary_hit_tokens},
};

// The priorities that occur, ascending.
Json PrioritiesJson(const PriorityCounts& counts) {
  Json priorities = Json::array();
  for (size_t priority = 0; priority < counts.size(); ++priority) {
    if (counts[priority] == 0) continue;
    priorities.push_back({{"priority", priority}, {"blocks", counts[priority]}});
  }
  return priorities;
}

Json TierJson(Tier tier, uint32_t window_index, const WindowStats& window, const CacheInfo& cache,
              const PoolSet& pools) {
  const TierOccupancy& blocks = window.tiers[static_cast<size_t>(tier)];
  const Medium medium = cache.tiers[static_cast<size_t>(tier)].medium;
  const std::string place =
      medium == Medium::kDisk ? std::string(MediumName(medium)) : PlaceName(pools.place(tier));
  const bool in_host_memory =
      medium != Medium::kDisk && pools.place(tier).kind == MemoryKind::kHost;
  return {
      {"tier", cache.TierName(tier)},
      {"memory", place},
      {"pages", in_host_memory ? Json(PagesName(pools.pages(window_index, tier))) : Json()},
      {"capacity_blocks", blocks.capacity},
      {"free_blocks", blocks.free},
      {"cached_blocks", blocks.cached},
      {"duplicate_blocks", blocks.duplicates},
      {"active_blocks", blocks.active},
      {"pinned_blocks", blocks.pinned},
      {"in_flight_blocks", blocks.in_flight},
      {"cached_by_priority", PrioritiesJson(window.cached_by_priority[static_cast<size_t>(tier)])}};
}

Json HitRateCurveJson(const ReuseCounts& counts, uint32_t tokens_per_block) {
  const HitRateCurve curve(&counts);
  Json json = {{"unavailable", nullptr},
               {"observed_seconds", absl::ToDoubleSeconds(counts.observed)},
               {"observed_requests", counts.requests},
               {"points", Json::array()}};
  if (!curve.available()) {
    json["unavailable"] = curve.WhyUnavailable();
    return json;
  }
  json["lookup_tokens_per_hour"] = curve.lookups_per_hour() * tokens_per_block;
  json["known_factor"] = curve.known_factor();
  const double end = curve.GainEnd();
  json["gain_ends_factor"] = end > 0 ? Json(end) : Json();
  for (const double factor : HitRateCurve::kShownFactors) {
    const HitRateCurve::Estimate estimate = curve.At(factor);
    json["points"].push_back(Json{
        {"capacity_factor", factor}, {"hit_rate", estimate.hit_rate}, {"error", estimate.error}});
  }
  return json;
}

Json NamespaceJson(const NamespaceKey& key) {
  Json json = Json::object();
  if (key.lora_id.has_value()) json["lora_id"] = *key.lora_id;
  if (!key.cache_salt.empty()) json["salt"] = key.cache_salt;
  if (!key.tenant.empty()) json["tenant"] = key.tenant;
  if (key.keyed) json["keyed"] = true;
  return json;
}

template <class Change, class Name>
Json ChangeJson(const Change& change, Name name) {
  return {{"from", name(change.old_value)}, {"to", name(change.new_value)}};
}

Json ShownBlocks(absl::Span<const BlockId> blocks) {
  Json ids = Json::array();
  for (const BlockId id : blocks.first(std::min(blocks.size(), kShownBlocks))) {
    ids.push_back(id.value());
  }
  return ids;
}

// Writes the fields of each type of event.
struct EventWriter {
  Json& out;
  const CacheInfo& cache;

  void operator()(const CreatedEvent& event) const {
    out["type"] = "created";
    if (event.blocks.empty()) {
      Json capacity = Json::object();
      for (size_t tier = 0; tier < event.blocks_per_tier.size(); ++tier) {
        if (event.blocks_per_tier[tier] == 0) continue;
        capacity[cache.TierName(static_cast<Tier>(tier))] = event.blocks_per_tier[tier];
      }
      out["capacity_blocks"] = std::move(capacity);
    } else {
      WriteBlocks(event.blocks);
    }
  }
  void operator()(const StoredEvent& event) const {
    out["type"] = "stored";
    std::vector<BlockId> ids;
    for (const StoredBlock& block : event.blocks) ids.push_back(block.id);
    WriteBlocks(ids);
    size_t tokens = event.tokens.size();
    if (event.keyed()) {
      tokens = 0;
      for (const StoredBlock& block : event.blocks) tokens += block.token_count;
    }
    out["tokens"] = tokens;
    if (event.parent != kNoBlock) out["parent_block"] = event.parent.value();
    out["namespace"] = NamespaceJson(*event.name_space);
    if (event.blocks.empty()) return;
    out["tier"] = cache.TierName(event.blocks.front().tier);
    const TierSet lower = event.blocks.front().lower;
    if (!lower.empty()) out["lower_tiers"] = NamesOf(lower);
    out["priority"] = event.blocks.front().priority.value();
    out["last_hash"] = HexOf(event.blocks.back().hash.value());
  }
  void operator()(const UpdatedEvent& event) const {
    out["type"] = "updated";
    WriteBlocks({&event.id, 1});
    if (event.tier.has_value()) {
      out["tier"] = ChangeJson(*event.tier, [this](Tier tier) { return cache.TierName(tier); });
    }
    if (event.lower.has_value()) {
      out["lower_tiers"] = ChangeJson(*event.lower, [this](TierSet set) { return NamesOf(set); });
    }
    if (event.priority.has_value()) {
      out["priority"] = ChangeJson(*event.priority, [](Priority p) { return p.value(); });
    }
    if (event.ended_pin.has_value()) {
      Json& pin = out["ended_pin"];
      pin = {{"pin", event.ended_pin->pin.value()}, {"why", PinEndName(event.ended_pin->why)}};
      if (event.ended_pin->removal.has_value()) {
        pin["removal"] = RemovalReasonName(*event.ended_pin->removal);
      }
    }
  }
  void operator()(const RemovedEvent& event) const {
    out["type"] = "removed";
    out["reason"] = RemovalReasonName(event.reason);
    switch (event.scope) {
      case RemovedEvent::Scope::kBlocks:
        return WriteBlocks(event.blocks);
      case RemovedEvent::Scope::kWindow:
        out["scope"] = "window";
        return;
      case RemovedEvent::Scope::kPools:
        out["scope"] = "pools";
        return;
    }
  }

 private:
  Json NamesOf(TierSet tiers) const {
    Json names = Json::array();
    tiers.ForEach([&](Tier tier) { names.push_back(cache.TierName(tier)); });
    return names;
  }
  void WriteBlocks(absl::Span<const BlockId> blocks) const {
    out["blocks"] = blocks.size();
    out["block_ids"] = ShownBlocks(blocks);
  }
};

}  // namespace

std::string TextOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double SecondsSince1970(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

std::string HexOf(uint64_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }

Json WindowsJson(const ManagerStats& stats, const CacheInfo& cache, const CacheLayout& layout,
                 const PoolSet& pools) {
  Json windows = Json::array();
  for (uint32_t w = 0; w < stats.windows.size(); ++w) {
    const WindowStats& window = stats.windows[w];
    size_t layers = 0;
    for (const PoolLayout& pool : layout.windows()[w].pools) {
      if (pool.content != PoolContent::kScales) layers += pool.layers.size();
    }
    Json tiers = Json::array();
    for (size_t t = 0; t < window.tiers.size(); ++t) {
      if (window.tiers[t].capacity == 0) continue;
      tiers.push_back(TierJson(static_cast<Tier>(t), w, window, cache, pools));
    }
    Json counters = Json::object();
    for (const CounterField& field : kCounters) {
      counters[field.name] = window.counters.*field.value;
    }
    windows.push_back(
        {{"window", WindowName(window.window)},
         {"layers", layers},
         {"block_bytes", layout.windows()[w].block_bytes()},
         {"tiers", std::move(tiers)},
         {"holes", window.holes},
         {"pinned_blocks", window.pinned_blocks},
         {"pin_budget_blocks", window.pin_budget_blocks},
         {"hit_rate_curve", HitRateCurveJson(window.reuse_distances, cache.tokens_per_block)},
         {"totals", std::move(counters)}});
  }
  return windows;
}

Json TiersJson(const CacheInfo& cache) {
  Json tiers = Json::array();
  for (const CacheInfo::TierInfo& tier : cache.tiers) {
    tiers.push_back({{"name", tier.name}, {"medium", MediumName(tier.medium)}});
  }
  return tiers;
}

Json TransfersJson(const TransferStats& stats, const DiskNumbers* disk, const CacheInfo& cache) {
  Json directions = Json::array();
  const size_t in_memory = cache.tiers.size() - (disk == nullptr ? 0 : 1);
  for (size_t source = 0; source < in_memory; ++source) {
    for (size_t target = 0; target < in_memory; ++target) {
      const TransferStats::Direction& direction = stats.directions[source][target];
      directions.push_back({{"from", cache.tiers[source].name},
                            {"to", cache.tiers[target].name},
                            {"copies", direction.copies},
                            {"bytes", direction.bytes},
                            {"busy_seconds", absl::ToDoubleSeconds(direction.busy)}});
    }
  }
  if (disk != nullptr) {
    DiskStats::Direction down, up;
    for (const DiskStats::Window& window : disk->stats.windows) {
      down.blocks += window.written.blocks;
      down.bytes += window.written.bytes;
      up.blocks += window.read.blocks;
      up.bytes += window.read.bytes;
    }
    const std::string& above = cache.tiers[in_memory - 1].name;
    directions.push_back(
        {{"from", above}, {"to", disk->tier}, {"copies", down.blocks}, {"bytes", down.bytes}});
    directions.push_back(
        {{"from", disk->tier}, {"to", above}, {"copies", up.blocks}, {"bytes", up.bytes}});
  }
  return {{"directions", std::move(directions)},
          {"failed", stats.failed},
          {"running", stats.running},
          {"queued", stats.queued}};
}

Json DiskJson(const ManagerStats& stats, const DiskNumbers* disk, DiskDetail detail) {
  if (disk == nullptr) return nullptr;
  const bool for_operators = detail == DiskDetail::kForOperators;
  Json windows = Json::array();
  for (size_t w = 0; w < disk->stats.windows.size(); ++w) {
    const DiskStats::Window& window = disk->stats.windows[w];
    if (window.file.engine.empty()) continue;  // The window has no file.
    Json errors = Json::object();
    for (size_t i = 0; i < kNumDiskErrors; ++i) {
      if (window.errors[i] == 0) continue;
      errors[std::string(DiskErrorName(static_cast<DiskError>(i)))] = window.errors[i];
    }
    const DiskTierStats& core = stats.windows[w].disk;
    Json json = {{"window", WindowName(stats.windows[w].window)},
                 {"engine", window.file.engine},
                 {"direct", window.file.direct},
                 {"mode", std::string(SlabModeName(window.file.mode))},
                 {"held_slots", window.held_slots},
                 {"stale_slots", window.stale_slots},
                 {"quarantined_slots", window.file.quarantined_slots},
                 {"damaged_slots", disk->damaged_slots[w]},
                 {"waiting_backups", core.waiting_backups},
                 {"queued_backups", window.queued_backups},
                 {"queued_fetches", window.queued_fetches},
                 {"running_orders", window.running},
                 {"totals",
                  {{"written_blocks", window.written.blocks},
                   {"written_bytes", window.written.bytes},
                   {"read_blocks", window.read.blocks},
                   {"read_bytes", window.read.bytes},
                   {"passed_over_blocks", core.passed_over},
                   {"late_fetches", core.late_fetches},
                   {"failed_backups", core.failed_backups},
                   {"failed_fetches", core.failed_fetches},
                   {"erased_blocks", core.erased_blocks},
                   {"failed_erases", core.failed_erases}}},
                 {"errors", std::move(errors)}};
    if (for_operators) json["mode_reason"] = window.file.mode_reason;
    windows.push_back(std::move(json));
  }
  Json json = {{"tier", disk->tier},
               {"write_bytes_per_second", disk->write_bytes_per_second},
               {"windows", std::move(windows)}};
  if (for_operators) json["path"] = disk->path;
  return json;
}

Json HistoryJson(absl::Span<const StatusSample> samples, const CacheInfo& cache) {
  Json history = Json::object();
  history["interval_seconds"] = absl::ToDoubleSeconds(StatusHistory::kInterval);
  Json& times = history["times"] = Json::array();
  for (const StatusSample& sample : samples) times.push_back(SecondsSince1970(sample.time));
  const std::pair<const char*, uint64_t StatusSample::*> columns[] = {
      {"lookup_tokens", &StatusSample::lookup_tokens},
      {"hit_tokens", &StatusSample::hit_tokens},
      {"secondary_hit_tokens", &StatusSample::secondary_hit_tokens},
      {"allocated_blocks", &StatusSample::allocated_blocks},
      {"evicted_blocks", &StatusSample::evicted_blocks},
      {"offloaded_blocks", &StatusSample::offloaded_blocks},
      {"onboarded_blocks", &StatusSample::onboarded_blocks},
      {"copied_bytes", &StatusSample::copied_bytes},
      {"events", &StatusSample::events},
  };
  for (const auto& [name, field] : columns) {
    Json& column = history[name] = Json::array();
    for (const StatusSample& sample : samples) column.push_back(sample.*field);
  }
  const auto used = [&](size_t tier) {
    Json column = Json::array();
    for (const StatusSample& sample : samples) column.push_back(sample.used[tier]);
    return column;
  };
  history["used_primary_blocks"] = used(0);
  history["used_secondary_blocks"] = used(1);
  Json& by_tier = history["used_blocks"] = Json::object();
  for (size_t t = 0; t < cache.tiers.size(); ++t) by_tier[cache.tiers[t].name] = used(t);
  return history;
}

Json CellsJson(absl::Span<const SlotState> slots, uint32_t max_cells) {
  constexpr size_t kStates = 5;
  static_assert(static_cast<size_t>(SlotState::kSpare) == kStates);
  // A spare slot is in no cell. It can be any slot.
  const auto spares = std::count(slots.begin(), slots.end(), SlotState::kSpare);
  const size_t count = slots.size() - static_cast<size_t>(spares);
  const size_t per_cell = std::max<size_t>(1, (count + max_cells - 1) / max_cells);
  Json cells = Json::array();
  std::array<uint32_t, kStates> cell = {};
  size_t in_cell = 0;
  const auto finish = [&] {
    cells.push_back(std::exchange(cell, {}));
    in_cell = 0;
  };
  for (const SlotState state : slots) {
    if (state == SlotState::kSpare) continue;
    ++cell[static_cast<size_t>(state)];
    if (++in_cell == per_cell) finish();
  }
  if (in_cell != 0) finish();
  return {{"blocks_per_cell", per_cell}, {"cells", std::move(cells)}};
}

Json GpuReportJson(const v1::GpuSelfTest* report) {
  if (report == nullptr) return nullptr;
  Json kernels = Json::array();
  for (const v1::GpuSelfTest::Kernel& kernel : report->kernels()) {
    const bool timed = kernel.seconds() > 0 && std::isfinite(kernel.seconds());
    kernels.push_back({{"part", kernel.part()},
                       {"family", kernel.family()},
                       {"outcome", kernel.outcome()},
                       {"needed", kernel.needed()},
                       // Infinity becomes null, because JSON has no infinity.
                       {"error", kernel.error()},
                       {"tolerance", kernel.tolerance()},
                       {"seconds", timed ? Json(kernel.seconds()) : Json(nullptr)},
                       {"why", kernel.why()}});
  }
  return {{"device", report->device()},
          {"passed", !report->has_problem()},
          {"kernels", std::move(kernels)}};
}

Json SessionJson(const SessionRow& row, const TenantOptions& tenant) {
  Json json = {{"session", row.session.value()},
               {"client", row.client_name},
               {"tenant", tenant.name},
               {"opened", SecondsSince1970(row.opened)},
               {"lease_seconds", nullptr},
               {"lease_left_seconds", nullptr},
               {"streams", row.streams},
               {"sequences", row.sequences},
               {"raw_blocks", row.raw_blocks},
               {"deferred_blocks", row.deferred_blocks},
               {"step", row.step},
               {"completed_step", row.completed_step}};
  if (row.lease == absl::InfiniteDuration()) return json;
  json["lease_seconds"] = absl::ToDoubleSeconds(row.lease);
  if (row.lease_left.has_value()) {
    json["lease_left_seconds"] = absl::ToDoubleSeconds(*row.lease_left);
  }
  return json;
}

Json TenantJson(const TenantUsage& usage, const TenantOptions& tenant, const CacheInfo& cache) {
  Json uses = Json::array();
  for (const TenantUsage::Use& use : usage.uses) {
    uses.push_back({{"window", WindowName(use.window)},
                    {"tier", cache.TierName(use.tier)},
                    {"used_blocks", use.used_blocks},
                    {"cached_blocks", use.cached_blocks},
                    {"quota_blocks", nullptr}});
    if (use.quota_blocks != kNoQuota) uses.back()["quota_blocks"] = use.quota_blocks;
  }
  return {{"tenant", tenant.name},
          {"shares", tenant.shares},
          {"share", tenant.share},
          {"sessions", usage.sessions},
          {"sequences", usage.sequences},
          {"max_sequences", usage.max_sequences},
          {"sequence_bytes", usage.sequence_bytes},
          {"max_sequence_bytes", usage.max_sequence_bytes},
          {"use", std::move(uses)}};
}

Json PrefixJson(const PrefixUse& use, const TenantOptions& tenant, const CacheInfo& cache) {
  Json json = {{"hash", HexOf(use.hash.value())},
               {"tokens", use.tokens},
               {"first_tokens", use.first_tokens},
               {"tenant", tenant.name},
               {"namespace", NamespaceJson(use.name_space)},
               {"hits", use.hits},
               {"saved_tokens", use.saved_tokens},
               {"tier", cache.TierName(use.tier)},
               {"priority", use.priority.value()},
               {"holders", use.holders},
               {"pinned", use.pinned}};
  if (!use.first_key.empty()) json["first_key"] = absl::BytesToHexString(use.first_key);
  return json;
}

const char* KindName(SubscriberRow::Kind kind) {
  switch (kind) {
    case SubscriberRow::Kind::kSmg:
      return "smg";
    case SubscriberRow::Kind::kZmq:
      return "zmq";
    default:
      return "watch";
  }
}

Json SubscriberJson(const SubscriberRow& row, const TenantTable& tenants, Revision last,
                    absl::Time now) {
  // The stream can be ahead of `last`, which was read earlier.
  const uint64_t lag = last.value() - std::min(last.value(), row.sent.value());
  return {{"kind", KindName(row.kind)},
          {"role", row.caller.is_operator()        ? "operator"
                   : row.caller.may_name_tenants() ? "engine"
                                                   : "tenant"},
          {"tenant", tenants[row.caller.tenant].name},
          {"open_seconds", absl::ToDoubleSeconds(now - row.opened)},
          {"sent_revision", row.sent.value()},
          {"lag_events", lag},
          {"snapshot", row.snapshot},
          {"filtered", row.filtered},
          {"writing", row.writing}};
}

Json EventJson(const Event& event, const TenantTable& tenants, const CacheInfo& cache) {
  Json json = {{"revision", event.revision.value()},
               {"time", SecondsSince1970(event.time)},
               {"type", ""},
               {"window", WindowName(event.window)},
               {"tenant", tenants[event.tenant].name}};
  std::visit(EventWriter{json, cache}, event.what);
  return json;
}

}  // namespace pagoda::server
