#include "tests/sim/config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "manager/eviction_policy.h"
#include "tests/sim/random.h"

namespace pagoda::sim {
namespace {

// Small enough that a window passes within a few blocks.
WindowSize DrawSliding(Random& random, uint32_t tokens_per_block) {
  return WindowSize{random.Between(1, 3 * tokens_per_block + 2)};
}

std::vector<SimConfig::Window> DrawWindows(Random& random, uint32_t tokens_per_block) {
  std::vector<WindowSize> sizes;
  const uint32_t dice = random.Below(10);
  if (dice < 8) sizes.push_back(kFullAttention);
  if (dice >= 4) sizes.push_back(DrawSliding(random, tokens_per_block));
  if (dice == 7 || dice == 9) sizes.push_back(DrawSliding(random, tokens_per_block));
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());

  const bool with_secondary = random.Percent(60);
  std::vector<SimConfig::Window> windows;
  for (const WindowSize size : sizes) {
    const uint32_t secondary =
        with_secondary && !random.OneIn(6) ? random.Between(1, 4 + random.Below(16)) : 0;
    windows.push_back(
        {.size = size, .primary = random.Between(4, 8 + random.Below(17)), .secondary = secondary});
  }
  return windows;
}

std::vector<uint32_t> DrawWeights(Random& random, const std::vector<uint32_t>& weights) {
  std::vector<uint32_t> drawn = weights;
  for (uint32_t& weight : drawn) {
    const uint32_t dice = random.Below(8);
    if (dice == 0) weight = 0;
    if (dice >= 6) weight *= 4;
  }
  drawn[0] = std::max(drawn[0], weights[0]);  // The first kind begins what all others work on.
  return drawn;
}

// One to three tenants, some of which share the default tenant's name spaces. Quotas are so small
// that most are met.
std::vector<TenantOptions> DrawTenants(Random& random, const SimConfig& config) {
  uint32_t smallest = config.windows.front().primary;
  for (const SimConfig::Window& window : config.windows) {
    smallest = std::min(smallest, window.primary);
  }
  std::vector<TenantOptions> tenants;
  for (uint32_t i = random.Between(1, kMaxTenantsInSim - 1); i > 0; --i) {
    TenantOptions tenant{.name = absl::StrCat("tenant", i),
                         .shares = random.OneIn(2),
                         .share = random.Between(1, 3)};
    if (!random.OneIn(3)) tenant.quota_blocks[0] = random.Between(1, smallest);
    if (random.OneIn(3)) tenant.quota_blocks[1] = random.Below(6);
    tenants.push_back(std::move(tenant));
  }
  return tenants;
}

}  // namespace

TenantId SimConfig::OwnerOf(uint32_t name_space) const {
  for (uint16_t id = 1; id < num_tenants(); ++id) {
    if (tenants[id - 1u].name == name_spaces[name_space].tenant) return TenantId{id};
  }
  return kCommons;
}

uint32_t SimConfig::Confined(TenantId tenant, uint32_t name_space) const {
  if (tenant == kCommons) return name_space;
  const TenantId owner = shares(tenant) ? kCommons : tenant;
  const auto size = static_cast<uint32_t>(name_spaces.size());
  while (OwnerOf(name_space % size) != owner) ++name_space;
  return name_space % size;
}

bool SimConfig::has_secondary() const {
  return std::any_of(windows.begin(), windows.end(),
                     [](const Window& window) { return window.secondary > 0; });
}

std::string SimConfig::ToString() const {
  std::string text = absl::StrCat("tokens_per_block=", tokens_per_block);
  for (const Window& window : windows) {
    absl::StrAppend(&text, " window=", WindowName(window.size), ":", window.primary, "+",
                    window.secondary);
  }
  absl::StrAppend(&text, " max_holes=", max_holes, " policy=", eviction_policy,
                  " offload_min_priority=", static_cast<int>(offload_min_priority.value()),
                  " watermark=", watermark_permille, " pin_budget=", pin_budget_permille,
                  " alphabet=", alphabet, " extra_ids=", extra_ids, " items=", items,
                  " name_spaces=", name_spaces.size(), " steps=", steps,
                  " copy_failures=", copy_failure_permille, " copy_haste=", copy_haste_percent);
  for (const TenantOptions& tenant : tenants) {
    absl::StrAppend(&text, " ", tenant.name, ":", tenant.shares ? "shares," : "",
                    "share=", tenant.share);
    for (const uint32_t quota : tenant.quota_blocks) {
      absl::StrAppend(&text, ",", quota == kNoQuota ? "-" : absl::StrCat(quota));
    }
  }
  return text;
}

