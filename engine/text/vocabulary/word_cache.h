// The tokens of words that were encoded before.
#ifndef PAGODA_ENGINE_TEXT_VOCABULARY_WORD_CACHE_H_
#define PAGODA_ENGINE_TEXT_VOCABULARY_WORD_CACHE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "pools/types.h"

namespace pagoda {

// Keeps about 10 MiB of short words. Thread-safe.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 64;  // Longer words are not kept.

  using Encoder = absl::FunctionRef<void(absl::string_view word, std::vector<TokenId>& out)>;

  // Appends the word's tokens: those of an earlier call, or those that `encode` appends. `encode`
  // gives the same tokens in every call, and runs without the lock.
  void Encode(absl::string_view word, Encoder encode, std::vector<TokenId>& out)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::vector<TokenId>> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_VOCABULARY_WORD_CACHE_H_
