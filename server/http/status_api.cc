#include "server/http/status_api.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/accounts/tenants.h"
#include "server/bridges/bridges.h"
#include "server/cache/cache_opener.h"
#include "server/cache/disk_tier.h"
#include "server/cache/status_history.h"
#include "server/callers/admission.h"
#include "server/directory/cache_directory.h"
#include "server/engine/engine_child.h"
#include "server/http/exchange_json.h"
#include "server/http/status_json.h"
#include "server/watch/event_service.h"

namespace pagoda::server {
namespace {

// The most cells of a tier's map: about ten rows on the page.
constexpr uint32_t kMapCells = 1024;
constexpr size_t kTopPrefixes = 20;
constexpr uint64_t kDefaultSessions = 100;
constexpr uint64_t kMaxSessions = 1000;
constexpr uint64_t kDefaultEvents = 50;
constexpr uint64_t kMaxEvents = 500;
// The events that one read of the log takes.
constexpr size_t kEventsPerRead = 1024;

constexpr char kJsonType[] = "application/json";

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kFailedPrecondition:
      return ReasonOf(status) == Reason::kCacheNotNamed ? 400 : 421;
    case absl::StatusCode::kNotFound:
      return 404;
    default:
      return 503;
  }
}

HttpResponse Refuse(const absl::Status& status) {
  const Reason reason = ReasonOf(status);
  const std::string name = reason == Reason::kNone ? absl::StatusCodeToString(status.code())
                                                   : std::string(ReasonName(reason));
  HttpResponse response{
      .status = HttpStatusOf(status),
      .content_type = kJsonType,
      .body = TextOf({{"error", {{"reason", name}, {"message", std::string(status.message())}}}}),
      .headers = {}};
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

const char* PhaseName(ServingState::Phase phase) {
  switch (phase) {
    case ServingState::Phase::kStarting:
    case ServingState::Phase::kEngineLoads:
      return "starting";
    case ServingState::Phase::kServing:
      return "serving";
    case ServingState::Phase::kEngineDrains:
    case ServingState::Phase::kDraining:
      return "draining";
  }
  return "";
}

// Strangers see this page, and a problem can name files.
Json EngineJson(const v1::EngineStatus& status, bool for_operators) {
  return {{"model", status.model()},
          {"architecture", status.architecture()},
          {"up", status.up()},
          {"restarts", status.restarts()},
          {"problem", for_operators ? Json(status.problem()) : Json(nullptr)},
          {"http_address", for_operators ? Json(status.addresses().http()) : Json(nullptr)},
          {"running_requests", status.running_requests()},
          {"waiting_requests", status.waiting_requests()},
          {"prompt_tokens", status.prompt_tokens()},
          {"reused_tokens", status.reused_tokens()},
          {"computed_tokens", status.computed_tokens()},
          {"generated_tokens", status.generated_tokens()}};
}

std::optional<DiskNumbers> DiskOf(const CacheParts& cache) {
  return cache.disk == nullptr ? std::nullopt : std::optional(cache.disk->numbers());
}

std::string TransfersText(const CacheParts& cache) {
  const std::optional<DiskNumbers> disk = DiskOf(cache);
  return TextOf(TransfersJson(cache.transfers->stats(), disk.has_value() ? &*disk : nullptr,
                              cache.manager->info()));
}

std::string BlocksText(const CacheParts& parts) {
  Json windows = Json::array();
  const CacheInfo& cache = parts.manager->info();
  const std::vector<CacheInfo::Window>& infos = cache.windows;
  for (uint32_t w = 0; w < infos.size(); ++w) {
    Json tiers = Json::array();
    for (size_t t = 0; t < cache.tiers.size(); ++t) {
      const auto tier = static_cast<Tier>(t);
      const std::vector<SlotState> states = parts.manager->SlotStates(w, tier);
      if (states.empty()) continue;
      Json map = CellsJson(states, kMapCells);
      map["tier"] = cache.TierName(tier);
      tiers.push_back(std::move(map));
    }
    windows.push_back({{"window", WindowName(infos[w].window)}, {"tiers", std::move(tiers)}});
  }
  return TextOf({{"states", {"free", "cached", "active", "pinned", "in_flight"}},
                 {"windows", std::move(windows)}});
}

std::string TenantsText(const CacheParts& cache) {
  Json tenants = Json::array();
  const SharedManager& manager = *cache.manager;
  for (const TenantUsage& usage : manager.TenantUses()) {
    tenants.push_back(TenantJson(usage, manager.tenants()[usage.tenant], manager.info()));
  }
  return TextOf({{"tenants", std::move(tenants)}});
}

std::string PrefixesText(const CacheParts& cache) {
  Json prefixes = Json::array();
  const SharedManager& manager = *cache.manager;
  for (const PrefixUse& use : manager.TopPrefixes(kTopPrefixes)) {
    prefixes.push_back(PrefixJson(use, manager.tenants()[use.tenant], manager.info()));
  }
  return TextOf({{"window", WindowName(manager.info().windows.back().window)},
                 {"prefixes", std::move(prefixes)}});
}

}  // namespace

