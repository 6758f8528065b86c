#include "engine/schedule/ngram_proposer.h"

#include <algorithm>

namespace pagoda {

std::vector<TokenId> ProposeByNgram(absl::Span<const TokenId> tokens, uint32_t count,
                                    NgramRange range) {
  for (size_t n = range.max_ngram; n >= range.min_ngram && n > 0; --n) {
    if (tokens.size() <= n) continue;
    const absl::Span<const TokenId> last = tokens.last(n);
    // The place can overlap the last tokens, but not be the same.
    for (size_t end = tokens.size() - 1; end >= n; --end) {
      if (tokens.subspan(end - n, n) != last) continue;
      const absl::Span<const TokenId> following = tokens.subspan(end, count);
      return {following.begin(), following.end()};
    }
  }
  return {};
}

}  // namespace pagoda
