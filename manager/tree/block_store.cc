#include "manager/tree/block_store.h"

#include <algorithm>
#include <optional>

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
  PAGODA_CHECK(!client_keys_.contains(id), "a keyed block has no extras");
  const bool any = std::any_of(extras.begin(), extras.end(),
                               [](const TokenExtra& extra) { return extra != TokenExtra{}; });
  if (any) {
    PAGODA_CHECK(extras.size() <= tokens_per_block_, "extras belong to the tokens of one block");
    extras_[id].assign(extras.begin(), extras.end());
  } else if (block.beside) {
    extras_.erase(id);
  }
  block.beside = any ? 1 : 0;
}

void BlockStore::SetClientKey(BlockId id, const ClientKey& key) {
  PAGODA_CHECK(!extras_.contains(id), "a keyed block has no extras");
  client_keys_.insert_or_assign(id, key);
  (*this)[id].beside = 1;
}

void BlockStore::SetContent(BlockId id, const BlockKey& key) {
  (*this)[id].token_count = TokensOf(key);
  if (key.keyed) {
    const std::optional<ClientKey> client_key = ClientKey::FromWords(key.tokens);
    PAGODA_CHECK(client_key.has_value(), "a keyed block has a key");
    SetClientKey(id, *client_key);
    return;
  }
  std::copy(key.tokens.begin(), key.tokens.end(), tokens(id).begin());
  SetExtras(id, key.extras);
}

absl::Span<const TokenExtra> BlockStore::ExtrasOf(BlockId id) const {
  const auto found = extras_.find(id);
  return found == extras_.end() ? absl::Span<const TokenExtra>() : found->second;
}

BlockKey BlockStore::KeyBeside(BlockId id, absl::Span<const TokenId> content) const {
  const auto keyed = client_keys_.find(id);
  if (keyed != client_keys_.end()) return keyed->second.block_key();
  return {content, ExtrasOf(id).first(content.size())};
}

void BlockStore::EraseBeside(BlockId id) {
  if (client_keys_.erase(id) == 0) extras_.erase(id);
}

}  // namespace pagoda
