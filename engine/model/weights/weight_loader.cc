#include "engine/model/weights/weight_loader.h"

#include <cstring>

#include "base/check.h"

namespace pagoda {

ModelWeights::Norm WeightLoader::Norm(const std::string& name, uint64_t size) {
  std::vector<float> values = Floats(name + ".weight", {size});
  if (config_.norm_weight_plus_one) {
    for (float& value : values) value += 1.0f;
  }
  if (!status_.ok()) return {};
  ModelWeights::Norm norm;
  norm.weight = Keep(backend_.MakeVector(values));
  if (config_.layer_norms) norm.bias = Vector(name + ".bias", size);
  return norm;
}

ModelWeights::Vector WeightLoader::Vector(const std::string& name, uint64_t size) {
  const std::vector<float> values = Floats(name, {size});
  if (!status_.ok()) return nullptr;
  return Keep(backend_.MakeVector(values));
}

std::vector<float> WeightLoader::Floats(const std::string& name, absl::Span<const uint64_t> shape) {
  if (!status_.ok()) return {};
  return Keep(checkpoint_.ReadFloats(name, shape));
}

ModelWeights::Linear WeightLoader::Linear(const std::vector<Part>& parts, uint64_t inputs,
                                          Bias bias) {
  std::vector<TensorInfo> matrices;
  std::vector<float> biases;
  for (const Part& part : parts) {
    matrices.push_back(Find(part.name + ".weight", {part.outputs, inputs}));
    if (bias == Bias::kNone) continue;
    const std::vector<float> added = Floats(part.name + ".bias", {part.outputs});
    biases.insert(biases.end(), added.begin(), added.end());
  }
  return LinearOf(matrices, biases);
}

ModelWeights::Linear WeightLoader::LinearOf(absl::Span<const TensorInfo> matrices,
                                            absl::Span<const float> bias) {
  if (!status_.ok()) return nullptr;
  return Keep(backend_.MakeLinear(matrices, bias));
}

std::unique_ptr<EmbeddingWeights> WeightLoader::Embedding(const std::string& name, uint64_t rows,
                                                          uint64_t cols) {
  const TensorInfo matrix = Find(name + ".weight", {rows, cols});
  if (!status_.ok()) return nullptr;
  return Keep(backend_.MakeEmbedding(matrix));
}

TensorInfo WeightLoader::Find(const std::string& name, absl::Span<const uint64_t> shape) {
  if (!status_.ok()) return {};
  return Keep(checkpoint_.Find(name, shape));
}

TensorInfo WeightLoader::Rows(const TensorInfo& matrix, uint64_t first, uint64_t count) {
  if (matrix.shape.size() != 2) return {};  // After an error.
  return RowsOf(matrix, first, count);
}

TensorInfo WeightLoader::Slice(const TensorInfo& tensor, uint64_t index) {
  if (tensor.shape.size() != 3) return {};  // After an error.
  return PartOf(tensor, index);
}

TensorInfo WeightLoader::Transposed(const TensorInfo& matrix, uint64_t interleaved) {
  if (!status_.ok()) return {};
  const uint64_t rows = matrix.shape[0];
  const uint64_t cols = matrix.shape[1];
  PAGODA_CHECK(cols % interleaved == 0, "each matrix has the same number of columns");
  TensorInfo made = {.type = matrix.type, .shape = {cols, rows}, .bytes = {}};
  absl::Span<const std::byte> source = matrix.bytes;
  std::vector<float> widened;
  const std::optional<uint64_t> element_bytes = TensorBytes(matrix.type, {1, 1});
  uint64_t bytes = element_bytes.value_or(sizeof(float));
  if (!element_bytes.has_value()) {
    widened = ToFloats(matrix);
    source = {reinterpret_cast<const std::byte*>(widened.data()), widened.size() * sizeof(float)};
    made.type = TensorType::kFloat32;
  }
  std::vector<std::byte>& target = weights_.made.emplace_back(rows * cols * bytes);
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t col = 0; col < cols; ++col) {
      const uint64_t target_row = col % interleaved * (cols / interleaved) + col / interleaved;
      std::memcpy(target.data() + (target_row * rows + row) * bytes,
                  source.data() + (row * cols + col) * bytes, bytes);
    }
  }
  made.bytes = target;
  return made;
}

}  // namespace pagoda
