#include "clients/pagodactl/command/admin_client.h"

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "pools/types.h"

namespace pagoda {

std::string TierText(v1::Tier tier, const std::string& name) {
  if (!name.empty()) return name;
  if (tier == v1::TIER_UNSPECIFIED) return "unknown";
  return DefaultTierName(Tier(tier - v1::TIER_PRIMARY));
}

std::string TierText(v1::Tier tier, const v1::CacheInfo& cache) {
  for (const v1::TierInfo& info : cache.tiers()) {
    if (info.tier() == tier) return info.name();
  }
  return TierText(tier, std::string());
}

std::string TierText(const v1::TierStatus& tier) { return TierText(tier.tier(), tier.name()); }

absl::StatusOr<AdminClient> AdminClient::Connect(const GlobalOptions& globals) {
  const auto channel = ConnectToDaemon(globals);
  if (!channel.ok()) return channel.status();
  return AdminClient(*channel, globals);
}

absl::StatusOr<std::vector<v1::GetStatusResponse>> AdminClient::Statuses() {
  // Caches can be dropped between the two calls. All of a list are rarely dropped repeatedly.
  constexpr int kTries = 3;
  absl::Status refused;
  for (int i = 0; i < kTries; ++i) {
    absl::StatusOr<v1::GetStatusResponse> only = Call(&Stub::GetStatus, v1::GetStatusRequest());
    if (only.ok()) return std::vector<v1::GetStatusResponse>{*std::move(only)};
    refused = only.status();
    if (ReasonOf(refused) != Reason::kCacheNotNamed) return refused;
    const absl::StatusOr<v1::ListCachesResponse> list =
        Call(&Stub::ListCaches, v1::ListCachesRequest());
    if (!list.ok()) return list.status();
    std::vector<v1::GetStatusResponse> all;
    for (const v1::CacheRow& row : list->caches()) {
      v1::GetStatusRequest request;
      request.set_cache(row.cache().name());
      absl::StatusOr<v1::GetStatusResponse> status = Call(&Stub::GetStatus, request);
      if (ReasonOf(status.status()) == Reason::kUnknownCache) continue;
      if (!status.ok()) return status.status();
      all.push_back(*std::move(status));
    }
    if (!all.empty()) return all;
  }
  return refused;
}

absl::StatusOr<v1::CacheInfo> AdminClient::Cache() {
  v1::ListCachesRequest request;
  request.set_name(cache_);
  const absl::StatusOr<v1::ListCachesResponse> list = Call(&Stub::ListCaches, request);
  if (!list.ok()) return list.status();
  if (list->caches_size() == 1) return list->caches(0).cache();
  return MakeError(Reason::kCacheNotNamed,
                   absl::StrCat("the daemon has ",
                                Counted(static_cast<uint64_t>(list->caches_size()), "cache")));
}

absl::Status PrintStatuses(const std::vector<v1::GetStatusResponse>& statuses) {
  for (const v1::GetStatusResponse& status : statuses) {
    if (absl::Status printed = PrintJson(status); !printed.ok()) return printed;
  }
  return absl::OkStatus();
}

}  // namespace pagoda
