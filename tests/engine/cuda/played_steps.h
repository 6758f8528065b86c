// A run of a model over sequences that join, grow and leave.
#ifndef PAGODA_TESTS_ENGINE_CUDA_PLAYED_STEPS_H_
#define PAGODA_TESTS_ENGINE_CUDA_PLAYED_STEPS_H_

#include <cstdint>
#include <vector>

#include "engine/model/layers/transformer.h"
#include "kernels/types.h"
#include "pools/types.h"
#include "tests/engine/model/model_runner.h"

namespace pagoda {

struct PlayOptions {
  kernels::ElementType kv_type = kernels::ElementType::kFloat32;
  uint32_t steps = 0;
  uint32_t most_sequences = 7;
  uint32_t num_adapters = 0;  // Some sequences have one of these.
  uint32_t seed = 1;
};

struct Played {
  // By step, and then by row: the token, and the logits if they came to the host.
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<float>> logits;
};

// Steps of a random script, which depends on the options only. In a step every sequence has its
// next token, chosen from the logits or drawn by the backend, and now and then a new sequence has
// its prompt.
Played Play(Transformer& model, KvMemory* memory, const PlayOptions& options);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_CUDA_PLAYED_STEPS_H_
