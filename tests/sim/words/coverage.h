// The cases that the runs have met: a simulation that never meets a case proves nothing about it.
#ifndef PAGODA_TESTS_SIM_WORDS_COVERAGE_H_
#define PAGODA_TESTS_SIM_WORDS_COVERAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pagoda::sim {

enum class Met : uint8_t {
  kMatch,         // Sequences that began with a match.
  kPartialMatch,  // Matches of these that include a part of a block.
  kCutMatch,      // Matches cut to a whole block because blocks were scarce.
  kTakenOver,
  kExhausted,  // Refusals because blocks were scarce.
  kOtherRefusal,
  kEvicted,
  kDisplaced,
  kOffloaded,   // Blocks that fell to a lower tier.
  kMiddleFell,  // Blocks that fell from a tier below the first.
  kFellPast,    // Blocks that fell past a tier that the window has.
  kKeptOut,     // Times that a tier's policy kept its victim instead of the block that came.
  kOnboarded,
  kOnboardedFar,      // Blocks onboarded from beyond the second tier.
  kSwappedFar,        // Swaps through the spare of a tier beyond the second.
  kMatchBelow,        // Matched blocks below the first tier.
  kFreelyEvicted,     // Blocks that fell to one of their copies.
  kDuplicateDropped,  // Copies given up whose blocks have a nearer one.
  kLostOneCopy,       // Blocks that stayed cached below after a failed copy.
  kHole,
  kHoleFilled,
  kCanonical,       // Blocks published whose content was cached already.
  kCanonicalMoved,  // Canonical blocks in a lower tier, which took the new slot.
  kDetached,        // Sequences whose path left the tree.
  kTailCopied,      // A fork's borrowed tail.
  kCutCopied,       // A truncation into a block in use.
  kCutInPlace,
  kWindowPassed,
  kSlid,  // Entries that a sliding window released.
  kCopy,
  kCopyFailed,
  kLost,  // Blocks that left the tree with a failed copy.
  kShortened,
  kKvLost,
  kDeferredReleased,
  kPinned,
  kPinExpired,
  kPinCut,  // Pins that ended because their prefix left the tree.
  kPinBudget,
  kPriorityExpired,
  kSessionExpired,
  kQuarantined,  // Sessions that ended with blocks that they could still write.
  kInvalidated,
  kCleared,
  kTailInLonger,      // Tails not cached, because a longer block begins with them.
  kTailTakenOver,     // Tails that left, because a longer block begins with them.
  kBesideHole,        // Matches that end at a hole.
  kSnapshot,          // Snapshots that a late subscriber read to the end.
  kQuotaExceeded,     // Refusals because of a quota.
  kHeldByTwoTenants,  // Blocks, counted after each operation.
  kForeignCloseRefused,
  kEndingContinued,     // Chunks in which ended sessions and quarantines were freed.
  kEndingAcknowledged,  // Clients that acknowledged while their sessions ended.
  kRestarted,
  kRecovered,
  kDuringReset,  // Operations that ran while a reset was under way.
  kTaken,        // Blocks whose time outside the tree began, if events report all.
  kReleased,     // Blocks whose time outside the tree ended.
  kBackedUp,     // Blocks that got a copy on disk.
  kFellToDisk,   // Blocks that fell to their copy on disk.
  kFetched,
  kFetchFailed,
  kFetchLate,        // Read, and not used.
  kDiskDisplaced,    // Blocks on disk alone that left for other blocks.
  kDiskCopyDropped,  // Copies on disk given up whose blocks have a nearer one.
  kBackupFailed,
  kErased,  // Erases that were reported.
  kRecoveredFromDisk,
  kBudgetShort,      // Calls in which a backup waited for the write budget.
  kMatchedBeyond,    // Matches that blocks on disk could continue.
  kKeyedMatch,       // Sequences in keyed name spaces that matched.
  kMatchedAll,       // Matches of keyed sequences up to the last block.
  kPublishable,      // Prefixes that were worth publishing.
  kPublishableDeep,  // Those of several blocks.
  kCount,
};

inline constexpr std::array<std::string_view, static_cast<size_t>(Met::kCount)> kMetNames = {
    "match",
    "partial_match",
    "cut_match",
    "taken_over",
    "exhausted",
    "other_refusal",
    "evicted",
    "displaced",
    "offloaded",
    "middle_fell",
    "fell_past",
    "kept_out",
    "onboarded",
    "onboarded_far",
    "swapped_far",
    "match_below",
    "freely_evicted",
    "duplicate_dropped",
    "lost_one_copy",
    "hole",
    "hole_filled",
    "canonical",
    "canonical_moved",
    "detached",
    "tail_copied",
    "cut_copied",
    "cut_in_place",
    "window_passed",
    "slid",
    "copy",
    "copy_failed",
    "lost",
    "shortened",
    "kv_lost",
    "drained",
    "pinned",
    "pin_expired",
    "pin_cut",
    "pin_budget",
    "priority_expired",
    "session_expired",
    "quarantined",
    "invalidated",
    "cleared",
    "tail_in_longer",
    "tail_taken_over",
    "beside_hole",
    "snapshot",
    "quota",
    "two_tenants",
    "foreign_close",
    "ending_continued",
    "ending_acked",
    "restarted",
    "recovered",
    "during_reset",
    "taken",
    "released",
    "backed_up",
    "fell_to_disk",
    "fetched",
    "fetch_failed",
    "fetch_late",
    "disk_displaced",
    "disk_copy_dropped",
    "backup_failed",
    "erased",
    "found_on_disk",
    "budget_short",
    "matched_beyond",
    "keyed_match",
    "matched_all",
    "publishable",
    "publishable_deep",
};

struct Coverage {
  std::array<uint64_t, static_cast<size_t>(Met::kCount)> counts = {};

  uint64_t count(Met met) const { return counts[static_cast<size_t>(met)]; }
  void Add(Met met, uint64_t count = 1) { counts[static_cast<size_t>(met)] += count; }
  void Add(const Coverage& other) {
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  }
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_WORDS_COVERAGE_H_
