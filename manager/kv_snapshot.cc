#include "manager/kv_snapshot.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "manager/api/operation.h"

namespace pagoda {
namespace {

// The most tokens of a step of Restore in a cache with sliding windows. A window releases blocks
// only between two steps.
constexpr uint32_t kChunkTokens = 512;

absl::Status WaitFor(CacheClient& client, Ticket ready) {
  for (;;) {
    absl::Status waited = RunOne<WaitedForTicket>(client, WaitForTicket{ready}).status();
    if (waited.ok() || ReasonOf(waited) != Reason::kWaitTimeout) return waited;
  }
}

// The sequence when the copies into its slots have ended.
absl::StatusOr<DescribedSequence> DescribeWhenReady(CacheClient& client, SequenceId sequence) {
  for (;;) {
    absl::StatusOr<DescribedSequence> told =
        RunOne<DescribedSequence>(client, DescribeSequence{sequence});
    if (!told.ok() || told->ready == Ticket{0}) return told;
    if (absl::Status waited = WaitFor(client, told->ready); !waited.ok()) return waited;
    const absl::StatusOr<DescribedSequence> again =
        RunOne<DescribedSequence>(client, DescribeSequence{sequence});
    if (!again.ok() || again->ready == Ticket{0} || again->ready == told->ready) return again;
  }
}

const BlockTable* TableOf(const std::vector<BlockTable>& tables, WindowSize window) {
  const auto found = std::find_if(tables.begin(), tables.end(),
                                  [&](const BlockTable& table) { return table.window == window; });
  return found == tables.end() ? nullptr : &*found;
}

// The block at an entry of the whole table; kNoBlock if the window has passed it.
BlockHandle EntryOf(const BlockTable& table, uint32_t entry) {
  const uint64_t index = uint64_t{entry} - table.first_block;
  return entry < table.first_block || index >= table.blocks.size() ? BlockHandle{}
                                                                   : table.blocks[index];
}

bool SameForm(const PoolLayout& a, const PoolLayout& b) {
  return a.layers == b.layers && a.num_kv_heads == b.num_kv_heads && a.head_dim == b.head_dim &&
         a.dtype == b.dtype && a.kv_factor == b.kv_factor && a.content == b.content &&
         a.tokens_per_block == b.tokens_per_block && a.bytes_per_block == b.bytes_per_block;
}

// 128 random bits.
std::string RandomSalt() {
  std::random_device random;
  return absl::StrCat("/kv-snapshot-", absl::Hex(random(), absl::kZeroPad8),
                      absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8),
                      absl::Hex(random(), absl::kZeroPad8));
}

}  // namespace

absl::Span<const std::byte> KvSnapshot::Part::slot(uint32_t block) const {
  const uint64_t bytes = layout.slot_stride_bytes();
  return absl::MakeConstSpan(slots).subspan((block - first_block) * bytes, bytes);
}

uint32_t KvSnapshot::Part::end_block() const {
  return first_block + static_cast<uint32_t>(slots.size() / layout.slot_stride_bytes());
}

absl::StatusOr<KvSnapshot> KvSnapshot::Take(CacheClient& client, MappedPools pools,
                                            SequenceId sequence) {
  const absl::StatusOr<DescribedSequence> told = DescribeWhenReady(client, sequence);
  if (!told.ok()) return told.status();
  KvSnapshot snapshot;
  snapshot.num_tokens_ = told->computed_tokens;
  snapshot.tokens_per_block_ = client.info().tokens_per_block;
  const uint32_t end =
      (told->computed_tokens + snapshot.tokens_per_block_ - 1) / snapshot.tokens_per_block_;
  for (const std::unique_ptr<MappedPool>& pool : pools) {
    const PoolMapping& mapping = pool->mapping();
    if (mapping.tier != Tier::kPrimary) continue;
    const BlockTable* const table = TableOf(told->tables, mapping.window);
    if (table == nullptr) {
      return absl::InternalError("the sequence has no table of a window of the cache");
    }
    Part part{.window = mapping.window, .pool_index = mapping.pool_index, .layout = mapping.layout};
    while (part.first_block < end && EntryOf(*table, part.first_block).id == kNoBlock) {
      ++part.first_block;
    }
    const uint64_t slot_bytes = mapping.layout.slot_stride_bytes();
    part.slots.resize((end - part.first_block) * slot_bytes);
    for (uint32_t block = part.first_block; block < end; ++block) {
      const absl::Status read = pool->ReadSlot(
          EntryOf(*table, block).slot,
          absl::MakeSpan(part.slots).subspan((block - part.first_block) * slot_bytes, slot_bytes));
      if (!read.ok()) return read;
    }
    snapshot.parts_.push_back(std::move(part));
  }
  return snapshot;
}

