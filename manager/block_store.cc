#include "manager/block_store.h"

#include <algorithm>

#include "base/check.h"

namespace pagoda {
namespace {

constexpr uint32_t kMostIds = 0x7FFF'FFFE;
constexpr uint32_t kMostTokensPerBlock = 1024;

}  // namespace

BlockStore::BlockStore(const Options& options)
    : tokens_per_block_(options.tokens_per_block.value()) {
  PAGODA_CHECK(tokens_per_block_ <= kMostTokensPerBlock, "a block has at most 1,024 tokens");
  PAGODA_CHECK(options.num_ids <= kMostIds, "a window has fewer than 2^31 block ids");
  free_ids_ = options.num_ids;
  first_free_id_ = 0;
  blocks_ = BigArray<Block>(free_ids_);
  for (uint32_t i = 0; i < free_ids_; ++i) blocks_[i].slot = SlotIndex{i + 1};
  tokens_ = BigArray<TokenId>(size_t{free_ids_} * tokens_per_block_);
}

void BlockStore::SetExtras(BlockId id, absl::Span<const TokenExtra> extras) {
  Block& block = (*this)[id];
  const bool any = std::any_of(extras.begin(), extras.end(),
                               [](const TokenExtra& extra) { return extra != TokenExtra{}; });
  if (any) {
    PAGODA_CHECK(extras.size() <= tokens_per_block_, "extras belong to the tokens of one block");
    extras_[id].assign(extras.begin(), extras.end());
  } else if (block.extras) {
    extras_.erase(id);
  }
  block.extras = any ? 1 : 0;
}

absl::Span<const TokenExtra> BlockStore::ExtrasOf(BlockId id) const { return extras_.at(id); }

}  // namespace pagoda
