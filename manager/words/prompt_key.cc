#include "manager/words/prompt_key.h"

#include <algorithm>

namespace pagoda {

bool ExtrasOf(absl::Span<const uint64_t> extra_ids, absl::Span<const MultimodalItem> items,
              size_t begin, size_t count, std::vector<TokenExtra>* out) {
  const auto item_end = [](const MultimodalItem& item) {
    return size_t{item.token_start} + item.token_count;
  };
  auto item = std::partition_point(items.begin(), items.end(), [&](const MultimodalItem& before) {
    return item_end(before) <= begin;
  });
  const bool has_item = item != items.end() && item->token_start < begin + count;
  if (extra_ids.empty() && !has_item) return false;
  out->assign(count, TokenExtra{});
  if (!extra_ids.empty()) {
    for (size_t i = 0; i < count; ++i) (*out)[i].extra_id = extra_ids[begin + i];
  }
  for (; item != items.end() && item->token_start < begin + count; ++item) {
    const size_t first = std::max<size_t>(item->token_start, begin);
    const size_t end = std::min(item_end(*item), begin + count);
    for (size_t token = first; token < end; ++token) {
      TokenExtra& extra = (*out)[token - begin];
      extra.digest = item->digest;
      extra.item_offset = item->item_offset + static_cast<uint32_t>(token - item->token_start);
      extra.in_item = true;
    }
  }
  return true;
}

BlockKey PromptKey::BlockBeside(size_t begin, size_t count,
                                std::vector<TokenExtra>* scratch) const {
  if (keyed()) {
    const size_t block = begin / tokens_per_block_;
    return block < keys_.size() ? keys_[block].block_key() : BlockKey{.keyed = true};
  }
  BlockKey key{tokens_.subspan(begin, count), {}};
  count = key.tokens.size();
  if (!extras_.empty()) {
    key.extras = extras_.subspan(begin, count);
  } else if (ExtrasOf(extra_ids_, items_, begin, count, scratch)) {
    key.extras = *scratch;
  }
  return key;
}

}  // namespace pagoda
