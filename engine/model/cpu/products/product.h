// oneDNN's code for products with weight slices of one shape.
#ifndef PAGODA_ENGINE_MODEL_CPU_PRODUCTS_PRODUCT_H_
#define PAGODA_ENGINE_MODEL_CPU_PRODUCTS_PRODUCT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <memory>
#include <vector>

#include "kernels/types.h"

namespace pagoda {

// While it exists, limits the calling thread to one OpenMP thread. oneDNN asks for all allowed
// threads when it generates code and when it runs it.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_;
};

// Inputs [rows][inputs] times a slice of weights [outputs][inputs], for one number of rows. The
// constructor prepares everything that Run needs for each worker, so that Run allocates nothing.
class Product {
 public:
  // Throws dnnl::error.
  Product(const dnnl::engine& engine, const dnnl::memory::desc& weights, uint64_t rows,
          uint64_t inputs, uint64_t outputs, uint32_t num_workers);

  // The scratch memory of a worker, in addition to the output.
  uint64_t scratch_bytes() const { return scratch_bytes_; }

  // output [rows][outputs] fp32, contiguous. Different workers can run it at the same time. False
  // if oneDNN fails.
  bool Run(uint32_t worker, const std::byte* input, const dnnl::memory& weights, float* output,
           std::byte* scratch);

 private:
  struct Worker {
    dnnl::stream stream;
    dnnl::memory input;
    dnnl::memory output;
    dnnl::memory scratch;
  };

  uint64_t scratch_bytes_ = 0;
  dnnl::matmul code_;
  std::vector<Worker> workers_;
};

// The common part of slices of one shape and type: oneDNN's order of their weights, and their
// products by number of rows, each made when first needed.
class SliceKind {
 public:
  // Throws dnnl::error. `type`: fp32 or bf16. The order of the weights is the best for kRowsOfOrder
  // rows, and good for all other numbers.
  SliceKind(const dnnl::engine& engine, kernels::ElementType type, uint64_t inputs,
            uint64_t outputs, uint32_t num_workers);

  uint64_t inputs() const { return inputs_; }
  uint64_t outputs() const { return outputs_; }
  uint64_t bytes() const { return weights_.get_size(); }

  // A slice at `data`.
  dnnl::memory MemoryAt(std::byte* data) const { return dnnl::memory(weights_, engine_, data); }
  // Copies [outputs][inputs] into oneDNN's order. Throws. Thread-safe.
  void Order(std::byte* plain, const dnnl::memory& ordered) const;

  // `rows` is a result of MatMul::PaddedRows. Throws. Thread-safe for a number of rows that was
  // asked for before.
  Product& ForRows(uint64_t rows);

 private:
  const dnnl::engine engine_;
  const dnnl::memory::data_type type_;
  const uint64_t inputs_;
  const uint64_t outputs_;
  const uint32_t num_workers_;
  dnnl::memory::desc weights_;
  std::array<std::unique_ptr<Product>, 32> products_;  // By RowsIndex.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_PRODUCTS_PRODUCT_H_
