#include "engine/model/matmul.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <dnnl.hpp>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "engine/model/few_rows.h"
#include "engine/model/host_memory.h"
#include "engine/model/product.h"
#include "engine/model/tensor_rows.h"
#include "engine/model/vector_loops.h"
#include "engine/model/work_queue.h"
#include "kernels/cpu/convert_rows.h"
#include "kernels/cpu/parallel.h"

namespace pagoda {
namespace {

using kernels::ElementBytes;
using kernels::ElementType;
using kernels::cpu::Execution;

// The outputs of a slice are whole registers. They are few enough that a slice and its results fit
// into the second-level cache, and that each of many threads gets some. They do not depend on the
// number of threads: with AMX or AVX2, oneDNN sums slices of different widths in different orders.
constexpr uint64_t kSliceGranule = 64;
constexpr uint64_t kMostSliceOutputs = 512;
constexpr uint64_t kFewestSlices = 16;

// Below this many multiplications, waking threads takes longer than they save.
constexpr uint64_t kSmallestParallelProduct = uint64_t{1} << 18;

uint64_t RoundUp(uint64_t number, uint64_t granule) {
  return (number + granule - 1) / granule * granule;
}

uint64_t SliceOutputs(uint64_t outputs) {
  const uint64_t even = RoundUp((outputs + kFewestSlices - 1) / kFewestSlices, kSliceGranule);
  return std::min({even, kMostSliceOutputs, outputs});
}

class Matrix : public SlicedMatrix {
 public:
  uint64_t inputs() const override { return full->inputs(); }
  uint64_t outputs() const override { return num_outputs; }
  ElementType type() const override { return element_type; }
  uint64_t bytes() const override { return inputs() * num_outputs * ElementBytes(element_type); }

  uint64_t first_output(uint64_t slice) const { return slice * full->outputs(); }
  SliceKind& kind(uint64_t slice) const { return slice + 1 == slices.size() ? *last : *full; }

  ElementType element_type = ElementType::kFloat32;
  uint64_t num_outputs = 0;
  SliceKind* full = nullptr;  // MatMul's.
  SliceKind* last = nullptr;  // For the last slice, which can be smaller.
  HostMemory memory;
  std::vector<dnnl::memory> slices;  // Into `memory`.
  std::vector<float> bias;
};

// Rows first to first + count - 1 of stacked matrices.
void ReadStacked(absl::Span<const TensorInfo> matrices, uint64_t first, uint64_t count,
                 ElementType type, std::byte* output) {
  for (const TensorInfo& matrix : matrices) {
    const uint64_t rows = matrix.shape[0];
    if (first < rows && count > 0) {
      const uint64_t here = std::min(count, rows - first);
      ReadRows(matrix, first, here, type, output);
      output += here * matrix.shape[1] * ElementBytes(type);
      count -= here;
      first = 0;
    } else {
      first -= std::min(first, rows);
    }
  }
}

}  // namespace

class MatMul::State {
 public:
  explicit State(const Execution& execution)
      : execution_(execution),
        loops_(VectorLoopsFor(execution.isa)),
        queue_(execution.threads->num_threads()) {}

  absl::StatusOr<std::unique_ptr<SlicedMatrix>> Load(absl::Span<const TensorInfo> matrices,
                                                     absl::Span<const float> bias,
                                                     ElementType type) {
    auto matrix = std::make_unique<Matrix>();
    matrix->element_type = type;
    matrix->bias.assign(bias.begin(), bias.end());
    for (const TensorInfo& part : matrices) matrix->num_outputs += part.shape[0];
    const uint64_t inputs = matrices[0].shape[1];
    const uint64_t outputs = matrix->num_outputs;
    const uint64_t slice = SliceOutputs(outputs);
    const uint64_t num_slices = (outputs + slice - 1) / slice;
    matrix->full = &Kind(type, inputs, slice);
    matrix->last = &Kind(type, inputs, outputs - (num_slices - 1) * slice);
    const uint64_t slice_bytes = RoundUp(matrix->full->bytes(), 64);
    absl::StatusOr<HostMemory> memory = HostMemory::Allocate(num_slices * slice_bytes);
    if (!memory.ok()) return memory.status();
    matrix->memory = *std::move(memory);
    for (uint64_t s = 0; s < num_slices; ++s) {
      const SliceKind& kind = s + 1 == num_slices ? *matrix->last : *matrix->full;
      matrix->slices.push_back(kind.MemoryAt(matrix->memory.data() + s * slice_bytes));
    }
    if (absl::Status status = Fill(matrices, *matrix); !status.ok()) return status;
    return matrix;
  }

