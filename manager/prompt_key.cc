#include "manager/prompt_key.h"

#include <algorithm>

namespace pagoda {

BlockKey PromptKey::WithExtras(size_t begin, BlockKey key, std::vector<TokenExtra>* scratch) const {
  const size_t count = key.tokens.size();
  if (!extras_.empty()) {
    key.extras = extras_.subspan(begin, count);
    return key;
  }
  const auto item_end = [](const MultimodalItem& item) {
    return size_t{item.token_start} + item.token_count;
  };
  auto item = std::partition_point(items_.begin(), items_.end(), [&](const MultimodalItem& before) {
    return item_end(before) <= begin;
  });
  const bool has_item = item != items_.end() && item->token_start < begin + count;
  if (extra_ids_.empty() && !has_item) return key;
  scratch->assign(count, TokenExtra{});
  if (!extra_ids_.empty()) {
    for (size_t i = 0; i < count; ++i) (*scratch)[i].extra_id = extra_ids_[begin + i];
  }
  for (; item != items_.end() && item->token_start < begin + count; ++item) {
    const size_t first = std::max<size_t>(item->token_start, begin);
    const size_t end = std::min(item_end(*item), begin + count);
    for (size_t token = first; token < end; ++token) {
      TokenExtra& extra = (*scratch)[token - begin];
      extra.digest = item->digest;
      extra.item_offset = item->item_offset + static_cast<uint32_t>(token - item->token_start);
      extra.in_item = true;
    }
  }
  key.extras = *scratch;
  return key;
}

}  // namespace pagoda