StatusApi::StatusApi(const DaemonParts& parts, const HttpFence* fence)
    : parts_(parts), fence_(fence), blocks_(BlocksText), prefixes_(PrefixesText) {}

void StatusApi::AddRoutes(HttpServer::Routes* routes) {
  const auto add = [&](const char* name, Audience audience, Answerer answerer) {
    (*routes)[absl::StrCat("/api/v1/", name)] =
        [this, audience, answerer = std::move(answerer)](const HttpRequest& request) {
          return Answer(request, audience, answerer);
        };
  };
  (*routes)["/api/v1/caches"] = [this](const HttpRequest& request) -> HttpResponse {
    if (absl::Status status = fence_->CheckSite(request); !status.ok()) return Refuse(status);
    return {.content_type = kJsonType, .body = Caches(request), .headers = {}};
  };
  add("status", Audience::kEverybody,
      [this](const HttpRequest& r, const CacheParts& c) { return Status(r, c); });
  add("history", Audience::kEverybody, [](const HttpRequest&, const CacheParts& c) {
    return TextOf(HistoryJson(c.history->Samples(), c.manager->info()));
  });
  add("transfers", Audience::kEverybody,
      [](const HttpRequest&, const CacheParts& c) { return TransfersText(c); });
  add("blocks", Audience::kEverybody,
      [this](const HttpRequest&, const CacheParts& c) { return blocks_.Get(c); });
  add("sessions", Audience::kOperators,
      [this](const HttpRequest& r, const CacheParts& c) { return Sessions(r, c); });
  add("tenants", Audience::kOperators,
      [](const HttpRequest&, const CacheParts& c) { return TenantsText(c); });
  add("prefixes", Audience::kOperators,
      [this](const HttpRequest&, const CacheParts& c) { return prefixes_.Get(c); });
  add("events", Audience::kOperators,
      [this](const HttpRequest& r, const CacheParts& c) { return Events(r, c); });
  add("subscribers", Audience::kOperators,
      [this](const HttpRequest&, const CacheParts& c) { return Subscribers(c); });
}

std::string StatusApi::Scan::Get(const CacheParts& cache) {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = SharedManager::Now();
  // Cache numbers are not reused, so answers about dropped caches would stay.
  constexpr size_t kMostMade = 64;
  if (made_.size() > kMostMade) made_.clear();
  Made& made = made_[cache.number];
  if (now - made.time >= kScanInterval) {
    made.text = make_(cache);
    made.time = SharedManager::Now();
  }
  return made.text;
}

Identity StatusApi::CallerOf(const HttpRequest& request) const {
  const absl::StatusOr<Identity> caller = fence_->Identify(request);
  return caller.ok() ? *caller : Identity{.role = Role::kTenant, .tenant = kDefaultTenant};
}

