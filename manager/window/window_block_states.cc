// The fill of raw blocks, and what a session may know of its blocks.
#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "manager/window/window_block_manager.h"
#include "pools/sizing.h"

namespace pagoda {

absl::Status WindowBlockManager::BlockError(Reason reason, const BlockRef& ref,
                                            std::string_view what) const {
  return MakeError(reason,
                   absl::StrCat("block ", ref.id.value(), " (generation ", ref.generation.value(),
                                ") of window ", WindowName(window()), " ", std::string(what)));
}

absl::Status WindowBlockManager::CheckCurrent(const BlockRef& ref) const {
  if (ref.id.value() >= store_.num_ids()) {
    return BlockError(Reason::kUnknownBlock, ref,
                      absl::StrCat("does not exist; ids end at ", store_.num_ids() - 1));
  }
  if (store_[ref.id].generation == ref.generation) return absl::OkStatus();
  return BlockError(Reason::kStaleHandle, ref, "is a stale handle");
}

absl::Status WindowBlockManager::ForeignBlock(TenantId tenant, const BlockRef& ref) const {
  if (tenant != kDefaultTenant && accounts().owner(ref.id) != tenant) {
    return BlockError(Reason::kStaleHandle, ref, "is a stale handle");
  }
  return BlockError(Reason::kForeignBlock, ref,
                    "is no raw block of the session and in no table of its sequences");
}

absl::Status WindowBlockManager::CheckFills(TenantId tenant, SessionId owner,
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

void WindowBlockManager::Fill(absl::Span<const BlockFill> fills) {
  for (const BlockFill& fill : fills) {
    Block& block = store_[fill.block.id];
    block.token_count = fill.filled_tokens;
    if (fill.end == BlockFill::End::kFinal) block.finalize();
  }
}

absl::StatusOr<WindowBlockManager::Metadata> WindowBlockManager::DescribeRaw(
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
        if (OnlyDeferred(ref.id)) return BlockError(Reason::kStaleHandle, ref, "was freed");
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

void WindowBlockManager::DescribeHeld(const Sequence& sequence, Metadata* metadata) const {
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

void WindowBlockManager::CompleteMetadata(TenantId tenant, BlockId id,
                                          BlockMetadata* metadata) const {
  const Block& block = store_[id];
  if (block.state() == BlockState::kRaw) return;
  metadata->cached = block.state() == BlockState::kCached && !IsCutOff(id);
  // The tree knows the content of its blocks, whatever their sequences lost or dropped.
  if (metadata->cached) metadata->filled_tokens = block.token_count;
  metadata->finalized = metadata->filled_tokens == store_.tokens_per_block();
  // Tenants share the default tenant's blocks, and learn nothing of each other.
  if (tenant != kDefaultTenant && accounts().owner(id) != tenant) return;
  uint32_t pins = 0;
  for (auto pin = FirstPin(id, kDefaultTenant); pin != pins_.end() && pin->block == id; ++pin) {
    ++pins;
  }
  metadata->holders = block.refs - pins - residency_.counts().deferred(id);
}

}  // namespace pagoda