uint64_t KvSnapshot::num_bytes() const {
  uint64_t bytes = 0;
  for (const Part& part : parts_) bytes += part.slots.size();
  return bytes;
}

bool KvSnapshot::slid() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.first_block > 0; });
}

absl::StatusOr<std::pair<const KvSnapshot::Part*, const KvSnapshot::Part*>> KvSnapshot::PartsOf(
    uint32_t layer) const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const PoolLayout& layout = parts_[i].layout;
    if (std::find(layout.layers.begin(), layout.layers.end(), layer) == layout.layers.end()) {
      continue;
    }
    if (layout.content == PoolContent::kElements) {
      return std::pair(&parts_[i], layout.has_scales() ? &parts_.at(i + 1) : nullptr);
    }
    return MakeError(
        Reason::kInvalidArgument,
        absl::StrCat("layer ", layer, " is opaque: only its client knows what is K and V in it"));
  }
  return MakeError(Reason::kInvalidArgument, absl::StrCat("the snapshot has no layer ", layer));
}

absl::StatusOr<KvSnapshot::Rows> KvSnapshot::Materialize(uint32_t layer) const {
  const auto parts = PartsOf(layer);
  if (!parts.ok()) return parts.status();
  const auto [elements, scales] = *parts;
  const PoolLayout& layout = elements->layout;
  const auto index = static_cast<size_t>(
      std::find(layout.layers.begin(), layout.layers.end(), layer) - layout.layers.begin());
  Rows rows{.form = RowFormOf(layout),
            .first_token = std::min(elements->first_block * tokens_per_block_, num_tokens_)};
  rows.num_tokens = num_tokens_ - rows.first_token;
  const uint64_t row_bytes = rows.form.row_bytes();
  rows.keys.resize(rows.num_tokens * row_bytes);
  if (rows.form.kv_factor == 2) rows.values.resize(rows.num_tokens * row_bytes);
  for (uint32_t block = elements->first_block; block < elements->end_block(); ++block) {
    const uint32_t token = block * tokens_per_block_;
    const uint64_t offset = (token - rows.first_token) * row_bytes;
    CopyRows(layout, index,
             {.elements = elements->slot(block),
              .scales = scales == nullptr ? absl::Span<const std::byte>() : scales->slot(block)},
             /*first_token=*/0, std::min(tokens_per_block_, num_tokens_ - token),
             rows.keys.data() + offset,
             rows.values.empty() ? nullptr : rows.values.data() + offset);
  }
  return rows;
}

// The steps of Restore. Frees the sequence if they fail.
class KvSnapshot::Restoring {
 public:
  Restoring(const KvSnapshot& snapshot, CacheClient& client, MappedPools pools, SequenceId sequence)
      : snapshot_(snapshot), client_(client), pools_(pools), sequence_(sequence) {}
  ~Restoring() {
    if (open_) RunOne<FreedSequence>(client_, FreeSequence{sequence_}).IgnoreError();
  }
  Restoring(const Restoring&) = delete;
  Restoring& operator=(const Restoring&) = delete;

  // Finds the pool of each part.
  absl::Status FindPools() {
    for (const Part& part : snapshot_.parts_) {
      const auto found = std::find_if(pools_.begin(), pools_.end(), [&](const auto& pool) {
        const PoolMapping& mapping = pool->mapping();
        return mapping.tier == Tier::kPrimary && mapping.window == part.window &&
               mapping.pool_index == part.pool_index && SameForm(mapping.layout, part.layout);
      });
      if (found == pools_.end()) {
        return MakeError(Reason::kInvalidArgument,
                         absl::StrCat("the cache has no pool ", part.pool_index, " of window ",
                                      WindowName(part.window), " with the snapshot's layers"));
      }
      targets_.push_back(found->get());
    }
    return absl::OkStatus();
  }

  absl::Status Open(const NamespaceKey& name_space, absl::Span<const TokenId> tokens) {
    reserved_ = std::min<uint32_t>(snapshot_.num_tokens_, ChunkTokens());
    // A partly matched block would be written into.
    const auto added = RunOne<AddedSequence>(
        client_, AddSequence{.sequence = sequence_,
                             .name_space = name_space,
                             .tokens = std::vector<TokenId>(tokens.begin(), tokens.end()),
                             .reserved_tokens = reserved_,
                             .whole_blocks_only = true,
                             .uncounted = true});
    if (!added.ok()) return added.status();
    open_ = true;
    reserved_ = std::max(reserved_, added->matched_tokens);
    return Look();
  }

