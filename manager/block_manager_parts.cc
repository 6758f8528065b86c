// Puts the parts of BlockManager together.
#include "manager/block_manager_parts.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "manager/policy/eviction_policy.h"
#include "pools/sizing.h"

namespace pagoda {
namespace {

// A tier on disk must be the last one, below a tier in host memory in which every window has
// blocks: blocks pass through that tier.
absl::Status CheckDisk(absl::Span<const TierSpec> tiers, size_t num_windows) {
  for (size_t t = 0; t < tiers.size(); ++t) {
    if (tiers[t].medium != Medium::kDisk) continue;
    const auto refuse = [&](absl::string_view why) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("tier '", tiers[t].name, "' is on disk, but ", why));
    };
    if (t + 1 != tiers.size()) return refuse("is not the last one");
    if (t == 0 || tiers[t - 1].medium != Medium::kHost) {
      return refuse("the tier above it is not in host memory");
    }
    for (size_t w = 0; w < num_windows; ++w) {
      if (tiers[t].blocks_in(w) != 0 && tiers[t - 1].blocks_in(w) == 0) {
        return refuse("a window has blocks there and none in the tier above it");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const BlockManager::Options& options) {
  absl::Status tiers = CheckTiers(options.tiers, options.layout.windows().size());
  if (!tiers.ok()) return tiers;
  if (absl::Status status = CheckDisk(options.tiers, options.layout.windows().size());
      !status.ok()) {
    return status;
  }
  if (options.max_holes > kMaxBlocks || options.pin_budget_permille > 1000) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("max_holes is at most ", kMaxBlocks,
                                  ", and pin_budget_permille at most 1000"));
  }
  if (options.publish_min_uses.value_or(0) > BlockFacts::kMaxUses) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("publish_min_uses is ", *options.publish_min_uses,
                                  " and at most ", BlockFacts::kMaxUses));
  }
  return absl::OkStatus();
}

CacheInfo MakeInfo(const BlockManager::Options& options) {
  const CacheSpec& spec = options.layout.spec();
  CacheInfo info{.name = spec.name,
                 .model_fingerprint = spec.model_fingerprint,
                 .tokens_per_block = spec.tokens_per_block,
                 .tiers = {},
                 .windows = {}};
  for (const TierSpec& tier : options.tiers) {
    info.tiers.push_back({.name = tier.name, .medium = tier.medium});
  }
  for (size_t i = 0; i < options.layout.windows().size(); ++i) {
    CacheInfo::Window& window = info.windows.emplace_back();
    window.window = options.layout.windows()[i].window;
    for (const TierSpec& tier : options.tiers) window.blocks.push_back(tier.blocks_in(i));
  }
  return info;
}

std::string_view PolicyName(const BlockManager::Options& options) {
  return options.eviction_policy.empty() ? EvictionPolicyNames().front()
                                         : std::string_view(options.eviction_policy);
}

// The policies of one window. REQUIRES: there is a policy of that name.
TierPolicies MakePolicies(const BlockManager::Options& options, const PolicyTiers& tiers,
                          uint16_t num_tenants) {
  if (!options.make_policies) {
    return *MakeEvictionPolicies(PolicyName(options), tiers, num_tenants);
  }
  TierPolicies policies = options.make_policies(tiers, num_tenants);
  for (size_t t = 0; t < kMaxTiers; ++t) {
    PAGODA_CHECK(policies[t].size() == (tiers[t].num_slots == 0 ? 0 : num_tenants),
                 "each tenant has its own policy in each tier");
  }
  return policies;
}

// Null if the window has no blocks.
EvictionPolicy* AnyOf(const TierPolicies& policies) {
  const auto tier = std::find_if(policies.begin(), policies.end(),
                                 [](const auto& of_tier) { return !of_tier.empty(); });
  return tier == policies.end() ? nullptr : tier->front().get();
}

// The pin budget of one window.
uint32_t PinBudget(const BlockManager::Options& options, const CacheInfo::Window& window) {
  uint64_t blocks = 0;
  for (size_t t = 0; t < options.tiers.size(); ++t) {
    if (options.tiers[t].medium != Medium::kDisk) blocks += window.blocks_in(Tier(t));
  }
  return Permille(blocks, options.pin_budget_permille);
}

uint64_t WriteBytesPerSecond(const BlockManager::Options& options) {
  const TierSpec& last = options.tiers.back();
  return last.medium == Medium::kDisk ? last.write_bytes_per_second : 0;
}

uint64_t PinBudget(const BlockManager::Options& options, const CacheInfo& info) {
  uint64_t blocks = 0;
  for (const CacheInfo::Window& window : info.windows) blocks += PinBudget(options, window);
  return blocks;
}

// The blocks of the window that has most, over all tiers.
uint32_t MostBlocks(const CacheInfo& info) {
  uint64_t most = 0;
  for (const CacheInfo::Window& window : info.windows) {
    most = std::max<uint64_t>(most, window.all_blocks());
  }
  return static_cast<uint32_t>(most);
}

