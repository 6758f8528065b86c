#include "clients/pagodactl/admin_client.h"

#include "pools/types.h"

namespace pagoda {

std::string TierText(v1::Tier tier, const std::string& name) {
  if (!name.empty()) return name;
  if (tier == v1::TIER_UNSPECIFIED) return "unknown";
  return DefaultTierName(static_cast<Tier>(tier - v1::TIER_PRIMARY));
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
  return AdminClient(*channel, globals.timeout());
}

}  // namespace pagoda
