#include "server/http/status_api.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "manager/advice/hit_rate_curve.h"
#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/status.pb.h"
#include "server/admin/admin_service.h"
#include "server/admin/copy_status.h"
#include "server/admin/page.h"
#include "server/bridges/bridges.h"
#include "server/cache/disk_tier.h"
#include "server/cache/status_history.h"
#include "server/directory/cache_directory.h"
#include "server/http/public_view.h"
#include "server/http/status_messages.h"
#include "server/watch/event_service.h"
#include "wire/message_json.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

// The most cells of a tier's map: about ten rows on the page.
constexpr uint32_t kMapCells = 1024;
constexpr size_t kTopPrefixes = 20;
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
  v1::ErrorAnswer answer;
  answer.mutable_error()->set_reason(name);
  answer.mutable_error()->set_message(std::string(status.message()));
  HttpResponse response{.status = HttpStatusOf(status),
                        .content_type = kJsonType,
                        .body = JsonOf(answer).value(),  // It has no time.
                        .headers = {}};
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

// The answer of a method of AdminService.
template <class Request, class Response>
absl::StatusOr<std::string> JsonFrom(AdminService* admin,
                                     absl::Status (AdminService::*method)(const Identity&,
                                                                          const Request&,
                                                                          Response*),
                                     const Identity& caller, const Request& request) {
  Response response;
  absl::Status status = (admin->*method)(caller, request, &response);
  return status.ok() ? JsonOf(response) : status;
}

using JsonOfCache = absl::StatusOr<std::string> (*)(const CacheParts&);

absl::StatusOr<std::string> HistoryJson(const CacheParts& cache) {
  v1::StatusHistory history;
  HistoryToProto(cache.history->Samples(), cache.manager->info(), &history);
  return JsonOf(history);
}

absl::StatusOr<std::string> TransfersJson(const CacheParts& cache) {
  std::optional<DiskNumbers> disk;
  if (cache.disk != nullptr) disk = cache.disk->numbers();
  v1::TransferStatus transfers;
  TransfersToStatus(cache.transfers->stats(), disk.has_value() ? &*disk : nullptr,
                    cache.manager->info(), &transfers);
  return JsonOf(transfers);
}

absl::StatusOr<std::string> BlocksJson(const CacheParts& parts) {
  const CacheInfo& cache = parts.manager->info();
  v1::BlockMap map;
  for (uint32_t w = 0; w < cache.windows.size(); ++w) {
    v1::WindowBlockMap* const window = map.add_windows();
    window->set_window_size(WindowToProto(cache.windows[w].window));
    for (size_t t = 0; t < cache.tiers.size(); ++t) {
      const std::vector<SlotState> states = parts.manager->SlotStates(w, Tier(t));
      if (states.empty()) continue;
      v1::TierBlockMap* const tier = window->add_tiers();
      tier->set_tier(TierToProto(Tier(t)));
      tier->set_name(cache.tiers[t].name);
      SlotsToCells(states, kMapCells, tier);
    }
  }
  return JsonOf(map);
}

absl::StatusOr<std::string> PrefixesJson(const CacheParts& cache) {
  const SharedManager& manager = *cache.manager;
  v1::TopPrefixes top;
  top.set_window_size(WindowToProto(manager.info().windows.back().window));
  for (const PrefixUse& use : manager.TopPrefixes(kTopPrefixes)) {
    PrefixUseToProto(use, manager.tenants()[use.tenant], manager.info(), top.add_prefixes());
  }
  return JsonOf(top);
}

}  // namespace

StatusApi::StatusApi(const DaemonParts& parts, AdminService* admin, const HttpFence* fence)
    : parts_(parts), admin_(admin), fence_(fence) {}

void StatusApi::AddRoutes(HttpServer::Routes* routes) {
  const auto add = [&](const char* name, Audience audience, Answerer answerer) {
    (*routes)[absl::StrCat("/api/v1/", name)] =
        [this, audience, answerer = std::move(answerer)](const HttpRequest& request) {
          return Answer(request, audience, answerer);
        };
  };
  using AnswerOfViewer =
      absl::StatusOr<std::string> (StatusApi::*)(const HttpRequest&, const Viewer&) const;
  // The callers that may read the same share the answer.
  // An answer that ignores the query must not be made again for every query.
  const auto add_public = [&](const char* name, AnswerOfViewer method, bool of_cache) {
    add(name, Audience::kEverybody,
        [this, name, method, of_cache](const HttpRequest& r, const Viewer& v) {
          if (v.is_operator.ok()) return (this->*method)(r, v);
          return shared_.Get(
              absl::StrJoin({std::string(name), absl::StrCat(v.known.code()),
                             absl::StrCat(v.identity.role), absl::StrCat(v.identity.tenant.value()),
                             of_cache ? QueryText(r, "cache") : std::string()},
                            " "),
              [&] { return (this->*method)(r, v); });
        });
  };
  const auto add_of_cache = [&](const char* name, Audience audience, CacheAnswerer answerer) {
    add(name, audience,
        [this, answerer = std::move(answerer)](
            const HttpRequest& request, const Viewer& viewer) -> absl::StatusOr<std::string> {
          const absl::StatusOr<CachePtr> cache =
              parts_.caches->Named(QueryText(request, "cache"), viewer.identity);
          return cache.ok() ? answerer(request, **cache) : cache.status();
        });
  };
  const auto add_shared = [&](const char* name, Audience audience, JsonOfCache json) {
    add_of_cache(name, audience, [this, name, json](const HttpRequest&, const CacheParts& cache) {
      return shared_.Get(absl::StrCat(name, " ", cache.number), [&] { return json(cache); });
    });
  };
  add_public("caches", &StatusApi::Caches, /*of_cache=*/false);
  add_public("status", &StatusApi::Status, /*of_cache=*/true);
  add_public("hit_rate_curve", &StatusApi::HitRateCurves, /*of_cache=*/true);
  add("sessions", Audience::kOperators,
      [this](const HttpRequest& r, const Viewer& v) { return Sessions(r, v); });
  add("tenants", Audience::kOperators,
      [this](const HttpRequest& r, const Viewer& v) { return Tenants(r, v); });
  add_shared("history", Audience::kEverybody, HistoryJson);
  add_shared("transfers", Audience::kEverybody, TransfersJson);
  add_shared("blocks", Audience::kEverybody, BlocksJson);
  add_shared("prefixes", Audience::kOperators, PrefixesJson);
  add_of_cache("events", Audience::kOperators,
               [this](const HttpRequest& r, const CacheParts& c) { return Events(r, c); });
  add_of_cache("subscribers", Audience::kOperators,
               [this](const HttpRequest&, const CacheParts& c) { return Subscribers(c); });
}

