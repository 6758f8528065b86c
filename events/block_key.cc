#include "events/block_key.h"

#include <algorithm>
#include <cstring>

namespace pagoda {
namespace {

// Tokens compared at once: 64 bytes, which the compiler compares without a call or a loop.
constexpr size_t kRun = 16;

size_t CommonTokenIds(const TokenId* a, const TokenId* b, size_t most) {
  size_t i = 0;
  while (most - i >= kRun && std::memcmp(a + i, b + i, kRun * sizeof(TokenId)) == 0) i += kRun;
  while (i < most && a[i] == b[i]) ++i;
  return i;
}

bool SameExtra(const BlockKey& a, const BlockKey& b, size_t i) {
  static constexpr TokenExtra kNone;
  return (a.has_extras() ? a.extras[i] : kNone) == (b.has_extras() ? b.extras[i] : kNone);
}

}  // namespace

uint32_t CommonTokens(const BlockKey& a, const BlockKey& b) {
  const size_t most = std::min(a.tokens.size(), b.tokens.size());
  size_t common = CommonTokenIds(a.tokens.data(), b.tokens.data(), most);
  if (a.has_extras() || b.has_extras()) [[unlikely]] {
    size_t i = 0;
    while (i < common && SameExtra(a, b, i)) ++i;
    common = i;
  }
  return static_cast<uint32_t>(common);
}

std::vector<MultimodalItem> ItemsOf(absl::Span<const TokenExtra> extras) {
  std::vector<MultimodalItem> items;
  for (uint32_t i = 0; i < extras.size(); ++i) {
    const TokenExtra& extra = extras[i];
    if (!extra.in_item) continue;
    const bool continues = !items.empty() && items.back().digest == extra.digest &&
                           items.back().token_start + items.back().token_count == i &&
                           items.back().item_offset + items.back().token_count == extra.item_offset;
    if (continues) {
      ++items.back().token_count;
    } else {
      items.push_back({.digest = extra.digest,
                       .token_start = i,
                       .token_count = 1,
                       .item_offset = extra.item_offset});
    }
  }
  return items;
}

}  // namespace pagoda
