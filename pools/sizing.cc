#include "pools/sizing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {
namespace {

constexpr uint64_t kBillion = 1'000'000'000;

// A tier of the request, and its index.
struct Wanted {
  Tier tier;
  const TierRequest& request;
  bool is_above_disk = false;  // The next tier is on disk and has blocks.

  bool is_first() const { return tier == kPrimaryTier; }
  bool is_on_disk() const { return request.medium == Medium::kDisk; }
  // The slots of a window beyond its blocks.
  uint64_t extra_slots() const {
    if (is_on_disk()) return 0;
    return SpareSlots(tier) + (is_above_disk ? kStagingSlots : 0);
  }
  std::string Extras() const {
    if (extra_slots() == 0) return "";
    if (extra_slots() == SpareSlots(tier)) return " (one is the spare)";
    return absl::StrCat(" (", extra_slots(), " are for copies on their way)");
  }
  std::string Name() const {
    return absl::StrCat("the ", request.name.empty() ? DefaultTierName(tier) : request.name,
                        " tier");
  }
};

bool IsNothing(const TierBudget& budget) {
  if (const auto* bytes = std::get_if<ByteBudget>(&budget)) return bytes->bytes == 0;
  if (const auto* blocks = std::get_if<BlockBudget>(&budget)) {
    return std::all_of(blocks->blocks.begin(), blocks->blocks.end(),
                       [](uint32_t count) { return count == 0; });
  }
  return false;
}

absl::Status Invalid(std::string_view message) {
  return MakeError(Reason::kInvalidArgument, message);
}

absl::Status TooManyBytes(std::string_view what) {
  return Invalid(std::string(what) + " takes more bytes than fit in 64 bits");
}

absl::Status CheckWorkload(const Workload& workload) {
  if (workload.max_sequence_tokens > 0 && workload.concurrent_sequences > 0) {
    return absl::OkStatus();
  }
  return Invalid(absl::StrCat("a workload of ", Counted(workload.concurrent_sequences, "sequence"),
                              " of ", Counted(workload.max_sequence_tokens, "token"),
                              "; neither may be 0"));
}

uint64_t TokensInWindow(WindowSize window, const Workload& workload) {
  return std::min(workload.max_sequence_tokens, window.value());
}

// The demand of one sequence in a window, in blocks or in tokens. A token weighs as much as a
// block: all windows' weights then have the same factor, and no division rounds.
struct Need {
  uint64_t units = 0;
  uint64_t block_bytes = 0;

