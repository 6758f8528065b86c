// A model of random weights on disk, for benchmarks: the speed does not depend on the weights.
#ifndef PAGODA_TESTS_BENCH_ENGINE_RANDOM_MODEL_H_
#define PAGODA_TESTS_BENCH_ENGINE_RANDOM_MODEL_H_

#include <cstdint>
#include <string>

namespace pagoda::bench {

// A Qwen3 with tied embeddings.
struct RandomModelShape {
  uint32_t num_layers = 28;
  uint32_t hidden_size = 1024;
  uint32_t intermediate_size = 3072;
  uint32_t num_heads = 16;
  uint32_t num_kv_heads = 8;
  uint32_t head_dim = 128;
  uint32_t vocab_size = 151'936;

  // For a model that only shows whether a benchmark runs.
  static RandomModelShape Tiny() {
    return {.num_layers = 2,
            .hidden_size = 128,
            .intermediate_size = 256,
            .num_heads = 4,
            .num_kv_heads = 2,
            .head_dim = 32,
            .vocab_size = 512};
  }
  // The weights of the matrices that multiply a token, without the head's.
  uint64_t layer_weights() const;
  uint64_t head_weights() const { return uint64_t{vocab_size} * hidden_size; }
};

// config.json and model.safetensors in bf16, in a new temporary folder that is removed with the
// object. Qwen3-0.6B's shape takes 1.2 GB.
class RandomModel {
 public:
  explicit RandomModel(const RandomModelShape& shape);
  ~RandomModel();
  RandomModel(const RandomModel&) = delete;
  RandomModel& operator=(const RandomModel&) = delete;

  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_ENGINE_RANDOM_MODEL_H_
