// The tiers and layers of a configured cache.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "manager/policy/eviction_policy.h"
#include "manager/words/tier_spec.h"
#include "pools/layout.h"
#include "server/config/config.h"

namespace pagoda::server {

Config::Cache::Cache() : eviction_policy(EvictionPolicyNames().front()) {}

std::vector<Config::Cache::TierConfig> Config::Cache::AllTiers() const {
  std::vector<TierConfig> all = tiers;
  if (all.empty()) {
    all.push_back({.size = primary, .watermark_permille = offload.watermark_permille});
    const auto* blocks = std::get_if<BlockBudget>(&secondary);
    const auto* bytes = std::get_if<ByteBudget>(&secondary);
    const bool none = blocks != nullptr ? std::all_of(blocks->blocks.begin(), blocks->blocks.end(),
                                                      [](uint32_t count) { return count == 0; })
                                        : bytes != nullptr && bytes->bytes == 0;
    if (!none) all.push_back({.size = secondary, .min_priority = offload.min_priority});
  }
  for (size_t t = 0; t < all.size(); ++t) {
    if (all[t].name.empty()) all[t].name = DefaultTierName(Tier(t));
  }
  return all;
}

LayerSpec Config::Cache::Layers::Spec(DType dtype) const {
  const WindowSize size = window == 0 ? kFullAttention : WindowSize(window);
  if (opaque()) return {.window = size, .kind = kind, .bytes_per_block = bytes_per_block};
  return {.window = size,
          .num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .dtype = dtype,
          .kind = kind};
}

}  // namespace pagoda::server
