// Products of activations and weights on a pool of threads. The weights stay where they are, in the
// file's type.
#ifndef PAGODA_ENGINE_MODEL_CPU_PRODUCTS_MATMUL_H_
#define PAGODA_ENGINE_MODEL_CPU_PRODUCTS_MATMUL_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/engine_options.h"
#include "engine/model/backend/backend.h"
#include "engine/model/cpu/products/instructions.h"
#include "kernels/execution/execution.h"

namespace pagoda {

// A weight matrix [outputs][inputs]: parts one above the other, each of one type. It points to
// their bytes and owns only the bias.
class SlicedMatrix : public LinearWeights {
 public:
  virtual uint64_t bytes() const = 0;  // The bytes of the parts' elements.
};

// output = input * transpose(weights) + the weights' bias. Several calls can have the same input;
// it is converted once for all of them.
struct ProductCall {
  const SlicedMatrix* weights = nullptr;
  RowsView input;
  RowsView output;
};

// Computes products in pieces of their outputs, each on one thread. There are three ways:
//  * Few rows: dot products that read the weights from where they are (model/cpu/dots/dots.h).
//    Quantised weights are multiplied as integers.
//  * Many rows with AMX: a thread brings its piece of the weights into the order of tiles, once for
//    all rows (model/cpu/products/tiles.h).
//  * Many rows otherwise: a thread converts its piece for oneDNN, once for all rows (product.h).
//    oneDNN generates code for each number of rows, so PaddedRows rounds it up to one of few
//    numbers; the code is kept. It starts no OpenMP thread.
// Invariants:
//  1. Beside the weights' bytes, memory is needed for the inputs and for one piece per thread.
//  2. The bits of a result do not depend on the number of threads, nor on the other calls.
//  3. The bits of a row's results depend on the other rows only by the way and the factors that
//     their number chooses, and by PaddedRows if oneDNN multiplies.
//  4. Only the weights of the calls' matrices are read.
// Thread-compatible.
class MatMul {
 public:
  // How the numbers of a call are multiplied; sums are fp32.
  enum class Factors : uint8_t {
    kFloat32,   // Both are taken exactly.
    kBFloat16,  // Both are rounded to bf16.
    kInteger,   // Weights as they are; activations as 8 bits in blocks of 32 (QuantisedRow).
    kSplit,     // Weights of fp16 and activations as two bf16 each: 3 * 2^-17 of a term is lost.
  };

  // oneDNN's numbers of rows: exact up to 16, then multiples of 16 and 64. At most kMostRows rows
  // are multiplied at a time.
  static constexpr uint64_t kMostRows = 256;
  static uint64_t PaddedRows(uint64_t rows);

  // REQUIRES: execution has threads; the machine has the instructions.
  explicit MatMul(const kernels::cpu::Execution& execution);
  MatMul(const kernels::cpu::Execution& execution, const ProductInstructions& instructions);
  ~MatMul();

  // Stacks the matrices, whose bytes must stay valid as long as the result is used. `bias` is added
  // to their outputs; it is empty or has one number per output. Touches no weight. REQUIRES: the
  // matrices have the same number of columns; bf16 only with instructions.bfloat16().
  std::unique_ptr<SlicedMatrix> Load(absl::Span<const TensorInfo> matrices,
                                     absl::Span<const float> bias, ComputeType compute) const;

  // How weights of a type are multiplied with this number of rows.
  Factors FactorsOf(TensorType type, ComputeType compute, uint64_t rows) const;

  // output = input * transpose(weights) + bias, with fp32 sums. REQUIRES: matching shapes; the
  // output does not overlap the input. Errors: OUT_OF_MEMORY; INTERNAL if oneDNN fails.
  absl::Status Multiply(const SlicedMatrix& weights, const RowsView& input, const RowsView& output);

  // The same for many products, all in one parallel region: the chosen experts of a mixture, or one
  // product per head. REQUIRES: no output overlaps an input or another output.
  absl::Status MultiplyEach(absl::Span<const ProductCall> calls);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_PRODUCTS_MATMUL_H_
