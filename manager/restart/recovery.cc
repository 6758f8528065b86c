#include "manager/restart/recovery.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/thread.h"
#include "manager/restart/content_digest.h"
#include "manager/restart/slot_checksum.h"

namespace pagoda {
namespace {

// A valid stamp and the result of its checks.
struct Found {
  uint32_t window_index = 0;
  SlotRef slot;
  SlotStamp stamp;
  std::optional<RecoveryLoss> loss;
  bool recovered = false;

  // Whether its content is known to be right, whatever the slot's bytes are.
  bool content_known() const { return !loss.has_value() || *loss == RecoveryLoss::kChangedBytes; }
};

// --- Looking at slots ---

// Checks stamps and bytes, on several threads.
class SlotScan {
 public:
  SlotScan(PoolSet& pools, const StampSet& stamps, std::vector<Found>* found,
           const RecoveryOptions& options)
      : pools_(pools), stamps_(stamps), found_(*found), options_(options) {
    for (const Found& one : found_) total_bytes_ += BlockBytes(one);
  }

  // Returns the number of bytes read.
  uint64_t Run() {
    PAGODA_CHECK(options_.num_threads > 0, "a scan has a thread");
    std::vector<Thread> others;
    // If one cannot start, the others do its part.
    StartThreads(
        "pagoda-recovery", options_.num_threads - 1, [this] { Work(); }, &others)
        .IgnoreError();
    Work();
    for (Thread& other : others) other.Join();
    return total_bytes_;
  }

 private:
  static constexpr size_t kPiece = 16;  // Slots that a thread takes at a time.

  uint64_t BlockBytes(const Found& one) const {
    return pools_.layout().windows()[one.window_index].block_bytes();
  }

  void Work() {
    ContentDigester digester;
    for (size_t begin; (begin = next_.fetch_add(kPiece)) < found_.size();) {
      const size_t end = std::min(begin + kPiece, found_.size());
      uint64_t bytes = 0;
      for (size_t i = begin; i < end; ++i) {
        found_[i].loss = Look(found_[i], digester);
        bytes += BlockBytes(found_[i]);
      }
      Report(bytes);
    }
  }

  std::optional<RecoveryLoss> Look(Found& one, ContentDigester& digester) const {
    const SlotStamps& stamps = *stamps_.Find(one.window_index, one.slot.tier);
    absl::StatusOr<std::optional<SlotStamp>> read = stamps.Read(one.slot.slot);
    if (!read.ok() || !read->has_value()) return RecoveryLoss::kDamagedStamp;
    one.stamp = **std::move(read);
    const SlotStamp& stamp = one.stamp;
    if (stamp.name_space.has_value() && stamp.parent != digester.OfNamespace(*stamp.name_space)) {
      return RecoveryLoss::kWrongDigest;
    }
    if (stamp.digest != digester.OfBlock(stamp.parent, stamp.key())) {
      return RecoveryLoss::kWrongDigest;
    }
    if (stamp.name_space.has_value() && options_.accepts && !options_.accepts(*stamp.name_space)) {
      return RecoveryLoss::kRefused;
    }
    if (stamp.bytes_checksum != ChecksumSlot(pools_, one.window_index, one.slot)) {
      return RecoveryLoss::kChangedBytes;
    }
    return std::nullopt;
  }

  void Report(uint64_t bytes) {
    if (options_.progress == nullptr) return;
    absl::MutexLock lock(&mutex_);
    done_bytes_ += bytes;
    options_.progress(done_bytes_, total_bytes_);
  }

  PoolSet& pools_;
  const StampSet& stamps_;
  std::vector<Found>& found_;
  const RecoveryOptions& options_;
  uint64_t total_bytes_ = 0;
  std::atomic<size_t> next_ = 0;
  absl::Mutex mutex_;
  uint64_t done_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// --- Linking children to parents ---

using ByDigest = absl::flat_hash_map<ContentDigest, const Found*>;

// Makes the list of one window.
class WindowLinks {
 public:
  // `known` has the contents of all windows.
  WindowLinks(WindowSize window, uint32_t tokens_per_block, uint32_t max_holes,
              const ByDigest& known)
      : sliding_(window != kFullAttention),
        tokens_per_block_(tokens_per_block),
        max_holes_(max_holes),
        known_(known) {
    out_.window = window;
  }

  // Adds a block whose bytes are there. If two slots of a tier have it, the first one counts.
  void Add(Found& one) {
    Found*& place = own_[one.stamp.digest][one.slot.tier.value()];
    if (place == nullptr) place = &one;
  }

