// Weights and activations for tests of products.
#ifndef PAGODA_TESTS_ENGINE_MODEL_STORED_MATRIX_H_
#define PAGODA_TESTS_ENGINE_MODEL_STORED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "engine/checkpoint/files/tensor.h"
#include "engine/model/backend/rows_view.h"

namespace pagoda {

struct Unmap {
  uint64_t bytes = 0;
  void operator()(std::byte* data) const;
};

// Bytes that end where memory ends, or a byte before: a read behind them by more crashes.
class GuardedBytes {
 public:
  enum class End : uint8_t { kAtTheEdge, kAByteBefore };

  GuardedBytes(const std::vector<std::byte>& content, End end);
  absl::Span<const std::byte> bytes() const { return bytes_; }
  // Makes every read of them crash.
  void Forbid() const;

 private:
  std::unique_ptr<std::byte, Unmap> memory_;
  absl::Span<const std::byte> bytes_;
};

// A random matrix of any type, and its numbers. Those of types with 16 bits or more are normally
// distributed. Quantised ones are random blocks with scales that keep the numbers below 4.
class StoredMatrix {
 public:
  // REQUIRES: `cols` is whole blocks of the type.
  StoredMatrix(TensorType type, uint64_t rows, uint64_t cols, std::mt19937& random);

  TensorInfo info() const {
    return {.type = type_, .shape = {rows_, cols_}, .bytes = memory_.bytes()};
  }
  float at(uint64_t row, uint64_t col) const { return values_[row * cols_ + col]; }
  void Forbid() const { memory_.Forbid(); }

 private:
  TensorType type_;
  uint64_t rows_;
  uint64_t cols_;
  GuardedBytes memory_;
  std::vector<float> values_;
};

// Rows of activations with gaps between them, and guards.
class GuardedRows {
 public:
  static constexpr uint64_t kGap = 3;
  static constexpr float kGuard = 12345.0f;

  GuardedRows(uint64_t rows, uint64_t cols)
      : numbers_((rows + 1) * (cols + kGap), kGuard), rows_(rows), cols_(cols) {}
  // With normally distributed numbers.
  GuardedRows(uint64_t rows, uint64_t cols, std::mt19937& random);

  float& at(uint64_t row, uint64_t col) { return numbers_[row * (cols_ + kGap) + col]; }
  float at(uint64_t row, uint64_t col) const { return numbers_[row * (cols_ + kGap) + col]; }
  RowsView view() {
    return {.data = numbers_.data(), .stride = cols_ + kGap, .rows = rows_, .cols = cols_};
  }
  RowsView view(uint64_t first, uint64_t count) {
    return {.data = &at(first, 0), .stride = cols_ + kGap, .rows = count, .cols = cols_};
  }
  // Nothing was written between or behind the rows.
  bool guarded() const;
  const std::vector<float>& numbers() const { return numbers_; }

 private:
  std::vector<float> numbers_;
  uint64_t rows_;
  uint64_t cols_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_MODEL_STORED_MATRIX_H_
