// The parts of a weight matrix, and the pieces into which a product is cut.
#ifndef PAGODA_ENGINE_MODEL_CPU_PRODUCTS_PIECE_H_
#define PAGODA_ENGINE_MODEL_CPU_PRODUCTS_PIECE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/engine_options.h"
#include "engine/model/backend/rows_view.h"
#include "engine/model/cpu/products/matmul.h"

namespace pagoda {

// Rows of weights of one type.
struct MatrixPart {
  TensorType type;
  const std::byte* data;
  uint64_t row_bytes;     // The bytes of a row.
  uint64_t stride_bytes;  // From a row to the next one.
  uint64_t first_output;
  uint64_t outputs;
};

// The only SlicedMatrix. Immutable once it is loaded.
class StoredWeights : public SlicedMatrix {
 public:
  StoredWeights(uint64_t inputs, ComputeType compute, absl::Span<const float> bias)
      : inputs_(inputs), compute_(compute), bias_(bias.begin(), bias.end()) {}

  // Adds a matrix below those before. Continues the last part if the rows lie as its rows do: rows
  // of one matrix can come one by one.
  void Append(const TensorInfo& matrix);

  uint64_t inputs() const override { return inputs_; }
  uint64_t outputs() const override { return outputs_; }
  uint64_t bytes() const override;
  ComputeType compute() const { return compute_; }
  const std::vector<MatrixPart>& parts() const { return parts_; }
  // From this output on; null: no bias.
  const float* bias(uint64_t output) const {
    return bias_.empty() ? nullptr : bias_.data() + output;
  }

 private:
  const uint64_t inputs_;
  const ComputeType compute_;
  const std::vector<float> bias_;
  uint64_t outputs_ = 0;
  std::vector<MatrixPart> parts_;
};

// How a piece is multiplied: see MatMul.
enum class ProductWay : uint8_t { kDots, kTiles, kOneDnn };

// Some outputs of a part, for all rows of a call.
struct Piece {
  const StoredWeights* matrix;
  const MatrixPart* part;
  const RowsView* output;
  uint64_t first;  // Output of the part.
  uint64_t count;
  size_t input;  // In PreparedInputs.
  MatMul::Factors factors;
  ProductWay way;

  uint64_t inputs() const { return matrix->inputs(); }
  uint64_t num_rows() const { return output->rows; }
  const std::byte* row(uint64_t output_of_piece) const {
    return part->data + (first + output_of_piece) * part->stride_bytes;
  }
  float* result(uint64_t input_row) const {
    return output->data + input_row * output->stride + part->first_output + first;
  }
  const float* bias() const { return matrix->bias(part->first_output + first); }
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_PRODUCTS_PIECE_H_
