#include "tests/sim/words/config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "manager/policy/eviction_policy.h"
#include "tests/sim/words/random.h"

namespace pagoda::sim {
namespace {

// For the decisions of a seed about tiers beyond the second, and about a disk. No operation uses
// these streams.
constexpr uint64_t kFartherTiersStream = uint64_t{1} << 40;
constexpr uint64_t kDiskStream = uint64_t{1} << 41;
// For the decisions about name spaces that clients key.
constexpr uint64_t kKeyedStream = uint64_t{1} << 42;
// For what is worth publishing.
constexpr uint64_t kPublishStream = uint64_t{1} << 43;

// Small enough that a window moves past blocks soon.
WindowSize DrawSliding(Random& random, uint32_t tokens_per_block) {
  return WindowSize{random.Between(1, 3 * tokens_per_block + 2)};
}

// The number of a window's blocks in a tier below the first.
uint32_t DrawLowerBlocks(Random& random) { return random.Between(1, 4 + random.Below(16)); }

// A tier's threshold and watermark.
Priority DrawMinPriority(Random& random) {
  const uint8_t thresholds[] = {0, 35, 35, 36, 60, 100};
  return Priority{thresholds[random.Below(6)]};
}
uint32_t DrawWatermark(Random& random) { return random.OneIn(2) ? random.Between(1, 600) : 0; }

// For at most two tiers.
std::vector<SimConfig::Window> DrawWindows(Random& random, uint32_t tokens_per_block) {
  std::vector<WindowSize> sizes;
  const uint32_t dice = random.Below(10);
  if (dice < 8) sizes.push_back(kFullAttention);
  if (dice >= 4) sizes.push_back(DrawSliding(random, tokens_per_block));
  if (dice == 7 || dice == 9) sizes.push_back(DrawSliding(random, tokens_per_block));
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());