StatusApi::Viewer StatusApi::ViewerOf(const HttpRequest& request) const {
  Viewer viewer;
  const absl::StatusOr<Identity> caller = fence_->Identify(request);
  if (caller.ok()) {
    viewer.identity = *caller;
    if (!caller->is_operator()) {
      viewer.is_operator = MakeError(Reason::kPermissionDenied, "only operators may read this");
    }
  } else {
    viewer.known = viewer.is_operator = caller.status();
  }
  return viewer;
}

HttpResponse StatusApi::Answer(const HttpRequest& request, Audience audience,
                               const Answerer& answerer) const {
  if (absl::Status status = fence_->CheckSite(request); !status.ok()) return Refuse(status);
  const Viewer viewer = ViewerOf(request);
  if (audience == Audience::kOperators && !viewer.is_operator.ok()) {
    return Refuse(viewer.is_operator);
  }
  absl::StatusOr<std::string> json = answerer(request, viewer);
  if (!json.ok()) return Refuse(json.status());
  return {.content_type = kJsonType, .body = *std::move(json), .headers = {}};
}

absl::StatusOr<std::string> StatusApi::Caches(const HttpRequest&, const Viewer& viewer) const {
  v1::ListCachesResponse caches;
  const absl::Status listed = admin_->ListCaches(viewer.identity, {}, &caches);
  if (!listed.ok()) return listed;
  if (!viewer.known.ok()) KeepPublic(&caches);
  return JsonOf(caches);
}

absl::StatusOr<std::string> StatusApi::Status(const HttpRequest& request,
                                              const Viewer& viewer) const {
  v1::GetStatusRequest asked;
  asked.set_cache(QueryText(request, "cache"));
  v1::GetStatusResponse status;
  if (absl::Status got = admin_->GetStatus(viewer.identity, asked, &status); !got.ok()) return got;
  if (!viewer.is_operator.ok()) {
    KeepPublic(&status);
    status.set_access(absl::IsUnauthenticated(viewer.is_operator) ? v1::STATUS_ACCESS_NEEDS_TOKEN
                                                                  : v1::STATUS_ACCESS_REFUSED);
  }
  return JsonOf(status);
}

absl::StatusOr<std::string> StatusApi::HitRateCurves(const HttpRequest& request,
                                                     const Viewer& viewer) const {
  v1::GetHitRateCurveRequest asked;
  asked.set_cache(QueryText(request, "cache"));
  for (const double factor : HitRateCurve::kShownFactors) asked.add_capacity_factors(factor);
  return JsonFrom(admin_, &AdminService::GetHitRateCurve, viewer.identity, asked);
}

absl::StatusOr<std::string> StatusApi::Sessions(const HttpRequest& request,
                                                const Viewer& viewer) const {
  const absl::StatusOr<uint64_t> limit = QueryNumber(request, "limit", kDefaultPageSize);
  if (!limit.ok()) return limit.status();
  v1::ListSessionsRequest asked;
  asked.set_cache(QueryText(request, "cache"));
  asked.set_page_size(static_cast<uint32_t>(std::min<uint64_t>(*limit, kMaxPageSize)));
  asked.set_page_token(QueryText(request, "from"));
  return JsonFrom(admin_, &AdminService::ListSessions, viewer.identity, asked);
}

absl::StatusOr<std::string> StatusApi::Tenants(const HttpRequest& request,
                                               const Viewer& viewer) const {
  v1::ListTenantsRequest asked;
  asked.set_cache(QueryText(request, "cache"));
  return JsonFrom(admin_, &AdminService::ListTenants, viewer.identity, asked);
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
  v1::EventTail tail;
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
        EventToSummary(event, cache.manager->tenants(), tail.add_events());
        ++next;
      }
    }
    if (next == before) break;
  }
  tail.set_epoch(cache.manager->epoch().value());
  tail.set_oldest_revision(log.oldest().value());
  tail.set_last_revision(last);
  tail.set_skipped(last - std::min(*since, last) - static_cast<uint64_t>(tail.events_size()));
  return JsonOf(tail);
}

absl::StatusOr<std::string> StatusApi::Subscribers(const CacheParts& cache) const {
  const Revision last = cache.manager->log().last();
  v1::SubscriberList list;
  list.set_last_revision(last.value());
  std::vector<SubscriberRow> of_bridges;
  if (IsConfigured(cache)) of_bridges = parts_.bridges->Subscribers();
  for (const auto& rows : {EventService::Subscribers(cache), of_bridges}) {
    for (const SubscriberRow& row : rows) {
      SubscriberRowToProto(row, cache.manager->tenants(), last, list.add_subscribers());
    }
  }
  return JsonOf(list);
}

}  // namespace pagoda::server