SimConfig DrawConfig(uint64_t seed, const std::vector<uint32_t>& weights) {
  Random random(seed, ~uint64_t{0});
  SimConfig config{.seed = seed};
  config.tokens_per_block = 1u << random.Below(4);
  config.windows = DrawWindows(random, config.tokens_per_block);
  config.max_holes = random.OneIn(3) ? random.Between(1, 3) : 0;
  const std::vector<std::string_view>& policies = EvictionPolicyNames();
  config.eviction_policy =
      random.Percent(70)
          ? std::string(policies.front())
          : std::string(policies[random.Below(static_cast<uint32_t>(policies.size()))]);
  const uint8_t thresholds[] = {0, 35, 35, 36, 60, 100};
  config.offload_min_priority = Priority{thresholds[random.Below(6)]};
  config.watermark_permille = random.OneIn(2) ? random.Between(1, 600) : 0;
  config.pin_budget_permille = random.OneIn(4) ? random.Below(1001) : 250;
  config.alphabet = random.Between(2, 3);
  uint32_t smallest = config.windows.front().primary;
  for (const SimConfig::Window& window : config.windows) {
    smallest = std::min(smallest, window.primary);
  }
  config.max_prompt_tokens = std::max(3u, smallest * config.tokens_per_block / 2);
  config.extra_ids = random.OneIn(3);
  config.items = random.OneIn(3);
  config.name_spaces = {{}};
  if (random.OneIn(2)) config.name_spaces.push_back({.cache_salt = "salt"});
  if (random.OneIn(3)) config.name_spaces.push_back({.lora_id = 0});
  if (random.OneIn(2)) {
    config.tenants = DrawTenants(random, config);
    for (const TenantOptions& tenant : config.tenants) {
      if (tenant.shares) continue;
      config.name_spaces.push_back({.tenant = tenant.name});
      if (random.OneIn(3)) config.name_spaces.push_back({.lora_id = 7, .tenant = tenant.name});
    }
  } else if (random.OneIn(3)) {
    config.name_spaces.push_back({.lora_id = 7, .tenant = "tenant"});
  }
  config.steps = random.OneIn(2);
  config.retention_percent = random.OneIn(3) ? 0 : random.Between(1, 60);
  config.durations = random.OneIn(2);
  const uint32_t failures[] = {0, 0, 10, 100, 300};
  config.copy_failure_permille = failures[random.Below(5)];
  config.copy_haste_percent = random.Between(2, 95);
  config.wrong_percent = random.OneIn(3) ? 0 : 4;
  config.weights = DrawWeights(random, weights);
  return config;
}

BlockManager::Options CoreOptions(const SimConfig& config, absl::Time start, uint64_t incarnation) {
  CacheSpec spec{.name = "sim", .tokens_per_block = config.tokens_per_block};
  BlockManager::Options options{.layout = *CacheLayout::Create([&] {
                                  for (const SimConfig::Window& window : config.windows) {
                                    spec.layers.push_back(
                                        {.window = window.size, .num_kv_heads = 1, .head_dim = 1});
                                  }
                                  return spec;
                                }())};
  for (const SimConfig::Window& window : config.windows) {
    options.primary_blocks.push_back(window.primary);
    if (config.has_secondary()) options.secondary_blocks.push_back(window.secondary);
  }
  options.max_holes = config.max_holes;
  options.eviction_policy = config.eviction_policy;
  options.offload_min_priority = config.offload_min_priority;
  options.offload_watermark_permille = config.watermark_permille;
  options.pin_budget_permille = config.pin_budget_permille;
  options.epoch = Epoch{config.seed + 1 + (incarnation << 32)};
  options.tenants = config.tenants;
  options.journal_slots = true;
  options.max_sessions = kMaxSessions;
  options.start_time = start;
  return options;
}

}  // namespace pagoda::sim