  // Puts the content into the list, and the contents above it before it. Returns the reason if it
  // cannot be there.
  std::optional<RecoveryLoss> Place(const ContentDigest& digest) {
    std::vector<const SlotStamp*>
        path;  // From the content up to the first one that is in the list.
    size_t parent = RecoveredBlock::kRoot;
    for (const ContentDigest* next = &digest;;) {
      if (const auto place = places_.find(*next); place != places_.end()) {
        parent = place->second;
        break;
      }
      const auto lost = lost_.find(*next);
      const SlotStamp* const stamp = lost == lost_.end() ? ContentOf(*next) : nullptr;
      // A tail has no children.
      if (stamp == nullptr || (!path.empty() && !stamp->IsWhole(tokens_per_block_))) {
        if (path.empty() && lost != lost_.end()) return lost->second;
        return Lose(path, path.size(), RecoveryLoss::kUnreachable);
      }
      path.push_back(stamp);
      if (stamp->name_space.has_value()) break;
      next = &stamp->parent;
    }
    if (!path.empty() && parent != RecoveredBlock::kRoot &&
        !out_.blocks[parent].IsWhole(tokens_per_block_)) {
      return Lose(path, path.size(), RecoveryLoss::kUnreachable);
    }
    const auto holes = std::count_if(path.begin(), path.end(), [&](const SlotStamp* stamp) {
      return !own_.contains(stamp->digest);
    });
    if (holes_ + static_cast<uint64_t>(holes) > max_holes_) return RecoveryLoss::kRefused;
    for (size_t i = path.size(); i-- > 0;) {
      if (!Append(*path[i], parent)) return Lose(path, i + 1, RecoveryLoss::kNearerThanParent);
      parent = out_.blocks.size() - 1;
    }
    return std::nullopt;
  }

  uint64_t holes() const { return holes_; }
  RecoveredWindow Take() { return std::move(out_); }

 private:
  using ByTier = std::array<Found*, kMaxTiers>;

  static Found* FirstFrom(const ByTier& slots, size_t nearest) {
    const auto found = std::find_if(slots.begin() + static_cast<ptrdiff_t>(nearest), slots.end(),
                                    [](const Found* one) { return one != nullptr; });
    return found == slots.end() ? nullptr : *found;
  }

  const SlotStamp* ContentOf(const ContentDigest& digest) const {
    if (const auto own = own_.find(digest); own != own_.end()) {
      for (const Found* one : own->second) {
        if (one != nullptr) return &one->stamp;
      }
    }
    const auto known = sliding_ ? known_.find(digest) : known_.end();
    return known == known_.end() ? nullptr : &known->second->stamp;
  }

  // False if, under full attention, its only slot is nearer than its parent's.
  bool Append(const SlotStamp& stamp, size_t parent) {
    RecoveredBlock block{.slot = {kPrimaryTier, kNoSlot},
                         .parent = parent,
                         .name_space = stamp.name_space.value_or(NamespaceKey{}),
                         .tokens = stamp.tokens,
                         .extras = stamp.extras,
                         .priority = stamp.priority,
                         .keyed = stamp.keyed};
    if (const auto own = own_.find(stamp.digest); own != own_.end()) {
      // The nearest slot that is no nearer than the parent's.
      const bool bound = !sliding_ && parent != RecoveredBlock::kRoot;
      const size_t nearest = bound ? out_.blocks[parent].slot.tier.value() : 0;
      Found* const one = FirstFrom(own->second, nearest);
      if (one == nullptr) return false;
      one->recovered = true;
      block.slot = one->slot;
      block.priority = one->stamp.priority;
    } else {
      ++holes_;
    }
    places_.emplace(stamp.digest, out_.blocks.size());
    out_.blocks.push_back(std::move(block));
    return true;
  }

  // The first `count` contents of the path have no place: the last of them because of `loss`, the
  // others because they lie below it. Returns the loss of the first.
  RecoveryLoss Lose(const std::vector<const SlotStamp*>& path, size_t count, RecoveryLoss loss) {
    for (size_t i = 0; i < count; ++i) {
      lost_[path[i]->digest] = i + 1 == count ? loss : RecoveryLoss::kUnreachable;
    }
    return count <= 1 ? loss : RecoveryLoss::kUnreachable;
  }

