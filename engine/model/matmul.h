// Products of activations and weights on a pool of threads, by oneDNN; for few rows of bf16 by
// few_rows.h.
#ifndef PAGODA_ENGINE_MODEL_MATMUL_H_
#define PAGODA_ENGINE_MODEL_MATMUL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/model/backend.h"
#include "kernels/cpu/execution.h"
#include "kernels/types.h"

namespace pagoda {

// A weight matrix [outputs][inputs] as MatMul keeps it: cut by outputs into slices, each in
// oneDNN's order.
class SlicedMatrix : public LinearWeights {
 public:
  // The type of its elements, and of the activations that it is multiplied with.
  virtual kernels::ElementType type() const = 0;
  virtual uint64_t bytes() const = 0;  // Of the elements.
};

// output = input * transpose(weights) + the weights' bias. Several calls can have the same input.
struct ProductCall {
  const SlicedMatrix* weights = nullptr;
  RowsView input;
  RowsView output;
};

// Computes a product slice by slice, each on one thread, and starts no OpenMP thread. oneDNN
// generates code for each number of rows, so PaddedRows rounds it up to one of few numbers. The
// code and its buffers are kept. The bits of a result do not depend on the number of threads.
// Thread-compatible.
class MatMul {
 public:
  // Exact up to 16 rows, then multiples of 16 and 64. At most kMostRows rows are multiplied at a
  // time.
  static constexpr uint64_t kMostRows = 256;
  static uint64_t PaddedRows(uint64_t rows);

  // REQUIRES: execution has threads.
  explicit MatMul(const kernels::cpu::Execution& execution);
  ~MatMul();

  // Stacks the matrices. `bias` is added to their outputs; it is empty or has one number per
  // output. `type`: fp32 or bf16. REQUIRES: the matrices have the same number of columns. Errors:
  // OUT_OF_MEMORY; INTERNAL if oneDNN fails.
  absl::StatusOr<std::unique_ptr<SlicedMatrix>> Load(absl::Span<const TensorInfo> matrices,
                                                     absl::Span<const float> bias,
                                                     kernels::ElementType type);

  // output = input * transpose(weights) + bias, with fp32 sums. REQUIRES: matching shapes; weights
  // loaded by this object. Errors: INTERNAL if oneDNN fails.
  absl::Status Multiply(const SlicedMatrix& weights, const RowsView& input, const RowsView& output);

  // The same for many products: the chosen experts of a mixture, or one product per head. Each has
  // the bits that Multiply gives it. REQUIRES: no output overlaps an input or another output.
  absl::Status MultiplyEach(absl::Span<const ProductCall> calls);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_MATMUL_H_