std::string StatusApi::Caches(const HttpRequest& request) const {
  Json caches = Json::array();
  for (const CachePtr& cache : parts_.caches->VisibleTo(CallerOf(request))) {
    const ManagerStats stats = cache->manager->Stats();
    Json tiers = Json::array();
    const CacheInfo& info = cache->manager->info();
    for (size_t t = 0; t < info.tiers.size() && t < cache->tier_bytes.size(); ++t) {
      tiers.push_back({{"name", info.tiers[t].name},
                       {"medium", std::string(MediumName(info.tiers[t].medium))},
                       {"bytes", cache->tier_bytes[t].bytes}});
    }
    caches.push_back({{"name", cache->name},
                      {"model", info.model_fingerprint},
                      {"configured", IsConfigured(*cache)},
                      {"tenant", parts_.admission->tenants()[cache->tenant].name},
                      {"sessions", stats.sessions},
                      {"tiers", std::move(tiers)}});
  }
  return TextOf({{"version", PAGODA_VERSION},
                 {"state", PhaseName(parts_.state->phase())},
                 {"caches", std::move(caches)}});
}

absl::Status StatusApi::CheckOperator(const HttpRequest& request) const {
  const absl::StatusOr<Identity> caller = fence_->Identify(request);
  if (!caller.ok()) return caller.status();
  if (caller->is_operator()) return absl::OkStatus();
  return MakeError(Reason::kPermissionDenied, "only operators may read this");
}

HttpResponse StatusApi::Answer(const HttpRequest& request, Audience audience,
                               const Answerer& answerer) const {
  if (absl::Status status = fence_->CheckSite(request); !status.ok()) return Refuse(status);
  if (audience == Audience::kOperators) {
    if (absl::Status status = CheckOperator(request); !status.ok()) return Refuse(status);
  }
  const absl::StatusOr<CachePtr> cache =
      parts_.caches->Named(QueryText(request, "cache"), CallerOf(request));
  if (!cache.ok()) return Refuse(cache.status());
  absl::StatusOr<std::string> text = answerer(request, **cache);
  if (!text.ok()) return Refuse(text.status());
  return {.content_type = kJsonType, .body = *std::move(text), .headers = {}};
}

std::string StatusApi::Status(const HttpRequest& request, const CacheParts& cache) const {
  const SharedManager& manager = *cache.manager;
  const ManagerStats stats = manager.Stats();
  const std::optional<DiskNumbers> disk = DiskOf(cache);
  const absl::Time now = SharedManager::Now();
  const absl::Status access = CheckOperator(request);
  const MachineDetail machines =
      access.ok() ? MachineDetail::kForOperators : MachineDetail::kForAll;
  return TextOf(
      {{"version", PAGODA_VERSION},
       {"state", PhaseName(parts_.state->phase())},
       {"epoch", HexOf(manager.epoch().value())},
       {"time", SecondsSince1970(now)},
       {"start_time", SecondsSince1970(parts_.start_time)},
       {"uptime_seconds", absl::ToDoubleSeconds(now - parts_.start_time)},
       {"cache",
        {{"name", manager.info().name},
         {"model", manager.info().model_fingerprint},
         {"tokens_per_block", manager.info().tokens_per_block},
         {"tiers", TiersJson(manager.info())},
         {"layers", cache.layout->spec().layers.size()}}},
       {"windows", WindowsJson(stats, manager.info(), *cache.layout, *cache.pools)},
       {"disk", DiskJson(stats, disk.has_value() ? &*disk : nullptr,
                         access.ok() ? DiskDetail::kForOperators : DiskDetail::kForAll)},
       {"exchange", ExchangeJson(parts_, cache)},
       {"store", StoreJson(parts_, machines)},
       {"peers", PeersJson(parts_, machines)},
       {"sessions", stats.sessions},
       {"sequences", stats.sequences},
       {"pins", stats.pins},
       {"quarantines", stats.quarantines},
       {"quarantined_blocks", stats.quarantined_blocks},
       {"recovered_blocks", stats.recovered_blocks},
       {"subscribers", parts_.Subscribers(cache)},
       {"revision", manager.log().last().value()},
       {"oldest_revision", manager.log().oldest().value()},
       {"engine",
        parts_.HasEngine(cache) ? EngineJson(parts_.engine->Status(), access.ok()) : Json(nullptr)},
       {"gpu_self_test", GpuReportJson(IsConfigured(cache) ? parts_.gpu_report : nullptr)},
       {"access", access.ok()                       ? "operator"
                  : absl::IsUnauthenticated(access) ? "token"
                                                    : "refused"}});
}