  const bool sliding_;
  const size_t tokens_per_block_;
  const uint64_t max_holes_;
  const ByDigest& known_;
  absl::flat_hash_map<ContentDigest, ByTier> own_;
  absl::flat_hash_map<ContentDigest, size_t> places_;  // Indexes into out_.blocks.
  absl::flat_hash_map<ContentDigest, RecoveryLoss> lost_;
  RecoveredWindow out_;
  uint64_t holes_ = 0;
};

// --- The whole recovery ---

// The slots with valid stamps, in windows and tiers whose memory was adopted.
std::vector<Found> FindStamps(const PoolSet& pools, const StampSet& stamps,
                              RecoveryReport& report) {
  std::vector<Found> found;
  for (uint32_t w = 0; w < stamps.num_windows(); ++w) {
    for (size_t t = 0; t < kMaxTiers; ++t) {
      const Tier tier(t);
      const SlotStamps* const slots = stamps.Find(w, tier);
      if (slots == nullptr) continue;
      const bool pools_adopted = pools.adopted(w, tier);
      if (!slots->adopted() || !pools_adopted) {
        report.not_adopted.push_back(absl::StrCat(
            "window ", WindowName(pools.layout().windows()[w].window), ", ", DefaultTierName(tier),
            ": ", pools_adopted ? slots->fresh_because() : "no pools of this size were left"));
        continue;
      }
      for (uint32_t slot = 0; slot < slots->num_slots(); ++slot) {
        if (!slots->IsValid(SlotIndex{slot})) continue;
        found.push_back({.window_index = w, .slot = {tier, SlotIndex{slot}}});
      }
    }
  }
  return found;
}

std::vector<RecoveredWindow> Link(const CacheLayout& layout, std::vector<Found>& found,
                                  uint32_t max_holes, RecoveryReport& report) {
  ByDigest known;
  std::vector<WindowLinks> links;
  for (const WindowLayout& window : layout.windows()) {
    links.emplace_back(window.window, layout.spec().tokens_per_block, max_holes, known);
  }
  for (Found& one : found) {
    if (one.content_known()) known.emplace(one.stamp.digest, &one);
    if (!one.loss.has_value()) links[one.window_index].Add(one);
  }
  for (Found& one : found) {
    if (!one.loss.has_value()) one.loss = links[one.window_index].Place(one.stamp.digest);
  }
  std::vector<RecoveredWindow> windows;
  for (WindowLinks& window : links) {
    report.holes += window.holes();
    windows.push_back(window.Take());
  }
  return windows;
}

// Otherwise a stamp without a block would count again at the next start.
void InvalidateOthers(StampSet& stamps, const std::vector<Found>& found) {
  std::vector<std::array<std::vector<bool>, kMaxTiers>> keep(stamps.num_windows());
  for (const Found& one : found) {
    std::vector<bool>& slots = keep[one.window_index][one.slot.tier.value()];
    slots.resize(stamps.Find(one.window_index, one.slot.tier)->num_slots());
    slots[one.slot.slot.value()] = one.recovered;
  }
  for (uint32_t w = 0; w < stamps.num_windows(); ++w) {
    for (size_t t = 0; t < kMaxTiers; ++t) {
      SlotStamps* const slots = stamps.Find(w, Tier(t));
      const std::vector<bool>& kept = keep[w][t];
      for (uint32_t slot = 0; slots != nullptr && slot < slots->num_slots(); ++slot) {
        const bool stays = !kept.empty() && kept[slot];
        if (!stays && slots->IsValid(SlotIndex{slot})) slots->Invalidate(SlotIndex{slot});
      }
    }
  }
}

}  // namespace

std::string_view RecoveryLossName(RecoveryLoss loss) {
  switch (loss) {
    case RecoveryLoss::kDamagedStamp:
      return "damaged stamp";
    case RecoveryLoss::kWrongDigest:
      return "wrong digest";
    case RecoveryLoss::kChangedBytes:
      return "changed bytes";
    case RecoveryLoss::kDuplicate:
      return "duplicate";
    case RecoveryLoss::kUnreachable:
      return "unreachable";
    case RecoveryLoss::kNearerThanParent:
      return "nearer than its parent";
    case RecoveryLoss::kRefused:
      return "refused";
  }
  return "unknown";
}

std::string Describe(const RecoveryReport& report) {
  std::string text =
      absl::StrCat("blocks recovered: ", report.recovered, " of ", report.found, ", and ",
                   Counted(report.holes, "hole"), "; ", report.checked_bytes, " bytes checked in ",
                   absl::FormatDuration(report.duration));
  for (size_t i = 0; i < kNumRecoveryLosses; ++i) {
    if (report.lost[i] == 0) continue;
    const std::string_view name = RecoveryLossName(static_cast<RecoveryLoss>(i));
    absl::StrAppend(&text, "; ", absl::string_view(name.data(), name.size()), ": ", report.lost[i]);
  }
  if (report.not_adopted.empty()) return text;
  return absl::StrCat(text, "; nothing to recover in ", absl::StrJoin(report.not_adopted, "; "));
}

Recovery Recover(PoolSet& pools, StampSet& stamps, const RecoveryOptions& options) {
  const absl::Time begin = absl::Now();
  Recovery recovery;
  RecoveryReport& report = recovery.report;
  std::vector<Found> found = FindStamps(pools, stamps, report);
  report.found = found.size();
  report.checked_bytes = SlotScan(pools, stamps, &found, options).Run();
  recovery.windows = Link(pools.layout(), found, options.max_holes, report);
  for (const Found& one : found) {
    if (one.recovered) {
      ++report.recovered;
    } else {
      ++report.lost[static_cast<size_t>(one.loss.value_or(RecoveryLoss::kDuplicate))];
    }
  }
  InvalidateOthers(stamps, found);
  report.duration = absl::Now() - begin;
  return recovery;
}

}  // namespace pagoda
