#include "engine/model/matmul.h"

#include <omp.h>

#include <dnnl.hpp>
#include <optional>
#include <tuple>

#include "absl/container/flat_hash_map.h"

namespace pagoda {
namespace {

// A bound on memory: the products of one model at some two hundred different numbers of rows.
constexpr size_t kMaxKeptProducts = 1024;

// Below this many multiplications, waking oneDNN's OpenMP threads and waiting for them takes longer
// than they save; on a machine with other work, where a waiting thread keeps the working one off
// its core, very much longer.
constexpr uint64_t kSmallestParallelProduct = uint64_t{1} << 20;

// Takes OpenMP's threads away from the caller's thread, for a time.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_ = omp_get_max_threads();
};

using Shape = std::tuple<uint64_t, uint64_t, uint64_t>;  // Rows of input, columns, rows of weights.

struct Product {
  dnnl::memory::desc input;
  dnnl::memory::desc weights;
  dnnl::memory::desc output;
  dnnl::matmul code;
};

Product MakeProduct(const dnnl::engine& cpu, const Shape& shape) {
  const auto m = static_cast<dnnl::memory::dim>(std::get<0>(shape));
  const auto k = static_cast<dnnl::memory::dim>(std::get<1>(shape));
  const auto n = static_cast<dnnl::memory::dim>(std::get<2>(shape));
  using Tag = dnnl::memory::format_tag;
  constexpr auto kFloat = dnnl::memory::data_type::f32;
  const dnnl::memory::desc input({m, k}, kFloat, Tag::ab);
  const dnnl::memory::desc weights({k, n}, kFloat, Tag::ba);  // Stored as [n][k].
  const dnnl::memory::desc output({m, n}, kFloat, Tag::ab);
  const dnnl::matmul::primitive_desc description({input, weights, output}, cpu);
  return {input, weights, output, dnnl::matmul(description)};
}

// oneDNN's memory objects do not tell what is read from what is written.
dnnl::memory Wrap(const dnnl::memory::desc& desc, const dnnl::engine& cpu, const float* data) {
  return dnnl::memory(desc, cpu, const_cast<float*>(data));
}

}  // namespace

struct MatMul::State {
  dnnl::engine cpu{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{cpu};
  absl::flat_hash_map<Shape, Product> products;
};

MatMul::MatMul() : state_(std::make_unique<State>()) {}
MatMul::~MatMul() = default;

void MatMul::Multiply(const float* input, uint64_t num_rows, const Matrix& weights, float* output) {
  std::optional<OneThread> one_thread;
  if (num_rows * weights.cols * weights.rows < kSmallestParallelProduct) one_thread.emplace();
  const Shape shape(num_rows, weights.cols, weights.rows);
  auto it = state_->products.find(shape);
  if (it == state_->products.end()) {
    if (state_->products.size() == kMaxKeptProducts) state_->products.clear();
    it = state_->products.emplace(shape, MakeProduct(state_->cpu, shape)).first;
  }
  const Product& product = it->second;
  product.code.execute(state_->stream, {{DNNL_ARG_SRC, Wrap(product.input, state_->cpu, input)},
                                        {DNNL_ARG_WEIGHTS,
                                         Wrap(product.weights, state_->cpu, weights.values.data())},
                                        {DNNL_ARG_DST, Wrap(product.output, state_->cpu, output)}});
  state_->stream.wait();
}

}  // namespace pagoda
