#include "engine/model/weights/expert_weights.h"

#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

using Bias = WeightLoader::Bias;

// A number of each row, or of every other row.
std::vector<float> EveryOther(const std::vector<float>& values, uint64_t expert, uint64_t count,
                              uint64_t first, uint64_t step) {
  std::vector<float> chosen;
  for (uint64_t i = 0; i < count / step && !values.empty(); ++i) {
    chosen.push_back(values[expert * count + first + i * step]);
  }
  return chosen;
}

class Loading {
 public:
  Loading(WeightLoader& load, const std::string& mlp)
      : load_(load),
        config_(*load.config().experts),
        prefix_(mlp + "experts."),
        hidden_(load.config().hidden_size),
        size_(config_.intermediate_size) {}

  std::vector<ModelWeights::Mlp> Load() {
    if (load_.Has(prefix_ + "gate_up_proj")) return LoadTransposed();
    if (load_.Has(prefix_ + "gate_up_proj.weight")) return LoadJoined();
    if (load_.Has(prefix_ + "gate_proj.weight")) return LoadStacked();
    return LoadSingly();
  }

 private:
  std::vector<ModelWeights::Mlp> LoadSingly() {
    std::vector<ModelWeights::Mlp> experts;
    const Bias bias = config_.has_bias ? Bias::kHas : Bias::kNone;
    for (uint32_t e = 0; e < config_.count && load_.status().ok(); ++e) {
      const std::string expert = absl::StrCat(prefix_, e, ".");
      ModelWeights::Mlp& made = experts.emplace_back();
      made.gate_up =
          load_.Linear({{expert + "gate_proj", size_}, {expert + "up_proj", size_}}, hidden_, bias);
      made.down = load_.Linear({{expert + "down_proj", hidden_}}, size_, bias);
    }
    return experts;
  }

  std::vector<ModelWeights::Mlp> LoadStacked() {
    const uint64_t count = config_.count;
    const TensorInfo gate = load_.Find(prefix_ + "gate_proj.weight", {count, size_, hidden_});
    const TensorInfo up = load_.Find(prefix_ + "up_proj.weight", {count, size_, hidden_});
    const TensorInfo down = load_.Find(prefix_ + "down_proj.weight", {count, hidden_, size_});
    std::vector<float> gate_bias, up_bias, down_bias;
    if (config_.has_bias) {
      gate_bias = load_.Floats(prefix_ + "gate_proj.bias", {count, size_});
      up_bias = load_.Floats(prefix_ + "up_proj.bias", {count, size_});
      down_bias = load_.Floats(prefix_ + "down_proj.bias", {count, hidden_});
    }
    std::vector<ModelWeights::Mlp> experts;
    for (uint64_t e = 0; e < count && load_.status().ok(); ++e) {
      std::vector<float> bias = EveryOther(gate_bias, e, size_, 0, 1);
      const std::vector<float> second = EveryOther(up_bias, e, size_, 0, 1);
      bias.insert(bias.end(), second.begin(), second.end());
      ModelWeights::Mlp& made = experts.emplace_back();
      made.gate_up =
          load_.LinearOf({WeightLoader::Slice(gate, e), WeightLoader::Slice(up, e)}, bias);
      made.down =
          load_.LinearOf({WeightLoader::Slice(down, e)}, EveryOther(down_bias, e, hidden_, 0, 1));
    }
    return experts;
  }

  std::vector<ModelWeights::Mlp> LoadTransposed() {
    const TensorInfo gate_up =
        load_.Find(prefix_ + "gate_up_proj", {config_.count, hidden_, 2 * size_});
    const TensorInfo down = load_.Find(prefix_ + "down_proj", {config_.count, size_, hidden_});
    return LoadWithBiases([&](uint64_t e) {
      return Matrices{.gate_up = load_.Transposed(WeightLoader::Slice(gate_up, e), 2),
                      .down = load_.Transposed(WeightLoader::Slice(down, e))};
    });
  }

  std::vector<ModelWeights::Mlp> LoadJoined() {
    const TensorInfo gate_up =
        load_.Find(prefix_ + "gate_up_proj.weight", {config_.count, 2 * size_, hidden_});
    const TensorInfo down =
        load_.Find(prefix_ + "down_proj.weight", {config_.count, hidden_, size_});
    return LoadWithBiases([&](uint64_t e) {
      return Matrices{.gate_up = WeightLoader::Slice(gate_up, e),
                      .down = WeightLoader::Slice(down, e)};
    });
  }

  // gpt-oss' experts, whose biases of gate and up take turns.
  struct Matrices {
    TensorInfo gate_up;
    TensorInfo down;
  };
  std::vector<ModelWeights::Mlp> LoadWithBiases(absl::FunctionRef<Matrices(uint64_t)> matrices_of) {
    const uint64_t count = config_.count;
    const std::vector<float> gate_up_bias =
        load_.Floats(prefix_ + "gate_up_proj_bias", {count, 2 * size_});
    const std::vector<float> down_bias = load_.Floats(prefix_ + "down_proj_bias", {count, hidden_});
    std::vector<ModelWeights::Mlp> experts;
    for (uint64_t e = 0; e < count && load_.status().ok(); ++e) {
      const Matrices matrices = matrices_of(e);
      std::vector<float> bias = EveryOther(gate_up_bias, e, 2 * size_, 0, 2);
      const std::vector<float> second = EveryOther(gate_up_bias, e, 2 * size_, 1, 2);
      bias.insert(bias.end(), second.begin(), second.end());
      ModelWeights::Mlp& made = experts.emplace_back();
      made.gate_up = load_.LinearOf({matrices.gate_up}, bias);
      made.down = load_.LinearOf({matrices.down}, EveryOther(down_bias, e, hidden_, 0, 1));
    }
    return experts;
  }

  WeightLoader& load_;
  const ExpertsConfig& config_;
  const std::string prefix_;
  const uint64_t hidden_;
  const uint64_t size_;
};

}  // namespace

ModelWeights::Experts LoadExperts(WeightLoader& load, const std::string& mlp) {
  const ExpertsConfig& config = *load.config().experts;
  const uint64_t hidden = load.config().hidden_size;
  ModelWeights::Experts weights;
  const std::string router = mlp + (load.Has(mlp + "router.weight") ? "router" : "gate");
  weights.router =
      load.Linear({{router, config.count}}, hidden, config.has_bias ? Bias::kHas : Bias::kNone);
  if (config.has_correction) {
    weights.correction = load.Floats(router + ".e_score_correction_bias", {config.count});
  }
  weights.experts = Loading(load, mlp).Load();
  if (config.shared_intermediate_size == 0) return weights;
  const uint64_t size = config.shared_intermediate_size;
  const std::string shared = mlp + "shared_experts.";
  ModelWeights::Mlp made;
  made.gate_up = load.Linear({{shared + "gate_proj", size}, {shared + "up_proj", size}}, hidden);
  made.down = load.Linear({{shared + "down_proj", hidden}}, size);
  weights.shared = std::move(made);
  return weights;
}

}  // namespace pagoda
