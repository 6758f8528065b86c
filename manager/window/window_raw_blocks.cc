#include "manager/window/window_raw_blocks.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "pools/sizing.h"

namespace pagoda {

WindowRawBlocks::WindowRawBlocks(const WindowFloor& floor, WindowCounts& counts, BlockHolds& holds,
                                 const WindowPins& pins, CachedBlocks& cached)
    : WindowPart(floor), counts_(counts), holds_(holds), pins_(pins), cached_(cached) {}

void WindowRawBlocks::TakeRaw(OperationScope& op, SessionId owner, absl::Span<BlockHandle> out) {
  counts_.Allocated(op, out.size());
  const uint32_t free = residency_.slots().free_slots(kPrimaryTier);
  if (out.size() > free) recorder().ExpectRemoved(out.size() - free);
  cached_.Take(op, BlockState::kRaw, out);
  for (const BlockHandle& handle : out) store_[handle.id].refs = LowBits(owner);
}

absl::Status WindowRawBlocks::CheckRaw(TenantId tenant, SessionId owner,
                                       absl::Span<const BlockRef> blocks) {
  absl::Status status;
  size_t seen = 0;
  for (; seen < blocks.size(); ++seen) {
    status = CheckOneRaw(tenant, owner, blocks[seen]);
    if (!status.ok()) break;
    store_[blocks[seen].id].marked = 1;
  }
  for (size_t i = 0; i < seen; ++i) store_[blocks[i].id].marked = 0;
  return status;
}

absl::Status WindowRawBlocks::CheckOneRaw(TenantId tenant, SessionId owner,
                                          const BlockRef& ref) const {
  if (ref.id.value() < store_.num_ids() && store_[ref.id].marked) {
    return BlockError(Reason::kDoubleFree, ref, "is named twice in the call");
  }
  if (!IsCurrent(ref)) return CheckCurrent(ref);
  const Block& block = store_[ref.id];
  if (block.state() == BlockState::kRaw && block.refs == LowBits(owner)) return absl::OkStatus();
  // A tenant must not learn what another one does with the block.
  if (tenant != kDefaultTenant && accounts().owner(ref.id) != tenant) {
    return BlockError(Reason::kStaleHandle, ref, "is a stale handle");
  }
  if (block.state() == BlockState::kFree || holds_.OnlyDeferred(ref.id)) {
    return BlockError(Reason::kDoubleFree, ref, "is free already");
  }
  return BlockError(Reason::kForeignBlock, ref, "does not belong to the session as a raw block");
}

absl::Status WindowRawBlocks::CheckFills(TenantId tenant, SessionId owner,
                                         absl::Span<const BlockFill> fills) {
  // More than there are name a block twice.
  if (fills.size() > store_.num_ids()) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat(Counted(fills.size(), "block"), " to fill; the window has ",
                                  store_.num_ids()));
  }
  std::vector<BlockRef> blocks;
  blocks.reserve(fills.size());
  for (const BlockFill& fill : fills) blocks.push_back(fill.block);
  if (absl::Status status = CheckRaw(tenant, owner, blocks); !status.ok()) return status;
  for (const BlockFill& fill : fills) {
    const Block& block = store_[fill.block.id];
    if (block.finalized()) {
      return BlockError(Reason::kBlockFinalized, fill.block, "is finalised");
    }
    if (fill.filled_tokens > store_.tokens_per_block()) {
      return BlockError(Reason::kInvalidCount, fill.block,
                        absl::StrCat("holds ", Counted(store_.tokens_per_block(), "token"),
                                     ", not ", fill.filled_tokens));
    }
    if (fill.filled_tokens < block.token_count) {
      return BlockError(Reason::kComputedBackwards, fill.block,
                        absl::StrCat("has ", Counted(block.token_count, "filled token"), ", not ",
                                     fill.filled_tokens));
    }
  }
  return absl::OkStatus();
}

void WindowRawBlocks::Fill(absl::Span<const BlockFill> fills) {
  for (const BlockFill& fill : fills) {
    Block& block = store_[fill.block.id];
    block.token_count = fill.filled_tokens;
    if (fill.end == BlockFill::End::kFinal) block.finalize();
  }
}

void WindowRawBlocks::FreeRaw(OperationScope& op, absl::Span<const BlockRef> blocks) {
  for (const BlockRef& ref : blocks) {
    Block& block = store_[ref.id];
    block.set_state(BlockState::kPrivate);  // No session can free it while its release is deferred.
    block.refs = 1;
    block.token_count = block.uses = 0;
    holds_.Release(op, ref.id, op.tenant);
  }
}

