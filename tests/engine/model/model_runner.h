// Runs a model over its own KV memory, with tables like a cache's.
#ifndef PAGODA_TESTS_ENGINE_MODEL_MODEL_RUNNER_H_
#define PAGODA_TESTS_ENGINE_MODEL_MODEL_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/model/backend/backend.h"
#include "engine/model/layers/transformer.h"
#include "engine/words/adapter_index.h"
#include "kernels/types.h"

namespace pagoda {

// The checkpoint's model on this backend. Stops the process if that fails.
std::unique_ptr<Transformer> LoadModel(const std::string& model_dir,
                                       std::unique_ptr<Backend> backend);

// The memory of a runner's KV.
class KvMemory {
 public:
  virtual ~KvMemory() = default;
  // Until its end.
  virtual std::byte* Allocate(uint64_t bytes) = 0;
  virtual void Fill(std::byte* target, std::byte value, uint64_t bytes) = 0;
};

class ModelRunner {
 public:
  struct Options {
    kernels::ElementType kv_type = kernels::ElementType::kFloat32;
    uint32_t tokens_per_block = 16;
    uint32_t num_slots = 128;  // Per window.
    uint32_t seed = 1;         // For the order in which slots are taken.
    // Outlives the runner. Null: host memory that the runner owns.
    KvMemory* memory = nullptr;
  };
  ModelRunner(Transformer& model, const Options& options);

  // A new sequence, by number. `limit`: the most tokens that it will have, which decide its
  // RotaryRange.
  size_t AddSequence(uint64_t limit = 0, AdapterIndex adapter = kNoAdapter);

  // A sequence's next tokens.
  struct Share {
    size_t sequence = 0;
    std::vector<TokenId> tokens;
    uint32_t num_logits = 0;  // How many of the last tokens.
  };
  // Runs one step. First it frees the blocks that a window has passed. All bytes of a free slot are
  // such that reading them gives NaN. Returns the wanted logits, row by row.
  std::vector<std::vector<float>> Run(absl::Span<const Share> shares);
  // The same, with a draw for each wanted logit. The result is valid until the next step.
  ModelOutput RunWithDraws(absl::Span<const Share> shares, std::vector<TokenDraw> draws);

  uint32_t num_tokens(size_t sequence) const { return sequences_[sequence].num_tokens; }
  const ModelInput& input() const { return input_; }  // The input of the last step.

  // The layer's bytes of one token's K and V (or K) in all heads; none if the token's block has
  // been freed. REQUIRES: KV in host memory; the next function too.
  std::string TokenBytes(size_t sequence, uint32_t layer, uint32_t position) const;
  // The number of bytes of the layer that were ever written, in any slot.
  uint64_t WrittenBytes(uint32_t layer) const;

 private:
  struct Sequence {
    RotaryRange range = RotaryRange::kShort;
    AdapterIndex adapter = kNoAdapter;
    uint32_t num_tokens = 0;
    std::vector<std::vector<SlotIndex>> tables;  // By window.
  };

  // Makes the step's input.
  void Prepare(absl::Span<const Share> shares);
  // Counts the tokens as computed.
  void Finish(absl::Span<const Share> shares);
  void AddScales(kernels::KvLayer& layer);
  void Reserve(Sequence& sequence, uint32_t new_tokens);
  void Poison(size_t window, SlotIndex slot);
  size_t WindowOf(uint32_t layer) const;

  Transformer& model_;
  const Options options_;
  std::unique_ptr<KvMemory> own_memory_;
  KvMemory& memory_;
  std::vector<kernels::KvLayer> layers_;      // [slot][K, V or K][head][token][head_dim]
  std::vector<std::byte*> scales_;            // Only for float8: by layer, [slot][K, V or K][head].
  std::vector<std::vector<SlotIndex>> free_;  // By window.
  std::vector<Sequence> sequences_;
  ModelInput input_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_MODEL_MODEL_RUNNER_H_
