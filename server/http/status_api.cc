#include "server/http/status_api.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/tenants.h"
#include "server/http/status_json.h"

namespace pagoda::server {
namespace {

// The cells of a tier's map: some ten rows of a page.
constexpr uint32_t kMapCells = 1024;
constexpr size_t kTopPrefixes = 20;
constexpr uint64_t kDefaultSessions = 100;
constexpr uint64_t kMaxSessions = 1000;
constexpr uint64_t kDefaultEvents = 50;
constexpr uint64_t kMaxEvents = 500;
// Events that a look at the log's end takes in its hand for those that it shows.
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
      return 421;
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
      return "starting";
    case ServingState::Phase::kServing:
      return "serving";
    case ServingState::Phase::kDraining:
      return "draining";
  }
  return "";
}

Json EngineJson(const EngineService& service) {
  if (service.engine() == nullptr) return nullptr;
  const EngineStats stats = service.Stats();
  return {{"model", service.model_name()},
          {"architecture", service.engine()->model().architecture},
          {"running_requests", stats.running_requests},
          {"waiting_requests", stats.waiting_requests},
          {"prompt_tokens", stats.prompt_tokens},
          {"reused_tokens", stats.reused_tokens},
          {"computed_tokens", stats.computed_tokens},
          {"generated_tokens", stats.generated_tokens}};
}

}  // namespace

void StatusApi::AddRoutes(HttpServer::Routes* routes) {
  const auto add = [&](const char* name, Audience audience, Answerer answerer) {
    (*routes)[absl::StrCat("/api/v1/", name)] =
        [this, audience, answerer = std::move(answerer)](const HttpRequest& request) {
          return Answer(request, audience, answerer);
        };
  };
  add("status", Audience::kEverybody, [this](const HttpRequest& r) { return Status(r); });
  add("history", Audience::kEverybody, [this](const HttpRequest&) {
    return TextOf(HistoryJson(history_->Samples(), parts_.manager->info()));
  });
  add("transfers", Audience::kEverybody, [this](const HttpRequest&) { return Transfers(); });
  add("blocks", Audience::kEverybody, [this](const HttpRequest&) { return blocks_.Get(); });
  add("sessions", Audience::kOperators, [this](const HttpRequest& r) { return Sessions(r); });
  add("tenants", Audience::kOperators, [this](const HttpRequest&) { return Tenants(); });
  add("prefixes", Audience::kOperators, [this](const HttpRequest&) { return prefixes_.Get(); });
  add("events", Audience::kOperators, [this](const HttpRequest& r) { return Events(r); });
  add("subscribers", Audience::kOperators, [this](const HttpRequest&) { return Subscribers(); });
}

std::string StatusApi::Scan::Get() {
  absl::MutexLock lock(&mutex_);
  if (SharedManager::Now() - made_ >= kScanInterval) {
    text_ = make_();
    made_ = SharedManager::Now();
  }
  return text_;
}

absl::Status StatusApi::CheckOperator(const HttpRequest& request) const {
  const absl::StatusOr<Identity> caller = fence_->Identify(request);
  if (!caller.ok()) return caller.status();
  if (caller->is_operator()) return absl::OkStatus();
  return MakeError(Reason::kPermissionDenied, "for operators");
}

HttpResponse StatusApi::Answer(const HttpRequest& request, Audience audience,
                               const Answerer& answerer) const {
  if (absl::Status status = fence_->CheckSite(request); !status.ok()) return Refuse(status);
  if (audience == Audience::kOperators) {
    if (absl::Status status = CheckOperator(request); !status.ok()) return Refuse(status);
  }
  absl::StatusOr<std::string> text = answerer(request);
  if (!text.ok()) return Refuse(text.status());
  return {.content_type = kJsonType, .body = *std::move(text), .headers = {}};
}

std::optional<DiskNumbers> StatusApi::Disk() const {
  return disk_ == nullptr ? std::nullopt : std::optional(disk_->numbers());
}

std::string StatusApi::Status(const HttpRequest& request) const {
  const SharedManager& manager = *parts_.manager;
  const ManagerStats stats = manager.Stats();
  const std::optional<DiskNumbers> disk = Disk();
  const absl::Time now = SharedManager::Now();
  const absl::Status access = CheckOperator(request);
  return TextOf({{"version", PAGODA_VERSION},
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
                   {"layers", parts_.layout->spec().layers.size()}}},
                 {"windows", WindowsJson(stats, manager.info(), *parts_.layout, *parts_.pools)},
                 {"disk", DiskJson(stats, disk.has_value() ? &*disk : nullptr,
                                   access.ok() ? DiskDetail::kForOperators : DiskDetail::kForAll)},
                 {"sessions", stats.sessions},
                 {"sequences", stats.sequences},
                 {"pins", stats.pins},
                 {"quarantines", stats.quarantines},
                 {"quarantined_blocks", stats.quarantined_blocks},
                 {"recovered_blocks", stats.recovered_blocks},
                 {"subscribers", parts_.events->subscribers() + parts_.bridges->streams()},
                 {"revision", manager.log().last().value()},
                 {"oldest_revision", manager.log().oldest().value()},
                 {"engine", EngineJson(*parts_.engine)},
                 {"access", access.ok()                       ? "operator"
                            : absl::IsUnauthenticated(access) ? "token"
                                                              : "refused"}});
}

