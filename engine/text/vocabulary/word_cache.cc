#include "engine/text/vocabulary/word_cache.h"

#include <utility>

namespace pagoda {
namespace {

// A full cache is emptied, which costs less than tracking the last use.
constexpr size_t kMaxWords = 1 << 16;

}  // namespace

void WordCache::Encode(absl::string_view word, Encoder encode, std::vector<TokenId>& out) {
  if (word.size() > kMaxWordBytes) {
    encode(word, out);
    return;
  }
  {
    absl::MutexLock lock(&mutex_);
    if (const auto known = known_.find(word); known != known_.end()) {
      out.insert(out.end(), known->second.begin(), known->second.end());
      return;
    }
  }
  std::vector<TokenId> tokens;
  encode(word, tokens);
  out.insert(out.end(), tokens.begin(), tokens.end());
  absl::MutexLock lock(&mutex_);
  if (known_.size() >= kMaxWords) known_.clear();
  known_.emplace(word, std::move(tokens));
}

}  // namespace pagoda
