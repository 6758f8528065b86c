#include "manager/disk/disk_recovery.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/counted.h"
#include "manager/disk/block_record.h"

namespace pagoda {
namespace {

struct Found {
  SlotIndex slot;
  BlockRecord record;
};

// The headers of one file.
struct ScannedFile {
  std::vector<Found> found;
  std::vector<SlotIndex> damaged;  // Intact headers with damaged records.
  uint64_t without_header = 0;     // Damaged headers, and slots that the disk cannot read.
};

// Two blocks of a list are the same if they have the same parent and the same key.
struct ContentHash {
  const std::vector<RecoveredBlock>* blocks;
  size_t operator()(size_t i) const {
    const RecoveredBlock& block = (*blocks)[i];
    return absl::HashOf(block.parent, block.name_space, block.tokens);
  }
};
struct SameContent {
  const std::vector<RecoveredBlock>* blocks;
  bool operator()(size_t i, size_t j) const {
    const RecoveredBlock& a = (*blocks)[i];
    const RecoveredBlock& b = (*blocks)[j];
    return a.parent == b.parent && a.name_space == b.name_space && SameKey(a.key(), b.key());
  }
};

// Builds the list of one window. Blocks are added in the order of their writes, so a parent comes
// before its children, and the later of two duplicates comes second.
class DiskLinks {
 public:
  DiskLinks(const CacheLayout& layout, uint32_t window_index, const DiskRecoveryOptions& options)
      : tokens_per_block_(layout.spec().tokens_per_block), options_(options) {
    out_.window = layout.windows()[window_index].window;
  }

  // If the block is not taken back, drops its slot in the ledger. Returns why a block is lost; that
  // can be a block that was added before.
  std::optional<DiskLoss> Add(Found found, WriteLedger& ledger) {
    BlockRecord& record = found.record;
    const std::optional<DiskLoss> loss = WhyLost(record);
    if (loss.has_value()) {
      ledger.Drop(found.slot);
      return loss;
    }
    const bool is_first = record.parent == kNoWrite;
    const size_t index = out_.blocks.size();
    out_.blocks.push_back(
        {.slot = {options_.tier, found.slot},
         .parent = is_first ? RecoveredBlock::kRoot : places_.at(record.parent),
         .name_space = std::move(record.content.name_space).value_or(NamespaceKey{}),
         .tokens = std::move(record.content.tokens),
         .extras = std::move(record.content.extras),
         .priority = record.content.priority,
         .keyed = record.content.keyed});
    ledger.Hold(found.slot, record.write_id);
    const auto [same, is_new] = contents_.insert(index);
    places_.emplace(record.write_id, *same);
    if (is_new) return std::nullopt;
    RecoveredBlock& earlier = out_.blocks[*same];
    ledger.Drop(earlier.slot.slot);
    earlier.slot.slot = found.slot;
    earlier.priority = record.content.priority;
    out_.blocks.pop_back();
    return DiskLoss::kDuplicate;
  }

  RecoveredWindow Take() { return std::move(out_); }

 private:
  std::optional<DiskLoss> WhyLost(const BlockRecord& record) const {
    if (record.parent == kNoWrite) {
      const bool refused = options_.accepts && !options_.accepts(*record.content.name_space);
      return refused ? std::optional(DiskLoss::kRefused) : std::nullopt;
    }
    const auto parent = places_.find(record.parent);
    if (parent == places_.end()) return DiskLoss::kUnreachable;
    // A tail has no children, and a block with a key has only children with keys.
    const RecoveredBlock& above = out_.blocks[parent->second];
    const bool fits = above.IsWhole(tokens_per_block_) && above.keyed == record.content.keyed;
    return fits ? std::nullopt : std::optional(DiskLoss::kUnreachable);
  }

