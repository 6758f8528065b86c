// Rows and plain loops for the tests of the small layers.
#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_ROWS_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_ROWS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "engine/model/cuda/self_test/self_test_item.h"

namespace pagoda::cuda {

inline constexpr double kLayerTolerance = 2e-5;
// For sines and cosines of large angles.
inline constexpr double kRotaryTolerance = 1e-4;

inline constexpr uint64_t kTestRows = 5;

inline std::vector<double> Doubles(const std::vector<float>& numbers) {
  return {numbers.begin(), numbers.end()};
}

// Contiguous rows on the device.
inline RowsView BringRows(TestBed& bed, const std::vector<float>& numbers, uint64_t cols) {
  return {.data = bed.Bring(numbers), .stride = cols, .rows = numbers.size() / cols, .cols = cols};
}
// Rows that a kernel writes: NaN until then.
inline RowsView EmptyRows(TestBed& bed, uint64_t rows, uint64_t cols) {
  return BringRows(bed, std::vector<float>(rows * cols, std::nanf("")), cols);
}
inline std::vector<float> TakeRowsOf(TestBed& bed, const RowsView& rows) {
  return bed.Take(rows.data, rows.rows * rows.cols);
}

// Divides a row by the root of its mean square, and multiplies it by the weights.
inline void Norm(absl::Span<double> row, const std::vector<float>& weights, float eps) {
  double squares = 0;
  for (const double number : row) squares += number * number;
  const double root = std::sqrt(squares / static_cast<double>(row.size()) + eps);
  for (size_t i = 0; i < row.size(); ++i) row[i] *= weights[i] / root;
}

// A part that only one family has. The error is the largest over two numbers of columns: one that
// kernels access by 16 bytes per thread, and one that they do not.
inline SelfTestItem RowsItem(std::string part, double tolerance,
                             std::function<double(TestBed& bed, uint64_t cols)> error_of) {
  return {.part = std::move(part),
          .family = "portable",
          .tolerance = tolerance,
          .test = [error_of = std::move(error_of)](TestBed& bed) {
            Measured measured;
            for (const uint64_t cols : {256, 33}) {
              measured.error = std::max(measured.error, error_of(bed, cols));
            }
            return measured;
          }};
}

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_ROWS_H_