  absl::uint128 weight() const { return absl::uint128(units) * block_bytes; }
};

std::vector<Need> NeedsOf(const CacheLayout& layout, const Workload& workload, ShareBy by) {
  const TokensPerBlock tokens_per_block(layout.spec().tokens_per_block);
  std::vector<Need> needs;
  for (const WindowLayout& window : layout.windows()) {
    needs.push_back({.units = by == ShareBy::kTokensInWindow
                                  ? TokensInWindow(window.window, workload)
                                  : BlocksPerSequence(window.window, tokens_per_block, workload),
                     .block_bytes = window.block_bytes()});
  }
  return needs;
}

// Divides `bytes` into blocks for each need: at least one block, and beyond that in proportion to
// the needs' bytes. REQUIRES: one block of each fits. No product overflows: bytes x units is below
// 2^64 x 2^34, and CacheLayout bounds a block's bytes by 2^47 and the windows by 2^12.
std::vector<uint64_t> Divide(uint64_t bytes, const std::vector<Need>& needs) {
  std::vector<uint64_t> blocks(needs.size(), 0);
  std::vector<bool> single(needs.size(), false);  // Gets one block, because its share is smaller.
  while (true) {
    absl::uint128 total = 0;
    for (size_t w = 0; w < needs.size(); ++w) {
      if (!single[w]) total += needs[w].weight();
    }
    uint64_t left = bytes;
    for (size_t w = 0; w < needs.size(); ++w) {
      if (single[w]) continue;
      blocks[w] = static_cast<uint64_t>(absl::uint128(bytes) * needs[w].units / total);
      if (blocks[w] > 0) continue;
      blocks[w] = 1;
      single[w] = true;
      left -= needs[w].block_bytes;
    }
    if (left == bytes) return blocks;
    bytes = left;  // For the other windows. At least one of them gets a block or more.
  }
}

// Checks that the tier holds one block of every window and its spares.
absl::Status CheckHoldsOneOfEach(const CacheLayout& layout, const Wanted& tier, uint64_t bytes,
                                 const std::string& budget) {
  const uint64_t slots = tier.extra_slots() + 1;
  absl::uint128 needed = 0;
  for (const WindowLayout& window : layout.windows()) {
    needed += absl::uint128(slots) * window.block_bytes();
  }
  if (needed <= bytes) return absl::OkStatus();
  const std::string sizes =
      absl::StrJoin(layout.windows(), ", ", [](std::string* out, const WindowLayout& window) {
        absl::StrAppend(out, window.block_bytes(), " in window ", WindowName(window.window));
      });
  return Invalid(absl::StrCat(tier.Name(), " gets ", budget, ", which does not hold ",
                              slots == 1   ? "one block"
                              : slots == 2 ? "two blocks"
                                           : Counted(slots, "block"),
                              tier.Extras(), " of every window; a block has bytes: ", sizes));
}

// A lower bound of the bytes for blocks in files of `file_bytes` bytes.
uint64_t PayloadBytes(const CacheLayout& layout, uint64_t file_bytes) {
  uint64_t payload = file_bytes;
  for (const WindowLayout& window : layout.windows()) {
    payload =
        std::min(payload, static_cast<uint64_t>(absl::uint128(file_bytes) * window.block_bytes() /
                                                FileSlotBytes(window.block_bytes())));
  }
  return payload;
}

absl::StatusOr<std::vector<uint64_t>> FromBytes(const CacheLayout& layout, const Workload& workload,
                                                const Wanted& tier, uint64_t bytes,
                                                const std::string& budget) {
  if (absl::Status status = CheckHoldsOneOfEach(layout, tier, bytes, budget); !status.ok()) {
    return status;
  }
  for (const WindowLayout& window : layout.windows()) {
    bytes -= tier.extra_slots() * window.block_bytes();
  }
  if (tier.is_on_disk()) bytes = PayloadBytes(layout, bytes);
  if (tier.is_first()) {
    return Divide(bytes, NeedsOf(layout, workload, ShareBy::kBlocksPerSequence));
  }
  return Divide(bytes, NeedsOf(layout, workload, ShareBy::kTokensInWindow));
}

absl::StatusOr<std::vector<uint64_t>> FromFraction(const CacheLayout& layout,
                                                   const Workload& workload, const Wanted& tier,
                                                   const FractionBudget& budget) {
  if (!(budget.fraction > 0 && budget.fraction <= 1)) {  // NaN too.
    return Invalid(absl::StrCat(tier.Name(), " gets ", budget.fraction,
                                " of the free memory; a fraction is above 0 and at most 1"));
  }
  const auto billionths = static_cast<uint64_t>(std::llround(budget.fraction * kBillion));
  const auto bytes =
      static_cast<uint64_t>(absl::uint128(budget.free_bytes) * billionths / kBillion);
  return FromBytes(
      layout, workload, tier, bytes,
      absl::StrCat(bytes, " bytes (", budget.fraction, " of ", budget.free_bytes, " free ones)"));
}

absl::StatusOr<std::vector<uint64_t>> FromBlocks(const CacheLayout& layout, const Wanted& tier,
                                                 const BlockBudget& budget) {
  const size_t num_windows = layout.windows().size();
  if (budget.blocks.size() != 1 && budget.blocks.size() != num_windows) {
    return Invalid(absl::StrCat(tier.Name(), " has ", Counted(budget.blocks.size(), "block count"),
                                "; 1 is needed, or one for each of ",
                                Counted(num_windows, "window")));
  }
  std::vector<uint64_t> blocks(num_windows);
  for (size_t w = 0; w < num_windows; ++w) {
    blocks[w] = budget.blocks[budget.blocks.size() == 1 ? 0 : w];
    if (blocks[w] > 0 || !tier.is_first()) continue;
    return Invalid(absl::StrCat(tier.Name(), " has no block of window ",
                                WindowName(layout.windows()[w].window)));
  }
  return blocks;
}

absl::StatusOr<std::vector<uint64_t>> TierBlocks(const CacheLayout& layout,
                                                 const Workload& workload, const Wanted& tier) {
  const TierBudget& budget = tier.request.budget;
  if (const auto* blocks = std::get_if<BlockBudget>(&budget)) {
    return FromBlocks(layout, tier, *blocks);
  }
  if (const auto* fraction = std::get_if<FractionBudget>(&budget)) {
    return FromFraction(layout, workload, tier, *fraction);
  }
  const uint64_t bytes = std::get<ByteBudget>(budget).bytes;
  if (bytes == 0 && !tier.is_first()) {
    return std::vector<uint64_t>(layout.windows().size(), 0);
  }
  return FromBytes(layout, workload, tier, bytes, absl::StrCat(bytes, " bytes"));
}

absl::Status AddTier(const Wanted& tier, const std::vector<uint64_t>& blocks, SizingPlan& plan) {
  absl::uint128 bytes = 0;
  for (size_t w = 0; w < blocks.size(); ++w) {
    SizingPlan::WindowPlan& window = plan.windows[w];
    if (blocks[w] > kMaxBlocks) {
      return Invalid(absl::StrCat(tier.Name(), " has ", Counted(blocks[w], "block"), " of window ",
                                  WindowName(window.window), "; at most ", kMaxBlocks,
                                  " are supported"));
    }
    const auto slots = static_cast<uint32_t>(blocks[w] == 0 ? 0 : blocks[w] + tier.extra_slots());
    const uint64_t slot_bytes =
        tier.is_on_disk() ? FileSlotBytes(window.bytes_per_block) : window.bytes_per_block;
    bytes += absl::uint128(slots) * slot_bytes;
    window.tiers.push_back(
        {.blocks = static_cast<uint32_t>(blocks[w]), .slots = slots, .bytes = slots * slot_bytes});
  }
  plan.media.push_back(tier.request.medium);
  return bytes > std::numeric_limits<uint64_t>::max() ? TooManyBytes(tier.Name())
                                                      : absl::OkStatus();
}

}  // namespace