std::vector<BlockRef> WindowRawBlocks::NextRawBlocks(SessionId owner, BlockId* next,
                                                     size_t max_blocks, uint32_t max_ids) const {
  std::vector<BlockRef> blocks;
  const uint32_t begin = next->value();
  const uint32_t end = begin + std::min(max_ids, store_.num_ids() - begin);
  uint32_t id = begin;
  for (; id < end && blocks.size() < max_blocks; ++id) {
    const Block& block = store_[BlockId{id}];
    if (block.state() == BlockState::kRaw && block.refs == LowBits(owner)) {
      blocks.push_back({BlockId{id}, block.generation});
    }
  }
  *next = BlockId{id};
  return blocks;
}

// --- What a session may know of its blocks ---

absl::StatusOr<WindowRawBlocks::Metadata> WindowRawBlocks::DescribeRaw(
    TenantId tenant, SessionId owner, absl::Span<const BlockRef> blocks) const {
  Metadata metadata;
  metadata.reserve(blocks.size());
  for (const BlockRef& ref : blocks) {
    if (absl::Status status = CheckCurrent(ref); !status.ok()) return status;
    const Block& block = store_[ref.id];
    BlockMetadata known;
    switch (block.state()) {
      case BlockState::kRaw:
        if (block.refs != LowBits(owner)) return ForeignBlock(tenant, ref);
        known = {.holders = 1, .filled_tokens = block.token_count, .finalized = block.finalized()};
        break;
      case BlockState::kPrivate:
      case BlockState::kAlias:
      case BlockState::kCached:
        if (holds_.OnlyDeferred(ref.id)) return BlockError(Reason::kStaleHandle, ref, "was freed");
        if (block.refs == 0) return ForeignBlock(tenant, ref);
        break;
      case BlockState::kFree:
      case BlockState::kHole:
        return BlockError(Reason::kStaleHandle, ref, "was freed");
    }
    metadata.emplace(ref.id, known);
  }
  return metadata;
}

void WindowRawBlocks::DescribeHeld(const Sequence& sequence, Metadata* metadata) const {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  const uint32_t size = store_.tokens_per_block();
  for (uint32_t i = blocks.first; i < blocks.table.size(); ++i) {
    const auto found = metadata->find(blocks.table[i].id);
    if (found == metadata->end()) continue;
    const uint64_t before = uint64_t{i} * size;
    const uint64_t computed =
        sequence.computed_tokens - std::min<uint64_t>(before, sequence.computed_tokens);
    BlockMetadata& known = found->second;
    ++known.holders;
    known.filled_tokens =
        std::max(known.filled_tokens, static_cast<uint32_t>(std::min<uint64_t>(computed, size)));
  }
}

void WindowRawBlocks::CompleteMetadata(TenantId tenant, BlockId id, BlockMetadata* metadata) const {
  const Block& block = store_[id];
  if (block.state() == BlockState::kRaw) return;
  metadata->cached = block.state() == BlockState::kCached && !cached_.IsCutOff(id);
  // The tree knows the content of its blocks, whatever their sequences lost or dropped.
  if (metadata->cached) metadata->filled_tokens = block.token_count;
  metadata->finalized = metadata->filled_tokens == store_.tokens_per_block();
  // Tenants share the default tenant's blocks, and learn nothing of each other.
  if (tenant != kDefaultTenant && accounts().owner(id) != tenant) return;
  metadata->holders = block.refs - pins_.PinsOf(id) - residency_.counts().deferred(id);
}

absl::Status WindowRawBlocks::ForeignBlock(TenantId tenant, const BlockRef& ref) const {
  if (tenant != kDefaultTenant && accounts().owner(ref.id) != tenant) {
    return BlockError(Reason::kStaleHandle, ref, "is a stale handle");
  }
  return BlockError(Reason::kForeignBlock, ref,
                    "is no raw block of the session and in no table of its sequences");
}

absl::Status WindowRawBlocks::CheckCurrent(const BlockRef& ref) const {
  if (IsCurrent(ref)) return absl::OkStatus();
  if (ref.id.value() >= store_.num_ids()) {
    return BlockError(Reason::kUnknownBlock, ref,
                      absl::StrCat("does not exist; ids end at ", store_.num_ids() - 1));
  }
  return BlockError(Reason::kStaleHandle, ref, "is a stale handle");
}

absl::Status WindowRawBlocks::BlockError(Reason reason, const BlockRef& ref,
                                         std::string_view what) const {
  return MakeError(reason,
                   absl::StrCat("block ", ref.id.value(), " (generation ", ref.generation.value(),
                                ") of window ", WindowName(window()), " ", std::string(what)));
}

}  // namespace pagoda
