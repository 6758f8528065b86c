// A model whose answers can be computed from the tokens alone. It detects every mistake in the
// handling of its KV.
#ifndef PAGODA_TESTS_ENGINE_SCHEDULE_ARITHMETIC_MODEL_H_
#define PAGODA_TESTS_ENGINE_SCHEDULE_ARITHMETIC_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/model/backend/model_input.h"
#include "engine/request/generate.h"
#include "manager/api/cache_client.h"
#include "pools/layout.h"
#include "pools/pool.h"

namespace pagoda {

// The KV of a token in each window is the token and its position. The logits behind a token are a
// hash of the KV in the cache of all tokens that the windows let it see. A block that is stale,
// lost, another sequence's or in another place gives other logits than ExpectedAnswer, which
// computes them from the tokens alone.
class ArithmeticModel {
 public:
  static constexpr uint32_t kVocabSize = 64;

  // One layer per window.
  static CacheSpec Spec(absl::Span<const WindowSize> windows, uint32_t tokens_per_block);
  // The logits behind these tokens.
  static std::vector<float> LogitsBehind(absl::Span<const TokenId> tokens,
                                         absl::Span<const WindowSize> windows, uint32_t period = 0);
  // The answer to a request that runs alone: the tokens of each sample.
  static std::vector<std::vector<TokenId>> ExpectedAnswer(const GenerateRequest& request,
                                                          absl::Span<const WindowSize> windows,
                                                          uint32_t period = 0);

  // Maps the client's pools. `windows` are ascending. With a `period`, most generated tokens are
  // their positions modulo it, so that draft tokens are often right.
  ArithmeticModel(CacheClient& client, std::vector<WindowSize> windows, uint32_t tokens_per_block,
                  uint32_t period = 0);

  absl::StatusOr<absl::Span<const float>> Forward(const ModelInput& input);

  uint32_t most_tokens() const { return most_tokens_; }        // The most in a step.
  uint32_t most_sequences() const { return most_sequences_; }  // The most in a step.
  uint64_t unwritten_reads() const { return unwritten_reads_; }

 private:
  struct Entry {
    float token;
    float position;
  };
  Entry& At(size_t window, int64_t token_slot);
  uint64_t Hash(const ModelInput& input, size_t sequence, int64_t position);

  const std::vector<WindowSize> windows_;
  const uint32_t tokens_per_block_;
  const uint32_t period_;
  std::vector<std::unique_ptr<MappedPool>> pools_;  // By window.
  std::vector<float> logits_;
  uint32_t most_tokens_ = 0;
  uint32_t most_sequences_ = 0;
  uint64_t unwritten_reads_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_SCHEDULE_ARITHMETIC_MODEL_H_