  absl::Status Fill() {
    while (computed_ < snapshot_.num_tokens_) {
      const uint32_t end = std::min(snapshot_.num_tokens_, computed_ + ChunkTokens());
      if (end > reserved_) {
        const absl::Status taken =
            RunOne<ReservedTokens>(client_, ReserveTokens{sequence_, end - reserved_}).status();
        if (!taken.ok()) return taken;
        reserved_ = end;
        const uint32_t before = computed_;
        if (absl::Status looked = Look(); !looked.ok()) return looked;
        if (computed_ != before) continue;  // A copy failed.
      }
      if (absl::Status written = WriteBlocks(end); !written.ok()) return written;
      const absl::Status committed =
          RunOne<CommittedTokens>(
              client_,
              CommitTokens{.sequence = sequence_, .computed_tokens = end, .known_losses = losses_})
              .status();
      if (!committed.ok()) return committed;
      computed_ = end;
    }
    open_ = false;  // The caller's from now on.
    return absl::OkStatus();
  }

 private:
  // Whole blocks: half of the smallest sliding window, so that its pool needs little more than the
  // window itself.
  uint32_t ChunkTokens() const {
    uint64_t most = snapshot_.num_tokens_;
    for (const Part& part : snapshot_.parts_) {
      if (part.window == kFullAttention) continue;
      most = std::min({most, uint64_t{kChunkTokens}, uint64_t{part.window.value()} / 2});
    }
    const uint32_t size = snapshot_.tokens_per_block_;
    return static_cast<uint32_t>(std::max<uint64_t>((most + size - 1) / size, 1)) * size;
  }

  // Learns the tables, when their slots are ready.
  absl::Status Look() {
    absl::StatusOr<DescribedSequence> told = DescribeWhenReady(client_, sequence_);
    if (!told.ok()) return told.status();
    computed_ = told->computed_tokens;
    losses_ = told->losses;
    tables_ = std::move(told->tables);
    return absl::OkStatus();
  }

  // Writes the blocks from the last computed token's to that of token `end` - 1, as far as the
  // snapshot has them. Earlier tokens of the first block are written again.
  absl::Status WriteBlocks(uint32_t end) {
    const uint32_t size = snapshot_.tokens_per_block_;
    for (size_t i = 0; i < targets_.size(); ++i) {
      const Part& part = snapshot_.parts_[i];
      const BlockTable* const table = TableOf(tables_, part.window);
      for (uint32_t block = std::max(part.first_block, computed_ / size);
           block < std::min(part.end_block(), (end + size - 1) / size); ++block) {
        const BlockHandle handle = table == nullptr ? BlockHandle{} : EntryOf(*table, block);
        if (handle.id == kNoBlock) return absl::InternalError("a reserved block is in no table");
        const absl::Status written = targets_[i]->WriteSlot(handle.slot, part.slot(block));
        if (!written.ok()) return written;
      }
    }
    return absl::OkStatus();
  }

  const KvSnapshot& snapshot_;
  CacheClient& client_;
  const MappedPools pools_;
  const SequenceId sequence_;
  std::vector<MappedPool*> targets_;  // By part.
  bool open_ = false;
  uint32_t reserved_ = 0;
  uint32_t computed_ = 0;
  uint32_t losses_ = 0;
  std::vector<BlockTable> tables_;
};

absl::Status KvSnapshot::Restore(CacheClient& client, MappedPools pools, SequenceId sequence,
                                 const NamespaceKey& name_space,
                                 absl::Span<const TokenId> tokens) const {
  if (tokens.size() < std::max(num_tokens_, 1u) ||
      client.info().tokens_per_block != tokens_per_block_) {
    return MakeError(
        Reason::kInvalidArgument,
        absl::StrCat(Counted(tokens.size(), "token"), " in blocks of ",
                     client.info().tokens_per_block, " for a snapshot of ",
                     Counted(num_tokens_, "token"), " in blocks of ", tokens_per_block_));
  }
  Restoring restoring(*this, client, pools, sequence);
  if (absl::Status found = restoring.FindPools(); !found.ok()) return found;
  NamespaceKey own = name_space;
  if (slid()) own.cache_salt += RandomSalt();
  if (absl::Status opened = restoring.Open(own, tokens); !opened.ok()) return opened;
  return restoring.Fill();
}

}  // namespace pagoda
