#ifndef PAGODA_ENGINE_MODEL_BACKEND_ROWS_VIEW_H_
#define PAGODA_ENGINE_MODEL_BACKEND_ROWS_VIEW_H_

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace pagoda {

// Rows of numbers in a backend's memory: element c of row r is element r * stride + c of `data`.
struct RowsView {
  float* data = nullptr;  // The elements' memory, also if their type is not fp32.
  uint64_t stride = 0;    // In elements.
  uint64_t rows = 0;
  uint64_t cols = 0;
  // If above `rows`: how many rows from the first one on a product may read, and overwrite if they
  // are its output. A later operation writes the rows behind these rows, or nothing reads them.
  uint64_t room = 0;
  // A 16-bit type only where Backend::FactorType or Backend::QueryType says so.
  kernels::ElementType type = kernels::ElementType::kFloat32;

  // The same rows, with `count` columns from `first` on.
  RowsView Columns(uint64_t first, uint64_t count) const {
    RowsView view = *this;
    view.data = Behind(first);
    view.cols = count;
    return view;
  }
  // `count` rows from `first` on. A later operation writes the rows behind them.
  RowsView Rows(uint64_t first, uint64_t count) const {
    RowsView view = *this;
    view.data = Behind(first * stride);
    view.rows = count;
    view.room = room > first ? room - first : 0;
    return view;
  }
  // The same memory with elements of a type that is not larger.
  RowsView As(kernels::ElementType other) const {
    RowsView view = *this;
    view.type = other;
    return view;
  }

 private:
  // The address of the element.
  float* Behind(uint64_t element) const {
    return reinterpret_cast<float*>(reinterpret_cast<std::byte*>(data) +
                                    element * kernels::ElementBytes(type));
  }
};

// Rows of heads: element i of head h is in column h * head_dim + i. A last head can have fewer
// columns.
struct HeadsView {
  RowsView rows;
  uint32_t head_dim = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_BACKEND_ROWS_VIEW_H_
