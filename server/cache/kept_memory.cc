#include "server/cache/kept_memory.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <variant>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "manager/restart/slot_checksum.h"
#include "manager/restart/slot_stamps.h"
#include "server/log/log.h"

namespace pagoda::server {
namespace {

// More threads do not read memory faster.
constexpr uint32_t kMaxRecoveryThreads = 8;

// A number that is equal for equal budgets. The stamps store it next to the sizes.
uint64_t BudgetsNote(const Config::Cache& cache) {
  const auto text = [](const TierBudget& budget) {
    const auto* share = std::get_if<FractionBudget>(&budget);
    return share == nullptr ? std::string("fixed") : absl::StrCat(share->fraction);
  };
  std::string all;
  for (const Config::Cache::TierConfig& tier : cache.AllTiers()) {
    absl::StrAppend(&all, text(tier.size), " ");
  }
  absl::StrAppend(&all, cache.workload.sequence_tokens, " ", cache.workload.chunk_tokens);
  return Checksum(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(all.data()), all.size()));
}

// The blocks of each window that the last run had in the tier, without `extra_slots`. None if it
// left no memory of this layout and these budgets.
std::optional<std::vector<uint32_t>> BlocksOfTheLastRun(const CacheLayout& layout,
                                                        const std::string& instance, Tier tier,
                                                        uint32_t extra_slots, uint64_t note) {
  std::vector<uint32_t> blocks;
  for (uint32_t w = 0; w < layout.windows().size(); ++w) {
    const std::optional<SlotStamps::Peeked> last =
        SlotStamps::Peek(StampsName(instance, layout.windows()[w].window, tier));
    if (!last.has_value() || last->note != note || last->num_slots <= extra_slots ||
        last->fingerprint != StampsFingerprint(layout, w, tier)) {
      return std::nullopt;
    }
    blocks.push_back(last->num_slots - extra_slots);
  }
  return blocks;
}

}  // namespace

absl::Status RemoveLeftMemory(const CacheLayout& layout, const std::string& instance) {
  if (absl::Status status = PoolSet::RemoveLeftovers(layout, instance); !status.ok()) return status;
  return StampSet::RemoveLeftovers(layout, instance);
}

absl::StatusOr<Config::Cache> WithSizesOfTheLastRun(Config::Cache cache, const CacheLayout& layout,
                                                    const std::string& instance) {
  const uint64_t note = BudgetsNote(cache);
  Config::Cache sized = cache;
  sized.tiers = cache.AllTiers();
  for (size_t t = 0; t < sized.tiers.size(); ++t) {
    TierBudget& budget = sized.tiers[t].size;
    if (!std::holds_alternative<FractionBudget>(budget)) continue;
    const Tier tier(t);
    const bool is_above_disk = t + 1 < sized.tiers.size() && sized.tiers[t + 1].on_disk();
    const uint32_t extra_slots = SpareSlots(tier) + (is_above_disk ? kStagingSlots : 0);
    std::optional<std::vector<uint32_t>> blocks =
        BlocksOfTheLastRun(layout, instance, tier, extra_slots, note);
    if (!blocks.has_value()) {
      if (absl::Status status = RemoveLeftMemory(layout, instance); !status.ok()) return status;
      return cache;
    }
    budget = BlockBudget{*std::move(blocks)};
  }
  return sized;
}

absl::StatusOr<std::unique_ptr<KeptMemory>> KeptMemory::Open(PoolSet* pools, const Options& options,
                                                             Supervisor* supervisor) {
  absl::StatusOr<std::unique_ptr<StampSet>> stamps =
      StampSet::Create(*pools, options.instance, BudgetsNote(options.budgets));
  if (!stamps.ok()) return stamps.status();
  uint64_t last_percent = 0;
  Recovery recovery = Recover(
      *pools, **stamps,
      {.num_threads = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxRecoveryThreads),
       .max_holes = options.max_holes,
       .accepts = options.accepts,
       .progress = [&](uint64_t done, uint64_t total) {
         const uint64_t percent = done * 100 / std::max<uint64_t>(total, 1);
         if (std::exchange(last_percent, percent) == percent) return;
         supervisor->Status(
             absl::StrCat("starting: checking the last run's memory: ", percent, " %"));
       }});
  Log(LogLevel::kInfo, absl::StrCat("warm restart: ", Describe(recovery.report)));
  auto kept = absl::WrapUnique(
      new KeptMemory(pools, *std::move(stamps), std::move(recovery), pools->HasOtherUsers()));
  if (!kept->stamper_.started().ok()) return kept->stamper_.started();
  return kept;
}

}  // namespace pagoda::server