  absl::Status Multiply(const Matrix& weights, const RowsView& input, const RowsView& output) {
    PAGODA_CHECK(input.cols == weights.inputs() && output.cols == weights.outputs() &&
                     input.rows == output.rows,
                 "a product's shapes match");
    if (input.rows == 0) return absl::OkStatus();
    Call call{weights, output};
    call.num_blocks = (input.rows + kMostRows - 1) / kMostRows;
    call.last_rows = PaddedRows(input.rows - (call.num_blocks - 1) * kMostRows);
    absl::StatusOr<const std::byte*> prepared =
        PrepareInput(weights, input, (call.num_blocks - 1) * kMostRows + call.last_rows);
    if (!prepared.ok()) return prepared.status();
    call.input = *prepared;
    FindProducts(call);

    const uint64_t multiplications = weights.inputs() * weights.outputs() * input.rows;
    queue_.Fill(weights.slices.size() * call.num_blocks);
    failed_.store(false, std::memory_order_relaxed);
    if (multiplications < kSmallestParallelProduct) {
      Work(call, 0);
    } else {
      execution_.threads->Run([&](uint32_t worker) { Work(call, worker); });
    }
    if (failed_.load(std::memory_order_relaxed)) return absl::InternalError("oneDNN: a product");
    return absl::OkStatus();
  }

 private:
  struct Call {
    const Matrix& weights;
    const RowsView& output;
    const std::byte* input = nullptr;  // [padded rows][inputs], of the weights' type.
    uint64_t num_blocks = 0;           // Each of kMostRows rows, except the last one.
    uint64_t last_rows = 0;            // Padded.
    // By slice (full, last) and by block (full, last). Null: MultiplyFewRows.
    Product* products[2][2] = {};
    uint64_t scratch_bytes = 0;  // Behind the results of a slice.
    uint64_t result_bytes = 0;
  };

  uint32_t num_threads() const { return execution_.threads->num_threads(); }

  SliceKind& Kind(ElementType type, uint64_t inputs, uint64_t outputs) {
    std::unique_ptr<SliceKind>& kind = kinds_[{type, inputs, outputs}];
    if (kind == nullptr) {
      kind = std::make_unique<SliceKind>(engine_, type, inputs, outputs, num_threads());
    }
    return *kind;
  }

  // Reads the weights into oneDNN's order. The thread that will multiply with a slice fills it, so
  // that its memory is near that thread.
  absl::Status Fill(absl::Span<const TensorInfo> matrices, Matrix& matrix) {
    queue_.Fill(matrix.slices.size());
    failed_.store(false, std::memory_order_relaxed);
    execution_.threads->Run([&](uint32_t worker) {
      const uint64_t row_bytes = matrix.inputs() * ElementBytes(matrix.element_type);
      std::byte* plain =
          execution_.threads->Scratch(worker, matrix.full->outputs() * row_bytes).data();
      uint32_t visited = 0;
      for (uint64_t s = 0; (s = queue_.Take(worker, &visited)) != WorkQueue::kNone;) {
        const SliceKind& kind = matrix.kind(s);
        ReadStacked(matrices, matrix.first_output(s), kind.outputs(), matrix.element_type, plain);
        try {
          kind.Order(plain, matrix.slices[s]);
        } catch (const dnnl::error&) {
          failed_.store(true, std::memory_order_relaxed);
        }
      }
    });
    if (failed_.load(std::memory_order_relaxed)) return absl::InternalError("oneDNN: a reorder");
    return absl::OkStatus();
  }

  // The rows in the form that the code needs: contiguous, of the weights' type, with memory for the
  // padding rows behind the last one.
  absl::StatusOr<const std::byte*> PrepareInput(const Matrix& weights, const RowsView& input,
                                                uint64_t padded_rows) {
    const ElementType type = weights.element_type;
    if (type == ElementType::kFloat32 && input.stride == input.cols && padded_rows == input.rows) {
      return reinterpret_cast<const std::byte*>(input.data);
    }
    const uint64_t row_bytes = input.cols * ElementBytes(type);
    if (inputs_.bytes() < padded_rows * row_bytes) {
      absl::StatusOr<HostMemory> larger = HostMemory::Allocate(padded_rows * row_bytes);
      if (!larger.ok()) return larger.status();
      inputs_ = *std::move(larger);
    }
    const kernels::cpu::ConvertRows convert = kernels::cpu::FindConversion(
        ElementType::kFloat32, type, execution_.isa, kernels::cpu::Stores::kThroughCaches);
    kernels::cpu::InPieces(execution_, input.rows, row_bytes, [&](uint64_t begin, uint64_t end) {
      convert({.source = reinterpret_cast<const std::byte*>(input.data + begin * input.stride),
               .source_stride_bytes = input.stride * sizeof(float),
               .target = inputs_.data() + begin * row_bytes,
               .target_stride_bytes = row_bytes,
               .num_rows = end - begin,
               .row_elements = input.cols},
              /*scale=*/1.0f);
    });
    return inputs_.data();
  }

