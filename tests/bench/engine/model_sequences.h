// A model without a cache, for benchmarks.
#ifndef PAGODA_TESTS_BENCH_ENGINE_MODEL_SEQUENCES_H_
#define PAGODA_TESTS_BENCH_ENGINE_MODEL_SEQUENCES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/model/layers/transformer.h"
#include "tests/bench/kernels/machine_peaks.h"

namespace pagoda::bench {

// Loads a folder or a GGUF file on the CPU, with the default type of computation.
std::unique_ptr<Transformer> LoadOnCpu(const std::string& path, uint32_t threads);

// Some sequences of a model whose layers have all the same KV heads and one window. Their KV is in
// bf16; each sequence has its own blocks. All have the same random tokens.
class ModelSequences {
 public:
  static constexpr uint32_t kTokensPerBlock = 32;
  static constexpr uint32_t kChunkTokens = 512;  // The engine's own default.

  // `model` outlives this object.
  ModelSequences(Transformer& model, uint32_t count, uint32_t most_tokens);

  // One step in which each of `batch` sequences has `count` new tokens after `first` earlier ones.
  void Step(uint32_t batch, uint32_t first, uint32_t count, uint32_t num_logits);
  // The first tokens of one sequence, in chunks. The last chunk has the logits of one token.
  void Prefill(uint32_t tokens);

  uint64_t kv_bytes() const { return memory_.bytes().size(); }

 private:
  Transformer& model_;
  const uint32_t blocks_;  // The blocks of one sequence.
  const uint64_t slot_bytes_;
  ColdMemory memory_;
  std::vector<kernels::KvLayer> layers_;
  std::vector<std::vector<SlotIndex>> tables_;
  std::vector<TokenId> tokens_;
  ModelInput input_;
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_ENGINE_MODEL_SEQUENCES_H_
