#include "engine/model/cpu/products/product.h"

#include <omp.h>

namespace pagoda {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

constexpr auto kFloat = memory::data_type::f32;

// The order of the weights is chosen for this number of rows. Fewer rows are bound by memory in any
// order; many rows leave time to read any order twice.
constexpr uint64_t kRowsOfOrder = 16;

memory::dim Dim(uint64_t size) { return static_cast<memory::dim>(size); }

// 0 to 15 for 1 to 16 rows, 16 to 18 for 32 to 64, 19 to 21 for 128 to 256.
size_t RowsIndex(uint64_t rows) {
  if (rows <= 16) return rows - 1;
  return rows <= 64 ? 14 + rows / 16 : 17 + rows / 64;
}

}  // namespace

OneThread::OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
OneThread::~OneThread() { omp_set_num_threads(before_); }

Product::Product(const dnnl::engine& engine, const memory::desc& weights, uint64_t rows,
                 uint64_t inputs, uint64_t outputs, uint32_t num_workers) {
  const OneThread one_thread;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc description(
      {memory::desc({Dim(rows), Dim(inputs)}, weights.data_type(), Tag::ab), weights,
       memory::desc({Dim(rows), Dim(outputs)}, kFloat, Tag::ab)},
      attributes, engine);
  code_ = dnnl::matmul(description);
  scratch_bytes_ = description.scratchpad_desc().get_size();
  for (uint32_t w = 0; w < num_workers; ++w) {
    workers_.push_back({.stream = dnnl::stream(engine),
                        .input = memory(description.src_desc(), engine, nullptr),
                        .output = memory(description.dst_desc(), engine, nullptr),
                        .scratch = memory(description.scratchpad_desc(), engine, nullptr)});
  }
}

// Uses oneDNN's C interface, which returns codes: an exception on a worker would end the process.
bool Product::Run(uint32_t worker, const std::byte* input, const memory& weights, float* output,
                  std::byte* scratch) {
  const Worker& w = workers_[worker];
  // oneDNN's memory does not distinguish reads from writes.
  dnnl_memory_set_data_handle(w.input.get(), const_cast<std::byte*>(input));
  dnnl_memory_set_data_handle(w.output.get(), output);
  dnnl_memory_set_data_handle(w.scratch.get(), scratch);
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, w.input.get()},
                                       {DNNL_ARG_WEIGHTS, weights.get()},
                                       {DNNL_ARG_DST, w.output.get()},
                                       {DNNL_ARG_SCRATCHPAD, w.scratch.get()}};
  return dnnl_primitive_execute(code_.get(), w.stream.get(), 4, arguments) == dnnl_success;
}

SliceKind::SliceKind(const dnnl::engine& engine, kernels::ElementType type, uint64_t inputs,
                     uint64_t outputs, uint32_t num_workers)
    : engine_(engine),
      type_(type == kernels::ElementType::kBFloat16 ? memory::data_type::bf16 : kFloat),
      inputs_(inputs),
      outputs_(outputs),
      num_workers_(num_workers) {
  const OneThread one_thread;
  const dnnl::matmul::primitive_desc description(
      {memory::desc({Dim(kRowsOfOrder), Dim(inputs)}, type_, Tag::ab),
       memory::desc({Dim(inputs), Dim(outputs)}, type_, Tag::any),
       memory::desc({Dim(kRowsOfOrder), Dim(outputs)}, kFloat, Tag::ab)},
      engine_);
  weights_ = description.weights_desc();
}

void SliceKind::Order(std::byte* plain, const memory& ordered) const {
  const OneThread one_thread;
  memory source(memory::desc({Dim(inputs_), Dim(outputs_)}, type_, Tag::ba), engine_, plain);
  memory target = ordered;
  dnnl::stream stream(engine_);
  dnnl::reorder(source, target).execute(stream, source, target);
  stream.wait();
}

Product& SliceKind::ForRows(uint64_t rows) {
  std::unique_ptr<Product>& product = products_[RowsIndex(rows)];
  if (product == nullptr) {
    product = std::make_unique<Product>(engine_, weights_, rows, inputs_, outputs_, num_workers_);
  }
  return *product;
}

}  // namespace pagoda