  void FindProducts(Call& call) {
    SliceKind* const kinds[] = {call.weights.full, call.weights.last};
    for (int slice = 0; slice < 2; ++slice) {
      for (int block = 0; block < 2; ++block) {
        if (block == 0 && call.num_blocks == 1) continue;
        // For one row, oneDNN's code already reads memory at full speed.
        const bool few = block == 1 && call.last_rows > 1 && call.last_rows <= kMostFewRows;
        if (few && kinds[slice]->in_order_for_few_rows()) continue;
        Product& product = kinds[slice]->ForRows(block == 0 ? kMostRows : call.last_rows);
        call.products[slice][block] = &product;
        call.scratch_bytes = std::max(call.scratch_bytes, product.scratch_bytes());
      }
    }
    const uint64_t rows = call.num_blocks == 1 ? call.last_rows : kMostRows;
    call.result_bytes = RoundUp(rows * call.weights.full->outputs() * sizeof(float), 64);
  }

  // A worker's part: all blocks of a slice in turn, so that its weights are read from memory once.
  void Work(const Call& call, uint32_t worker) {
    const OneThread one_thread;
    std::byte* memory =
        execution_.threads->Scratch(worker, call.result_bytes + call.scratch_bytes).data();
    auto* results = reinterpret_cast<float*>(memory);
    uint32_t visited = 0;
    for (uint64_t unit = 0; (unit = queue_.Take(worker, &visited)) != WorkQueue::kNone;) {
      const uint64_t slice = unit / call.num_blocks;
      const uint64_t block = unit % call.num_blocks;
      const uint64_t first_row = block * kMostRows;
      const bool last_slice = slice + 1 == call.weights.slices.size();
      const bool last_block = block + 1 == call.num_blocks;
      const std::byte* input =
          call.input + first_row * call.weights.inputs() * ElementBytes(call.weights.element_type);
      Product* product = call.products[last_slice][last_block];
      const dnnl::memory& weights = call.weights.slices[slice];
      if (product == nullptr) {
        MultiplyFewRows(input, call.last_rows, call.weights.inputs(),
                        static_cast<const std::byte*>(weights.get_data_handle()),
                        call.weights.kind(slice).outputs(), results);
      } else if (!product->Run(worker, input, weights, results, memory + call.result_bytes)) {
        failed_.store(true, std::memory_order_relaxed);
        return;
      }
      StoreResults(call, slice, first_row, results);
    }
  }

  // Copies [rows][outputs of the slice] to their columns of the output.
  void StoreResults(const Call& call, uint64_t slice, uint64_t first_row, const float* results) {
    const uint64_t count = call.weights.kind(slice).outputs();
    const uint64_t first = call.weights.first_output(slice);
    const uint64_t end_row = std::min(first_row + kMostRows, call.output.rows);
    for (uint64_t row = first_row; row < end_row; ++row, results += count) {
      float* target = call.output.data + row * call.output.stride + first;
      if (call.weights.bias.empty()) {
        std::memcpy(target, results, count * sizeof(float));
      } else {
        loops_.add_bias(results, call.weights.bias.data() + first, count, target);
      }
    }
  }

  const Execution execution_;
  const VectorLoops& loops_;
  WorkQueue queue_;
  std::atomic<bool> failed_ = false;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  // A model has few shapes of slices.
  std::map<std::tuple<ElementType, uint64_t, uint64_t>, std::unique_ptr<SliceKind>> kinds_;
  HostMemory inputs_;
};

uint64_t MatMul::PaddedRows(uint64_t rows) {
  if (rows <= 16) return rows;
  return RoundUp(rows, rows <= 64 ? 16 : 64);
}

MatMul::MatMul(const Execution& execution) : state_(std::make_unique<State>(execution)) {}
MatMul::~MatMul() = default;

absl::StatusOr<std::unique_ptr<SlicedMatrix>> MatMul::Load(absl::Span<const TensorInfo> matrices,
                                                           absl::Span<const float> bias,
                                                           ElementType type) {
  // oneDNN's exceptions end here.
  try {
    return state_->Load(matrices, bias, type);
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
}

absl::Status MatMul::Multiply(const SlicedMatrix& weights, const RowsView& input,
                              const RowsView& output) {
  try {
    return state_->Multiply(static_cast<const Matrix&>(weights), input, output);
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
}

absl::Status MatMul::MultiplyEach(absl::Span<const ProductCall> calls) {
  for (const ProductCall& call : calls) {
    if (absl::Status status = Multiply(*call.weights, call.input, call.output); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace pagoda