// Whether a window has blocks on disk.
bool HasDisk(const BlockManager::Options& options, const CacheInfo& info) {
  return options.tiers.back().medium == Medium::kDisk &&
         std::any_of(info.windows.begin(), info.windows.end(),
                     [](const CacheInfo::Window& window) { return window.blocks.back() != 0; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockManager>> BlockManager::Create(Options options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  if (absl::Status status = MakeEvictionPolicies(PolicyName(options), {}, 1).status();
      !status.ok()) {
    return status;
  }
  absl::StatusOr<TenantTable> tenants =
      TenantTable::Create(options.tenants, options.default_tenant_share);
  if (!tenants.ok()) return tenants.status();
  CacheInfo info = MakeInfo(options);
  auto parts = std::make_unique<Parts>(std::move(options), *std::move(tenants), info);
  return absl::WrapUnique(new BlockManager(std::move(info), std::move(parts)));
}

BlockManager::BlockManager(CacheInfo info, std::unique_ptr<Parts> parts)
    : info_(std::move(info)),
      parts_(std::move(parts)),
      sequences_(parts_->sequences),
      raw_blocks_(parts_->raw_blocks),
      prefixes_(parts_->prefixes),
      endings_(parts_->endings),
      lists_(parts_->lists),
      restart_(parts_->restart) {}

BlockManager::~BlockManager() = default;

BlockManager::Parts::Parts(Options from, TenantTable table, const CacheInfo& info)
    : options(std::move(from)),
      tenants(std::move(table)),
      recorder(options.record_events, options.lifecycle_events),
      copies(&lanes),
      write_budget(WriteBytesPerSecond(options), options.start_time),
      accounts(&tenants, options.sequence_limits),
      sessions(options.max_sessions, tenants.size(), options.last_session),
      windows(TokensPerBlock(info.tokens_per_block)),
      capacity(windows, accounts),
      matcher(windows),
      pins({.budget_blocks = PinBudget(options, info), .max_lease = options.max_pin_lease}, tenants,
           sessions, windows, matcher, capacity, recorder, deadlines),
      deferred(windows, sessions),
      runner(recorder, deadlines, windows, pins, deferred),
      sequences(tenants, copies, windows, capacity, matcher, accounts, sessions, runner),
      raw_blocks(options.lifecycle_events, windows, capacity, sequences, sessions, recorder,
                 runner),
      prefixes(options.tiers.size(), tenants, sessions, windows, matcher, sequences, pins, runner),
      endings(windows, accounts, sessions, deferred, runner, raw_blocks, sequences),
      reset(windows, pins),
      restart(windows, policies, runner),
      lists(options.tiers, tenants, accounts, sessions, windows, matcher, sequences, recorder) {
  const uint32_t most_blocks = MostBlocks(info);
  runner.Begin(options.start_time);
  const CoreServices services{.recorder = &recorder,
                              .lanes = &lanes,
                              .copies = &copies,
                              .slot_changes = options.journal_slots ? &slot_changes : nullptr,
                              .pins = &pins,
                              .deadlines = &deadlines,
                              .write_budget = &write_budget};
  const bool has_disk = HasDisk(options, info);
  for (const CacheInfo::Window& window : info.windows) {
    WindowBlockManager::Options window_options{
        .window = window.window,
        .index = static_cast<uint32_t>(windows.size()),
        .tokens_per_block = windows.tokens_per_block(),
        .num_tiers = options.tiers.size(),
        .max_holes = options.max_holes == 0 ? std::min(most_blocks, kMaxBlocks) : options.max_holes,
        .pin_budget_blocks = PinBudget(options, window),
        .reuse_sample = options.reuse_sample,
        .max_distance_samples = options.max_distance_samples,
        .policy = options.make_policies ? std::string_view() : PolicyName(options),
        .tenants = &tenants,
        .block_bytes = options.layout.windows()[windows.size()].block_bytes()};
    // The largest window names all blocks of a prompt.
    if (&window == &info.windows.back()) window_options.publish_min_uses = options.publish_min_uses;
    for (size_t t = 0; t < options.tiers.size(); ++t) {
      window_options.tiers[t] = {
          .blocks = window.blocks_in(Tier(t)),
          .min_priority = options.tiers[t].min_priority,
          .on_disk = options.tiers[t].medium == Medium::kDisk,
          .staging_slots = has_disk && t + 2 == options.tiers.size() ? kStagingSlots : 0};
    }
    PolicyTiers tiers;
    for (size_t t = 0; t < kMaxTiers; ++t) {
      const auto& tier = window_options.tiers[t];
      if (tier.blocks == 0) continue;
      tiers[t] = {.num_slots = tier.num_slots(Tier(t)), .on_disk = tier.on_disk};
    }
    TierPolicies window_policies = MakePolicies(options, tiers, tenants.size());
    policies.push_back(AnyOf(window_policies));
    windows.Add(
        std::make_unique<WindowBlockManager>(window_options, std::move(window_policies), services));
    recorder.PoolsCreated(window.window, window_options.BlocksPerTier());
  }
}

}  // namespace pagoda
