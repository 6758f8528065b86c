// Loads single tensors of a checkpoint into a backend.
#ifndef PAGODA_ENGINE_MODEL_WEIGHTS_WEIGHT_LOADER_H_
#define PAGODA_ENGINE_MODEL_WEIGHTS_WEIGHT_LOADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/model/weights/weights.h"

namespace pagoda {

// Keeps the first error, so that the loading itself is a plain list. After an error it returns
// nothing useful.
class WeightLoader {
 public:
  enum class Bias { kNone, kHas };

  WeightLoader(const ModelConfig& config, const Checkpoint& checkpoint, Backend& backend,
               ModelWeights& weights)
      : config_(config), checkpoint_(checkpoint), backend_(backend), weights_(weights) {}

  const absl::Status& status() const { return status_; }
  const ModelConfig& config() const { return config_; }
  bool Has(const std::string& name) const { return checkpoint_.Has(name); }

  // NAME.weight, and NAME.bias if the model's norms have one.
  ModelWeights::Norm Norm(const std::string& name, uint64_t size);
  // NAME itself, on the backend and on the host.
  ModelWeights::Vector Vector(const std::string& name, uint64_t size);
  std::vector<float> Floats(const std::string& name, absl::Span<const uint64_t> shape);

  // A matrix NAME.weight [outputs][inputs], and NAME.bias.
  struct Part {
    std::string name;
    uint64_t outputs;
  };
  // Stacks matrices that have the same input.
  ModelWeights::Linear Linear(const std::vector<Part>& parts, uint64_t inputs,
                              Bias bias = Bias::kNone);
  // Stacks matrices from anywhere. `bias`: empty, or one number for each output.
  ModelWeights::Linear LinearOf(absl::Span<const TensorInfo> matrices,
                                absl::Span<const float> bias);
  std::unique_ptr<EmbeddingWeights> Embedding(const std::string& name, uint64_t rows,
                                              uint64_t cols);

  TensorInfo Find(const std::string& name, absl::Span<const uint64_t> shape);

  // Rows first to first + count - 1 of a matrix, in place.
  static TensorInfo Rows(const TensorInfo& matrix, uint64_t first, uint64_t count);
  // Matrix `index` of a tensor of three dimensions, in place.
  static TensorInfo Slice(const TensorInfo& tensor, uint64_t index);
  // The transposed matrix. If it is `interleaved` matrices, whose columns take turns, the result
  // has all rows of the first one, then those of the next. Its elements keep their type if that has
  // no blocks, else they are fp32. Its bytes live as long as the weights.
  TensorInfo Transposed(const TensorInfo& matrix, uint64_t interleaved = 1);

 private:
  template <class T>
  T Keep(absl::StatusOr<T> value) {
    if (value.ok()) return *std::move(value);
    if (status_.ok()) status_ = value.status();
    return T();
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  Backend& backend_;
  ModelWeights& weights_;
  absl::Status status_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_WEIGHTS_WEIGHT_LOADER_H_