uint64_t BytesPerToken(const WindowLayout& window) {
  const uint64_t tokens = window.pools.front().tokens_per_block;
  return (window.block_bytes() + tokens - 1) / tokens;
}

uint64_t BytesPerToken(const CacheLayout& layout) {
  uint64_t bytes = 0;
  for (const WindowLayout& window : layout.windows()) bytes += BytesPerToken(window);
  return bytes;
}

uint64_t BlocksPerSequence(WindowSize window, TokensPerBlock tokens_per_block,
                           const Workload& workload) {
  // In 64 bits: TokensPerBlock counts blocks in 32 bits, but window and chunk can both be large.
  const uint64_t per_block = tokens_per_block.value();
  const auto blocks_for = [per_block](uint64_t tokens) {
    return (tokens + per_block - 1) / per_block;
  };
  const uint64_t whole = blocks_for(workload.max_sequence_tokens);
  const uint64_t in_window = std::max(TokensInWindow(window, workload), per_block);
  return std::min(whole, blocks_for(in_window + workload.chunk_tokens) + 1);
}

absl::StatusOr<uint64_t> BytesForWorkload(const CacheLayout& layout, const Workload& workload) {
  if (absl::Status status = CheckWorkload(workload); !status.ok()) return status;
  absl::uint128 bytes = 0;
  for (const Need& need : NeedsOf(layout, workload, ShareBy::kBlocksPerSequence)) {
    bytes += need.weight() * workload.concurrent_sequences;  // Units are blocks.
  }
  if (bytes > std::numeric_limits<uint64_t>::max()) return TooManyBytes("the workload");
  return static_cast<uint64_t>(bytes);
}

