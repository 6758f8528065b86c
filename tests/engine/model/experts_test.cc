// What a step reads of a mixture of experts.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/model/backend/forwarding_backend.h"
#include "engine/model/cpu/cpu_backend.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/model/model_runner.h"

namespace pagoda {
namespace {

// Counts the checkpoint's bytes of the matrices that products use.
class CountingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  absl::StatusOr<std::unique_ptr<LinearWeights>> MakeLinear(absl::Span<const TensorInfo> matrices,
                                                            absl::Span<const float> bias) override {
    auto made = ForwardingBackend::MakeLinear(matrices, bias);
    if (!made.ok()) return made;
    for (const TensorInfo& matrix : matrices) sizes_[made->get()] += matrix.bytes.size();
    all_ += sizes_[made->get()];
    return made;
  }
  void Multiply(const LinearWeights& weights, const RowsView& input,
                const RowsView& output) override {
    used_[&weights] = sizes_[&weights];
    ForwardingBackend::Multiply(weights, input, output);
  }
  void MultiplyEach(absl::Span<const ProductOfRows> products) override {
    for (const ProductOfRows& product : products) {
      used_[product.weights] = sizes_[product.weights];
    }
    ForwardingBackend::MultiplyEach(products);
  }

  uint64_t all() const { return all_; }
  uint64_t TakeUsed() {
    uint64_t bytes = 0;
    for (const auto& [weights, size] : used_) bytes += size;
    used_.clear();
    return bytes;
  }

 private:
  std::map<const LinearWeights*, uint64_t> sizes_;
  std::map<const LinearWeights*, uint64_t> used_;
  uint64_t all_ = 0;
};

TEST(ExpertsTest, ADecodeStepReadsTheChosenExpertsOnly) {
  auto counting = std::make_unique<CountingBackend>(
      *MakeCpuBackend({.num_threads = 1, .compute = ComputeType::kFloat32}));
  CountingBackend& counts = *counting;
  const auto model = LoadModel(GoldenDir("qwen3_moe_tiny"), std::move(counting));
  const ModelConfig& config = model->config();
  const ExpertsConfig& experts = *config.experts;
  // gate, up and down, in bf16.
  const uint64_t expert_bytes =
      uint64_t{3} * experts.intermediate_size * config.hidden_size * sizeof(uint16_t);
  uint64_t layers = 0;
  for (const LayerConfig& layer : config.layers) layers += layer.has_experts ? 1 : 0;
  ASSERT_EQ(layers, 2u);

  ModelRunner runner(*model, {});
  const size_t sequence = runner.AddSequence();
  for (TokenId token = 1; token <= 8; ++token) {
    counts.TakeUsed();
    runner.Run({{{.sequence = sequence, .tokens = {token}, .num_logits = 1}}});
    EXPECT_EQ(counts.TakeUsed(),
              counts.all() - layers * (experts.count - experts.chosen) * expert_bytes);
  }
  // Many tokens together need most experts, and read each once.
  std::vector<TokenId> many(64);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<TokenId>(3 * i + 1);
  runner.Run({{{.sequence = sequence, .tokens = many, .num_logits = 1}}});
  EXPECT_EQ(counts.TakeUsed(), counts.all());
}

}  // namespace
}  // namespace pagoda
