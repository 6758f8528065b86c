// How the parts of BlockManager are put together.
#include "manager/block_manager_parts.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "manager/eviction_policy.h"
#include "manager/pin_table.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {
namespace {

static_assert(BlockManager::kMaxPins == PinTable::kMaxPins);

absl::Status CheckOptions(const BlockManager::Options& options) {
  const size_t windows = options.layout.windows().size();
  PAGODA_CHECK(options.primary_blocks.size() == windows, "one block count a window");
  PAGODA_CHECK(options.secondary_blocks.empty() || options.secondary_blocks.size() == windows,
               "one block count a window, or none");
  for (size_t i = 0; i < windows; ++i) {
    const uint32_t primary = options.primary_blocks[i];
    const uint32_t secondary = options.secondary_blocks.empty() ? 0 : options.secondary_blocks[i];
    if (primary == 0 || primary > kMaxBlocks || secondary > kMaxBlocks) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("a window of ", primary, " primary and ", secondary,
                                    " secondary blocks; 1 to ", kMaxBlocks, " and up to ",
                                    kMaxBlocks, " are served"));
    }
  }
  if (options.max_holes > kMaxBlocks || options.offload_min_priority.value() > kMaxPriority ||
      options.offload_watermark_permille > 1000 || options.pin_budget_permille > 1000) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("max_holes is at most ", kMaxBlocks, ", a priority at most ",
                                  kMaxPriority, ", a share at most 1000 thousandths"));
  }
  return absl::OkStatus();
}

CacheInfo MakeInfo(const BlockManager::Options& options) {
  const CacheSpec& spec = options.layout.spec();
  CacheInfo info{.name = spec.name,
                 .model_fingerprint = spec.model_fingerprint,
                 .rank = spec.rank,
                 .tokens_per_block = spec.tokens_per_block,
                 .windows = {}};
  for (size_t i = 0; i < options.layout.windows().size(); ++i) {
    info.windows.push_back(
        {.window = options.layout.windows()[i].window,
         .primary_blocks = options.primary_blocks[i],
         .secondary_blocks = options.secondary_blocks.empty() ? 0 : options.secondary_blocks[i]});
  }
  return info;
}

std::vector<WindowSize> WindowSizes(const CacheInfo& info) {
  std::vector<WindowSize> sizes;
  for (const CacheInfo::Window& window : info.windows) sizes.push_back(window.window);
  return sizes;
}

std::string_view PolicyName(const BlockManager::Options& options) {
  return options.eviction_policy.empty() ? EvictionPolicyNames().front()
                                         : std::string_view(options.eviction_policy);
}

// Of one window.
uint32_t PinBudget(const BlockManager::Options& options, const CacheInfo::Window& window) {
  return Permille(uint64_t{window.primary_blocks} + window.secondary_blocks,
                  options.pin_budget_permille);
}

uint64_t PinBudget(const BlockManager::Options& options, const CacheInfo& info) {
  uint64_t blocks = 0;
  for (const CacheInfo::Window& window : info.windows) blocks += PinBudget(options, window);
  return blocks;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockManager>> BlockManager::Create(Options options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  if (absl::Status status = MakeEvictionPolicies(PolicyName(options), 1, 1).status();
      !status.ok()) {
    return status;
  }
  absl::StatusOr<TenantTable> tenants = TenantTable::Create(options.tenants, options.commons_share);
  if (!tenants.ok()) return tenants.status();
  CacheInfo info = MakeInfo(options);
  auto parts = std::make_unique<Parts>(std::move(options), *std::move(tenants), info);
  return absl::WrapUnique(new BlockManager(std::move(info), std::move(parts)));
}

BlockManager::BlockManager(CacheInfo info, std::unique_ptr<Parts> parts)
    : info_(std::move(info)), parts_(std::move(parts)) {}

BlockManager::~BlockManager() = default;

BlockManager::Parts::Parts(Options from, TenantTable table, const CacheInfo& info)
    : options(std::move(from)),
      tenants(std::move(table)),
      recorder(options.record_events),
      copies(WindowSizes(info)),
      accounts(&tenants, options.sequence_limits),
      sessions(options.max_sessions, tenants.size()),
      windows(TokensPerBlock(info.tokens_per_block)),
      room(windows, accounts),
      matcher(windows),
      pins({.budget_blocks = PinBudget(options, info), .max_lease = options.max_pin_lease}, tenants,
           sessions, windows, matcher, room, recorder, deadlines),
      drains(windows, sessions),
      runner(recorder, deadlines, windows, pins, drains),
      raw_blocks(options.lifecycle_events, windows, room, sessions, recorder, runner),
      sequences(tenants, copies, windows, room, matcher, accounts, sessions, runner),
      endings(windows, accounts, sessions, drains, runner, raw_blocks, sequences),
      reset(windows, pins) {
  uint32_t most_blocks = 0;
  for (const CacheInfo::Window& window : info.windows) {
    most_blocks = std::max(most_blocks, window.primary_blocks + window.secondary_blocks);
  }
  runner.Begin(options.start_time);
  const CoreServices services{.recorder = &recorder,
                              .copies = &copies,
                              .slot_changes = options.journal_slots ? &slot_changes : nullptr,
                              .pins = &pins,
                              .deadlines = &deadlines};
  for (const CacheInfo::Window& window : info.windows) {
    const WindowBlockManager::Options window_options{
        .window = window.window,
        .index = static_cast<uint32_t>(windows.size()),
        .tokens_per_block = windows.tokens_per_block(),
        .blocks = {window.primary_blocks, window.secondary_blocks},
        .max_holes = options.max_holes == 0 ? most_blocks : options.max_holes,
        .pin_budget_blocks = PinBudget(options, window),
        .offload_min_priority = options.offload_min_priority,
        .lives_sample = options.lives_sample,
        .tenants = &tenants};
    const uint32_t num_ids = WindowBlockManager::NumIds(window_options);
    WindowBlockManager::Policies policies;
    for (size_t t = 0; t < kNumTiers; ++t) {
      if (window_options.blocks[t] == 0) continue;
      policies[t] = *MakeEvictionPolicies(PolicyName(options), num_ids, tenants.size());
    }
    windows.Add(
        std::make_unique<WindowBlockManager>(window_options, std::move(policies), services));
    recorder.PoolsCreated(window.window, {window.primary_blocks, window.secondary_blocks});
  }
}

}  // namespace pagoda