std::vector<double> WindowShares(const CacheLayout& layout, const Workload& workload, ShareBy by) {
  PAGODA_CHECK(CheckWorkload(workload).ok(), "a workload that is not empty");
  const std::vector<Need> needs = NeedsOf(layout, workload, by);
  double total = 0;
  for (const Need& need : needs) total += static_cast<double>(need.weight());
  std::vector<double> shares;
  for (const Need& need : needs) shares.push_back(static_cast<double>(need.weight()) / total);
  return shares;
}

std::vector<uint32_t> SizingPlan::blocks(Tier tier) const {
  std::vector<uint32_t> counts;
  for (const WindowPlan& window : windows) counts.push_back(window.tier(tier).blocks);
  const bool any = std::any_of(counts.begin(), counts.end(), [](uint32_t n) { return n > 0; });
  return any ? counts : std::vector<uint32_t>();
}

SlotCounts SizingPlan::slots() const {
  SlotCounts counts;
  for (size_t t = 0; t < num_tiers(); ++t) {
    std::vector<uint32_t>& slots = counts.tiers.emplace_back();
    if (media[t] == Medium::kDisk) continue;
    for (const WindowPlan& window : windows) slots.push_back(window.tiers[t].slots);
  }
  return counts;
}

uint64_t SizingPlan::bytes(Tier tier) const {
  uint64_t bytes = 0;
  for (const WindowPlan& window : windows) bytes += window.tier(tier).bytes;
  return bytes;
}

uint64_t SizingPlan::max_concurrent_sequences() const {
  uint64_t fewest = std::numeric_limits<uint64_t>::max();
  for (const WindowPlan& window : windows) {
    fewest = std::min(fewest, window.tier(kPrimaryTier).blocks / window.blocks_per_sequence);
  }
  return fewest;
}

absl::StatusOr<SizingPlan> PlanSizes(const CacheLayout& layout, const SizingRequest& request) {
  if (absl::Status status = CheckWorkload(request.workload); !status.ok()) return status;
  if (request.tiers.empty() || request.tiers.size() > kMaxTiers) {
    return Invalid(absl::StrCat(request.tiers.size(), " tiers; a cache has 1 to ", kMaxTiers));
  }
  SizingPlan plan;
  const TokensPerBlock tokens_per_block(layout.spec().tokens_per_block);
  for (const WindowLayout& window : layout.windows()) {
    SizingPlan::WindowPlan& planned = plan.windows.emplace_back();
    planned.window = window.window;
    planned.bytes_per_token = BytesPerToken(window);
    planned.bytes_per_block = window.block_bytes();
    planned.blocks_per_sequence =
        BlocksPerSequence(window.window, tokens_per_block, request.workload);
  }
  for (size_t t = 0; t < request.tiers.size(); ++t) {
    const Wanted tier{.tier = Tier(t),
                      .request = request.tiers[t],
                      .is_above_disk = t + 1 < request.tiers.size() &&
                                       request.tiers[t + 1].medium == Medium::kDisk &&
                                       !IsNothing(request.tiers[t + 1].budget)};
    const absl::StatusOr<std::vector<uint64_t>> blocks = TierBlocks(layout, request.workload, tier);
    if (!blocks.ok()) return blocks.status();
    if (absl::Status status = AddTier(tier, *blocks, plan); !status.ok()) return status;
  }
  return plan;
}

}  // namespace pagoda