  const size_t tokens_per_block_;
  const DiskRecoveryOptions& options_;
  RecoveredWindow out_;
  absl::flat_hash_map<WriteId, size_t> places_;  // In out_.blocks.
  absl::flat_hash_set<size_t, ContentHash, SameContent> contents_{0, ContentHash{&out_.blocks},
                                                                  SameContent{&out_.blocks}};
};

absl::StatusOr<ScannedFile> Scan(SlabFile& file, uint32_t tokens_per_block,
                                 const SlabFile::OnProgress& progress, DiskRecoveryReport& report) {
  ScannedFile scanned;
  const absl::StatusOr<SlabFile::ScanResult> result = file.Scan(
      [&](SlotIndex slot, SlabFile::Record bytes, uint64_t payload_bytes) {
        std::optional<BlockRecord> record = DecodeRecord(bytes, tokens_per_block);
        if (record.has_value() && payload_bytes == file.payload_bytes()) {
          scanned.found.push_back({slot, *std::move(record)});
        } else {
          scanned.damaged.push_back(slot);
        }
      },
      progress);
  if (!result.ok()) return result.status();
  report.found += result->blocks;
  report.damaged += result->damaged;
  report.unreadable += result->unreadable;
  scanned.without_header = result->damaged + result->unreadable;
  std::sort(scanned.found.begin(), scanned.found.end(),
            [](const Found& a, const Found& b) { return a.record.write_id < b.record.write_id; });
  return scanned;
}

}  // namespace

std::string_view DiskLossName(DiskLoss loss) {
  switch (loss) {
    case DiskLoss::kDamagedRecord:
      return "damaged record";
    case DiskLoss::kDuplicate:
      return "duplicate";
    case DiskLoss::kUnreachable:
      return "unreachable";
    case DiskLoss::kRefused:
      return "refused";
  }
  return "unknown";
}

bool HasDamage(const DiskRecoveryReport& report) {
  return !report.not_scanned.empty() ||
         std::any_of(report.damaged_slots.begin(), report.damaged_slots.end(),
                     [](uint64_t slots) { return slots > 0; });
}

std::string Describe(const DiskRecoveryReport& report) {
  std::string text = absl::StrCat("blocks on disk recovered: ", report.recovered, " of ",
                                  report.found, "; ", Counted(report.slots, "slot"), " scanned in ",
                                  absl::FormatDuration(report.duration));
  for (size_t i = 0; i < kNumDiskLosses; ++i) {
    if (report.lost[i] == 0) continue;
    const std::string_view name = DiskLossName(static_cast<DiskLoss>(i));
    absl::StrAppend(&text, "; ", absl::string_view(name.data(), name.size()), ": ", report.lost[i]);
  }
  if (report.damaged > 0) absl::StrAppend(&text, "; damaged headers: ", report.damaged);
  if (report.unreadable > 0) absl::StrAppend(&text, "; unreadable slots: ", report.unreadable);
  if (report.not_scanned.empty()) return text;
  return absl::StrCat(text, "; nothing to recover in ", absl::StrJoin(report.not_scanned, "; "));
}

DiskRecovery RecoverDisk(const DiskFiles& files, const DiskRecoveryOptions& options) {
  const absl::Time begin = absl::Now();
  const auto now = static_cast<WriteId>(std::max<int64_t>(absl::ToUnixMicros(options.now), 1));
  const CacheLayout& layout = files.layout();
  DiskRecovery recovery;
  DiskRecoveryReport& report = recovery.report;
  report.damaged_slots.resize(files.num_windows());
  for (uint32_t w = 0; w < files.num_windows(); ++w) {
    if (files.Find(w) != nullptr) report.slots += files.Find(w)->num_slots();
  }
  uint64_t slots_before = 0;
  for (uint32_t w = 0; w < files.num_windows(); ++w) {
    DiskLinks links(layout, w, options);
    SlabFile* const file = files.Find(w);
    if (file == nullptr) {
      recovery.ledgers.emplace_back(0, now);
      recovery.windows.push_back(links.Take());
      continue;
    }
    SlabFile::OnProgress progress;
    if (options.progress) {
      progress = [&](uint64_t scanned, uint64_t) {
        options.progress(slots_before + scanned, report.slots);
      };
    }
    absl::StatusOr<ScannedFile> scanned =
        Scan(*file, layout.spec().tokens_per_block, progress, report);
    slots_before += file->num_slots();
    if (!scanned.ok()) {
      report.not_scanned.push_back(absl::StrCat("window ", WindowName(layout.windows()[w].window),
                                                ": ", scanned.status().message()));
      WriteLedger& ledger = recovery.ledgers.emplace_back(file->num_slots(), now);
      for (uint32_t slot = 0; slot < file->num_slots(); ++slot) ledger.Drop(SlotIndex(slot));
      recovery.windows.push_back(links.Take());
      continue;
    }
    const WriteId last = scanned->found.empty() ? kNoWrite : scanned->found.back().record.write_id;
    WriteLedger& ledger = recovery.ledgers.emplace_back(file->num_slots(), std::max(last + 1, now));
    for (const SlotIndex slot : scanned->damaged) ledger.Drop(slot);
    report.damaged_slots[w] = scanned->damaged.size() + scanned->without_header;
    report.lost[static_cast<size_t>(DiskLoss::kDamagedRecord)] += scanned->damaged.size();
    for (Found& found : scanned->found) {
      const std::optional<DiskLoss> loss = links.Add(std::move(found), ledger);
      if (loss.has_value()) ++report.lost[static_cast<size_t>(*loss)];
    }
    RecoveredWindow window = links.Take();
    report.recovered += window.blocks.size();
    recovery.windows.push_back(std::move(window));
  }
  report.duration = absl::Now() - begin;
  return recovery;
}

}  // namespace pagoda