absl::StatusOr<std::string> StatusApi::Sessions(const HttpRequest& request,
                                                const CacheParts& cache) const {
  const absl::StatusOr<uint64_t> limit = QueryNumber(request, "limit", kDefaultSessions);
  if (!limit.ok()) return limit.status();
  const absl::StatusOr<uint64_t> from = QueryNumber(request, "from", 0);
  if (!from.ok()) return from.status();
  const uint64_t size = std::min(*limit, kMaxSessions);
  // One row more than the page holds: the next page begins there.
  std::vector<SessionRow> rows = cache.manager->Sessions(SessionId(*from), size + 1);
  Json next;
  if (rows.size() > size) {
    next = rows.back().session.value();
    rows.pop_back();
  }
  Json sessions = Json::array();
  for (const SessionRow& row : rows) {
    Json json = SessionJson(row, cache.manager->tenants()[row.tenant]);
    json["writer_pids"] = cache.writers->Pids(row.session);
    sessions.push_back(std::move(json));
  }
  return TextOf({{"sessions", std::move(sessions)}, {"next", std::move(next)}});
}

absl::StatusOr<std::string> StatusApi::Events(const HttpRequest& request,
                                              const CacheParts& cache) const {
  const absl::StatusOr<uint64_t> since = QueryNumber(request, "since", 0);
  if (!since.ok()) return since.status();
  const absl::StatusOr<uint64_t> limit = QueryNumber(request, "limit", kDefaultEvents);
  if (!limit.ok()) return limit.status();
  const EventLog& log = cache.manager->log();
  const uint64_t last = log.last().value();
  const uint64_t count = std::min({*limit, kMaxEvents, last - std::min(*since, last)});
  Json events = Json::array();
  // A tiny log can have dropped some of these events by now; then fewer are shown.
  for (uint64_t next = last - count + 1; next <= last;) {
    const auto batches = log.Read(Revision(next), kEventsPerRead);
    if (!batches.ok()) {
      next = std::max(next + 1, log.oldest().value());
      continue;
    }
    const uint64_t before = next;
    for (const EventLog::BatchPtr& batch : *batches) {
      for (const Event& event : *batch) {
        if (event.revision.value() != next || next > last) continue;
        events.push_back(EventJson(event, cache.manager->tenants(), cache.manager->info()));
        ++next;
      }
    }
    if (next == before) break;
  }
  const uint64_t shown = events.size();
  return TextOf({{"epoch", HexOf(cache.manager->epoch().value())},
                 {"oldest_revision", log.oldest().value()},
                 {"last_revision", last},
                 {"skipped", last - std::min(*since, last) - shown},
                 {"events", std::move(events)}});
}

std::string StatusApi::Subscribers(const CacheParts& cache) const {
  const absl::Time now = SharedManager::Now();
  const Revision last = cache.manager->log().last();
  Json subscribers = Json::array();
  std::vector<SubscriberRow> of_bridges;
  if (IsConfigured(cache)) of_bridges = parts_.bridges->Subscribers();
  for (const auto& rows : {EventService::Subscribers(cache), of_bridges}) {
    for (const SubscriberRow& row : rows) {
      subscribers.push_back(SubscriberJson(row, cache.manager->tenants(), last, now));
    }
  }
  return TextOf({{"last_revision", last.value()}, {"subscribers", std::move(subscribers)}});
}

}  // namespace pagoda::server