std::string StatusApi::Transfers() const {
  const std::optional<DiskNumbers> disk = Disk();
  return TextOf(TransfersJson(parts_.transfers->stats(), disk.has_value() ? &*disk : nullptr,
                              parts_.manager->info()));
}

std::string StatusApi::Blocks() const {
  Json windows = Json::array();
  const CacheInfo& cache = parts_.manager->info();
  const std::vector<CacheInfo::Window>& infos = cache.windows;
  for (uint32_t w = 0; w < infos.size(); ++w) {
    Json tiers = Json::array();
    for (size_t t = 0; t < cache.tiers.size(); ++t) {
      const auto tier = static_cast<Tier>(t);
      const std::vector<SlotState> states = parts_.manager->SlotStates(w, tier);
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

absl::StatusOr<std::string> StatusApi::Sessions(const HttpRequest& request) const {
  const absl::StatusOr<uint64_t> limit = QueryNumber(request, "limit", kDefaultSessions);
  if (!limit.ok()) return limit.status();
  const absl::StatusOr<uint64_t> from = QueryNumber(request, "from", 0);
  if (!from.ok()) return from.status();
  const uint64_t size = std::min(*limit, kMaxSessions);
  // One row more than the page has says where the next one begins.
  std::vector<SessionRow> rows = parts_.manager->Sessions(SessionId(*from), size + 1);
  Json next;
  if (rows.size() > size) {
    next = rows.back().session.value();
    rows.pop_back();
  }
  Json sessions = Json::array();
  for (const SessionRow& row : rows) {
    Json json = SessionJson(row, parts_.manager->tenants()[row.tenant]);
    json["writer_pids"] = parts_.writers->Pids(row.session);
    sessions.push_back(std::move(json));
  }
  return TextOf({{"sessions", std::move(sessions)}, {"next", std::move(next)}});
}

std::string StatusApi::Tenants() const {
  Json tenants = Json::array();
  for (const TenantUsage& usage : parts_.manager->TenantUses()) {
    tenants.push_back(
        TenantJson(usage, parts_.manager->tenants()[usage.tenant], parts_.manager->info()));
  }
  return TextOf({{"tenants", std::move(tenants)}});
}

std::string StatusApi::Prefixes() const {
  Json prefixes = Json::array();
  for (const PrefixUse& use : parts_.manager->TopPrefixes(kTopPrefixes)) {
    prefixes.push_back(
        PrefixJson(use, parts_.manager->tenants()[use.tenant], parts_.manager->info()));
  }
  return TextOf({{"window", WindowName(parts_.manager->info().windows.back().window)},
                 {"prefixes", std::move(prefixes)}});
}

absl::StatusOr<std::string> StatusApi::Events(const HttpRequest& request) const {
  const absl::StatusOr<uint64_t> since = QueryNumber(request, "since", 0);
  if (!since.ok()) return since.status();
  const absl::StatusOr<uint64_t> limit = QueryNumber(request, "limit", kDefaultEvents);
  if (!limit.ok()) return limit.status();
  const EventLog& log = parts_.manager->log();
  const uint64_t last = log.last().value();
  const uint64_t count = std::min({*limit, kMaxEvents, last - std::min(*since, last)});
  Json events = Json::array();
  // Only what is older than `first` can be gone by now, unless the log is tiny: then less is shown.
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
        events.push_back(EventJson(event, parts_.manager->tenants(), parts_.manager->info()));
        ++next;
      }
    }
    if (next == before) break;
  }
  const uint64_t shown = events.size();
  return TextOf({{"epoch", HexOf(parts_.manager->epoch().value())},
                 {"oldest_revision", log.oldest().value()},
                 {"last_revision", last},
                 {"skipped", last - std::min(*since, last) - shown},
                 {"events", std::move(events)}});
}

std::string StatusApi::Subscribers() const {
  const absl::Time now = SharedManager::Now();
  const Revision last = parts_.manager->log().last();
  Json subscribers = Json::array();
  for (const auto& rows : {parts_.events->Subscribers(), parts_.bridges->Subscribers()}) {
    for (const SubscriberRow& row : rows) {
      subscribers.push_back(SubscriberJson(row, parts_.manager->tenants(), last, now));
    }
  }
  return TextOf({{"last_revision", last.value()}, {"subscribers", std::move(subscribers)}});
}

}  // namespace pagoda::server
