#ifndef PAGODA_ENGINE_MODEL_ROWS_VIEW_H_
#define PAGODA_ENGINE_MODEL_ROWS_VIEW_H_

#include <cstdint>

namespace pagoda {

// Rows of numbers in a backend's memory: element c of row r is data[r * stride + c].
struct RowsView {
  float* data = nullptr;
  uint64_t stride = 0;  // In elements.
  uint64_t rows = 0;
  uint64_t cols = 0;

  // The same rows, with `count` columns from `first` on.
  RowsView Columns(uint64_t first, uint64_t count) const {
    return {.data = data + first, .stride = stride, .rows = rows, .cols = count};
  }
};

// Rows of heads: element i of head h is in column h * head_dim + i. A last head can have fewer
// columns.
struct HeadsView {
  RowsView rows;
  uint32_t head_dim = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_ROWS_VIEW_H_