  const bool with_lower = random.Percent(60);
  std::vector<SimConfig::Window> windows;
  for (const WindowSize size : sizes) {
    const uint32_t lower = with_lower && !random.OneIn(6) ? DrawLowerBlocks(random) : 0;
    windows.push_back({.size = size, .blocks = {random.Between(4, 8 + random.Below(17)), lower}});
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
  drawn[0] = std::max(drawn[0], weights[0]);  // The first kind creates what all others work on.
  return drawn;
}

uint32_t SmallestPrimary(const SimConfig& config) {
  uint32_t smallest = config.windows.front().primary();
  for (const SimConfig::Window& window : config.windows) {
    smallest = std::min(smallest, window.primary());
  }
  return smallest;
}

// One to three tenants, some of which share the default tenant's name spaces. Quotas are so small
// that most are reached.
std::vector<TenantOptions> DrawTenants(Random& random, const SimConfig& config) {
  const uint32_t smallest = SmallestPrimary(config);
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

// One or two tiers beyond the second; none in most seeds. They have their own random stream, so
// seeds without them run as they did before there were such tiers.
void DrawFartherTiers(SimConfig& config) {
  Random random(config.seed, kFartherTiersStream);
  if (random.Percent(60)) return;
  constexpr size_t kFirst = 2;
  constexpr uint32_t kFew = 3;
  config.num_tiers = kFirst + random.Between(1, kMaxTiers - kFirst);
  // In half of these seeds the tiers below the first are mostly full, so that blocks swap.
  const bool has_few = random.OneIn(2);
  if (has_few) {
    config.min_priority[1] = Priority{0};
    for (SimConfig::Window& window : config.windows) {
      window.blocks[1] = std::min(window.blocks[1], kFew);
    }
  } else {
    config.watermark_permille[1] = DrawWatermark(random);
  }
  for (size_t t = kFirst; t < config.num_tiers; ++t) {
    for (SimConfig::Window& window : config.windows) {
      if (random.OneIn(6)) continue;
      window.blocks[t] = has_few ? random.Between(1, kFew) : DrawLowerBlocks(random);
    }
    config.min_priority[t] = has_few ? Priority{0} : DrawMinPriority(random);
    config.watermark_permille[t] = has_few ? 0 : DrawWatermark(random);
    for (TenantOptions& tenant : config.tenants) {
      if (random.OneIn(3)) tenant.quota_blocks[t] = random.Below(6);
    }
  }
}

// In one seed of four the last tier is on disk: one more tier, or the fourth if there are four
// already. Seeds without a disk run as they did before there was one.
void DrawDisk(SimConfig& config) {
  Random random(config.seed, kDiskStream);
  if (!random.OneIn(4)) return;
  config.has_disk = true;
  config.num_tiers = std::min(config.num_tiers + 1, kMaxTiers);
  const size_t disk = config.num_tiers - 1;
  const bool is_tiny = random.OneIn(2);
  bool any = false;
  for (SimConfig::Window& window : config.windows) {
    const bool is_last = &window == &config.windows.back();
    window.blocks[disk] = 0;
    if (random.OneIn(6) && (any || !is_last)) continue;
    any = true;
    window.blocks[disk] = is_tiny ? random.Between(1, 6) : random.Between(4, 40);
    // A block goes to disk through the tier above it.
    uint32_t& above = window.blocks[disk - 1];
    if (above == 0) above = DrawLowerBlocks(random);
    // Fetches can fill a quarter of it at once.
    if (disk > 1 && random.OneIn(2)) above = std::max(above, random.Between(8, 24));
  }
  config.min_priority[disk] = random.OneIn(2) ? Priority{0} : DrawMinPriority(random);
  config.watermark_permille[disk] = 0;
  for (TenantOptions& tenant : config.tenants) {
    tenant.quota_blocks[disk] = random.OneIn(3) ? random.Below(6) : kNoQuota;
  }
  const uint64_t block_bytes = config.block_bytes(0);
  const uint64_t rates[] = {
      0, 0, block_bytes / 2, 3 * block_bytes + 1, 20 * block_bytes, 500 * block_bytes};
  config.write_bytes_per_second = rates[random.Below(6)];
  const uint32_t failures[] = {0, 0, 10, 100, 300};
  config.file_failure_permille = failures[random.Below(5)];
  config.file_haste_percent = random.Between(3, 95);
  config.maintain_percent = random.Between(2, 30);
}

// In two seeds of three some name spaces also exist in a form that clients key. Seeds without them
// run as they did before there were any.
void DrawKeyed(SimConfig& config) {
  Random random(config.seed, kKeyedStream);
  if (random.OneIn(3)) return;
  const size_t with_tokens = config.name_spaces.size();
  for (size_t i = 0; i < with_tokens; ++i) {
    if (i != 0 && random.OneIn(2)) continue;
    config.name_spaces.push_back(config.name_spaces[i]);
    config.name_spaces.back().keyed = true;
  }
}

}  // namespace

uint64_t SimConfig::block_bytes(uint32_t window) const {
  return CoreOptions(*this, absl::UnixEpoch(), 0).layout.windows()[window].block_bytes();
}

TenantId SimConfig::OwnerOf(uint32_t name_space) const {
  for (uint16_t id = 1; id < num_tenants(); ++id) {
    if (tenants[id - 1u].name == name_spaces[name_space].tenant) return TenantId{id};
  }
  return kDefaultTenant;
}

uint32_t SimConfig::Confined(TenantId tenant, uint32_t name_space) const {
  if (tenant == kDefaultTenant) return name_space;
  const TenantId owner = shares(tenant) ? kDefaultTenant : tenant;
  const auto size = static_cast<uint32_t>(name_spaces.size());
  while (OwnerOf(name_space % size) != owner) ++name_space;
  return name_space % size;
}

std::string SimConfig::ToString() const {
  std::string text = absl::StrCat("tokens_per_block=", tokens_per_block);
  for (const Window& window : windows) {
    absl::StrAppend(&text, " window=", WindowName(window.size), ":",
                    absl::StrJoin(absl::MakeSpan(window.blocks).first(num_tiers), "+"));
  }
  for (size_t t = 0; t < num_tiers; ++t) {
    absl::StrAppend(&text, " ", DefaultTierName(Tier(t)),
                    "=min_priority:", static_cast<int>(min_priority[t].value()),
                    ",watermark:", watermark_permille[t]);
  }
  absl::StrAppend(
      &text, " max_holes=", max_holes, " policy=", eviction_policy,
      " pin_budget=", pin_budget_permille, " alphabet=", alphabet, " extra_ids=", extra_ids,
      " items=", items, " name_spaces=", name_spaces.size(), " keyed=",
      std::count_if(name_spaces.begin(), name_spaces.end(),
                    [](const NamespaceKey& key) { return key.keyed; }),
      " steps=", steps, " copy_failures=", copy_failure_permille,
      " copy_haste=", copy_haste_percent, " all_lives=", lifecycle == LifecycleEvents::kAll);
  if (publish_min_uses.has_value()) absl::StrAppend(&text, " publish_min_uses=", *publish_min_uses);
  if (has_disk) {
    absl::StrAppend(&text, " disk: bytes_per_second=", write_bytes_per_second,
                    " failures=", file_failure_permille, " haste=", file_haste_percent,
                    " maintain=", maintain_percent);
  }
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
  const bool has_lower =
      std::any_of(config.windows.begin(), config.windows.end(),
                  [](const SimConfig::Window& window) { return window.has_lower(); });
  config.num_tiers = has_lower ? 2 : 1;
  config.max_holes = random.OneIn(3) ? random.Between(1, 3) : 0;
  const std::vector<std::string_view>& policies = EvictionPolicyNames();
  config.eviction_policy =
      random.Percent(70)
          ? std::string(policies.front())
          : std::string(policies[random.Below(static_cast<uint32_t>(policies.size()))]);
  config.min_priority[1] = DrawMinPriority(random);
  config.watermark_permille[0] = DrawWatermark(random);
  config.pin_budget_permille = random.OneIn(4) ? random.Below(1001) : 250;
  config.alphabet = random.Between(2, 3);
  config.max_prompt_tokens = std::max(3u, SmallestPrimary(config) * config.tokens_per_block / 2);
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
  // Depends on the seed alone, so all other seeds run as they did before.
  if (seed % 3 == 1) config.lifecycle = LifecycleEvents::kAll;
  DrawFartherTiers(config);
  DrawDisk(config);
  DrawKeyed(config);
  Random publishing(config.seed, kPublishStream);
  if (!publishing.OneIn(6)) config.publish_min_uses = static_cast<uint8_t>(publishing.Below(4));
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
  for (size_t t = 0; t < config.num_tiers; ++t) {
    TierSpec& tier = options.tiers.emplace_back();
    tier.name = DefaultTierName(Tier(t));
    for (const SimConfig::Window& window : config.windows) tier.blocks.push_back(window.blocks[t]);
    tier.min_priority = config.min_priority[t];
    tier.watermark_permille = config.watermark_permille[t];
    if (t != config.disk_index()) continue;
    tier.medium = Medium::kDisk;
    tier.write_bytes_per_second = config.write_bytes_per_second;
  }
  options.max_holes = config.max_holes;
  options.eviction_policy = config.eviction_policy;
  options.pin_budget_permille = config.pin_budget_permille;
  options.lifecycle_events = config.lifecycle;
  options.epoch = Epoch{config.seed + 1 + (incarnation << 32)};
  options.tenants = config.tenants;
  options.journal_slots = true;
  options.publish_min_uses = config.publish_min_uses;
  options.max_sessions = kMaxSessions;
  options.start_time = start;
  return options;
}

}  // namespace pagoda::sim
