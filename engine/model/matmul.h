#ifndef PAGODA_ENGINE_MODEL_MATMUL_H_
#define PAGODA_ENGINE_MODEL_MATMUL_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace pagoda {

// A weight matrix, row-major [rows][cols]: `rows` outputs of `cols` inputs each, as checkpoints
// store linear layers.
struct Matrix {
  uint64_t rows = 0;
  uint64_t cols = 0;
  std::vector<float> values;
};

// Matrix products in fp32 by oneDNN, on its OpenMP threads where that pays. Thread-compatible.
// Making a product's code takes longer than a small product, so that those of the last shapes are
// kept.
class MatMul {
 public:
  MatMul();
  ~MatMul();

  // output[num_rows][weights.rows] = input[num_rows][weights.cols] * transpose(weights). Rows are
  // contiguous. Throws dnnl::error where oneDNN fails, for example for want of memory.
  void Multiply(const float* input, uint64_t num_rows, const Matrix& weights, float* output);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_MATMUL_H_
