// Products of activations and weights by oneDNN, few rows of bf16 by few_rows.h, on a pool of
// threads.
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
// oneDNN's own order.
class SlicedMatrix : public LinearWeights {
 public:
  // What its elements are, and the activations that it is multiplied with.
  virtual kernels::ElementType type() const = 0;
  virtual uint64_t bytes() const = 0;  // Of the elements.
};

// A product is done slice by slice, each on one thread; no thread of OpenMP's is ever started.
// oneDNN makes code for each number of rows, so they are rounded up to few (PaddedRows), and what
// the code needs is kept. A result's bits do not depend on the number of threads.
// Thread-compatible.
class MatMul {
 public:
  // Numbers of rows are exact up to 16, then multiples of 16 and 64; at most kMostRows go at once.
  static constexpr uint64_t kMostRows = 256;
  static uint64_t PaddedRows(uint64_t rows);

  // REQUIRES: execution has threads.
  explicit MatMul(const kernels::cpu::Execution& execution);
  ~MatMul();

  // The matrices one above the other, and the numbers that are added to their outputs (none, or as
  // many as there are). `type`: fp32 or bf16. REQUIRES: the same number of columns. Errors:
  // OUT_OF_MEMORY; INTERNAL where oneDNN fails.
  absl::StatusOr<std::unique_ptr<SlicedMatrix>> Load(absl::Span<const TensorInfo> matrices,
                                                     absl::Span<const float> bias,
                                                     kernels::ElementType type);

  // output = input * transpose(weights) + bias, in fp32 sums. REQUIRES: shapes that fit; weights of
  // this object's. Errors: INTERNAL where oneDNN fails.
  absl::Status Multiply(const SlicedMatrix& weights, const RowsView& input, const RowsView& output);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_MATMUL_H_
