#include "engine/model/cpu/cpu_backend.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/model/cpu/loops/host_memory.h"
#include "engine/model/cpu/loops/vector_loops.h"
#include "engine/model/cpu/products/matmul.h"
#include "engine/model/cpu/rotary.h"
#include "engine/model/weights/tensor_rows.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/cache/cache.h"
#include "kernels/execution/parallel.h"

namespace pagoda {
namespace {

using kernels::ElementType;
using kernels::cpu::BestMatrixUnit;
using kernels::cpu::Isa;

struct CpuEmbedding : EmbeddingWeights {
  TensorInfo matrix;
};
struct CpuVector : VectorWeights {
  std::vector<float> values;
};

const std::vector<float>& ValuesOf(const VectorWeights& weights) {
  return static_cast<const CpuVector&>(weights).values;
}

const float* DataOf(const VectorWeights* weights) {
  return weights == nullptr ? nullptr : ValuesOf(*weights).data();
}

absl::string_view NameOf(MatMul::Factors factors) {
  switch (factors) {
    case MatMul::Factors::kBFloat16:
      return "bf16";
    case MatMul::Factors::kInteger:
      return "int8";
    case MatMul::Factors::kFloat32:
    case MatMul::Factors::kSplit:
      break;
  }
  return "fp32";
}

// kFloat32: attention rounds no queries and weights to bf16.
kernels::cpu::Execution AttentionOf(ComputeType compute, kernels::cpu::ThreadPool* threads) {
  kernels::cpu::Execution execution{.threads = threads};
  if (compute == ComputeType::kFloat32) {
    execution.isa = std::min(execution.isa, Isa::kAvx512);
  } else {
    execution.matrices = BestMatrixUnit();
  }
  return execution;
}

class CpuBackend : public Backend {
 public:
  CpuBackend(uint32_t num_threads, ComputeType compute)
      : compute_(compute),
        threads_(num_threads),
        execution_(AttentionOf(compute, &threads_)),
        loops_(VectorLoopsFor(kernels::cpu::BestIsa())),
        matmul_({.threads = &threads_, .isa = kernels::cpu::BestIsa()}) {}

  absl::Status started() const { return threads_.started(); }

  std::string description() const override {
    return absl::StrCat("cpu, ", threads_.num_threads(), " threads, products of ",
                        factors_.empty() ? "nothing" : absl::StrJoin(factors_, " and "));
  }

  absl::StatusOr<std::unique_ptr<LinearWeights>> MakeLinear(absl::Span<const TensorInfo> matrices,
                                                            absl::Span<const float> bias) override {
    for (const TensorInfo& matrix : matrices) {
      factors_.insert(NameOf(matmul_.FactorsOf(matrix.type, compute_, /*rows=*/1)));
    }
    return std::unique_ptr<LinearWeights>(matmul_.Load(matrices, bias, compute_));
  }

  absl::StatusOr<std::unique_ptr<EmbeddingWeights>> MakeEmbedding(
      const TensorInfo& matrix) override {
    auto made = std::make_unique<CpuEmbedding>();
    made->matrix = matrix;
    return made;
  }

  absl::StatusOr<std::unique_ptr<VectorWeights>> MakeVector(
      absl::Span<const float> values) override {
    auto made = std::make_unique<CpuVector>();
    made->values.assign(values.begin(), values.end());
    return made;
  }

  absl::StatusOr<FloatMemory> Allocate(uint64_t elements) override {
    absl::StatusOr<HostMemory> memory = HostMemory::Allocate(elements * sizeof(float));
    if (!memory.ok()) return memory.status();
    auto* data = reinterpret_cast<float*>(memory->data());
    const auto owner = std::make_shared<HostMemory>(*std::move(memory));  // Owned by the pointer
                                                                          // only.
    return FloatMemory(data, [owner](float*) {});
  }

  void BeginStep(const ModelInput& input, const ModelConfig& config) override {
    input_ = &input;
    status_ = absl::OkStatus();
    if (rotaries_.empty()) {
      for (const RotaryConfig& rotary : config.rotaries) {
        rotaries_.emplace_back(rotary, config.head_dim);
      }
    }
    for (RotaryTable& rotary : rotaries_) {
      rotary.SetPositions(input.positions, input.rotary_ranges);
    }
    plans_.clear();
  }

  void Embed(const EmbeddingWeights& weights, float scale, const RowsView& output) override {
    const TensorInfo& matrix = static_cast<const CpuEmbedding&>(weights).matrix;
    InPieces(output, 1, [&](uint64_t begin, uint64_t end) {
      for (uint64_t n = begin; n < end; ++n) {
        float* row = output.data + n * output.stride;
        ReadRows(matrix, input_->tokens[n], 1, ElementType::kFloat32,
                 reinterpret_cast<std::byte*>(row));
        if (scale != 1.0f) loops_.scale(scale, output.cols, row);
      }
    });
  }

  void Multiply(const LinearWeights& weights, const RowsView& input,
                const RowsView& output) override {
    if (!status_.ok()) return;
    Note("product", matmul_.Multiply(static_cast<const SlicedMatrix&>(weights), input, output));
  }

  void MultiplyEach(absl::Span<const ProductOfRows> products) override {
    if (!status_.ok()) return;
    calls_.clear();
    for (const ProductOfRows& p : products) {
      calls_.push_back({static_cast<const SlicedMatrix*>(p.weights), p.input, p.output});
    }
    Note("products", matmul_.MultiplyEach(calls_));
  }

  void RmsNorm(const VectorWeights& weights, float eps, const RowsView& input,
               const RowsView& output) override {
    const std::vector<float>& values = ValuesOf(weights);
    PAGODA_CHECK(values.size() == input.cols, "a norm has one weight per column");
    InPieces(output, 2, [&](uint64_t begin, uint64_t end) {
      for (uint64_t n = begin; n < end; ++n) {
        loops_.rms_norm(input.data + n * input.stride, values.data(), input.cols, eps,
                        output.data + n * output.stride);
      }
    });
  }

  void LayerNorm(const VectorWeights& weights, const VectorWeights& bias, float eps,
                 const RowsView& input, const RowsView& output) override {
    const std::vector<float>& values = ValuesOf(weights);
    PAGODA_CHECK(values.size() == input.cols, "a norm has one weight per column");
    InPieces(output, 3, [&](uint64_t begin, uint64_t end) {
      for (uint64_t n = begin; n < end; ++n) {
        loops_.layer_norm(input.data + n * input.stride, values.data(), ValuesOf(bias).data(),
                          input.cols, eps, output.data + n * output.stride);
      }
    });
  }

  void Rotate(const RotationShape& shape, const VectorWeights* norm, float eps,
              const RowsView& heads) override {
    const RotaryTable& table = rotaries_[shape.rotary];
    const auto rotate =
        table.pairs() == RotaryConfig::Pairs::kHalves ? loops_.rotate : loops_.rotate_neighbours;
    InPieces(heads, 2, [&](uint64_t begin, uint64_t end) {
      for (uint64_t n = begin; n < end; ++n) {
        float* row = heads.data + n * heads.stride;
        for (float* head = row; head < row + heads.cols; head += shape.head_dim) {
          if (norm != nullptr) {
            loops_.rms_norm(head, ValuesOf(*norm).data(), shape.head_dim, eps, head);
          }
          rotate(head + shape.first_element, table.cosines(n), table.sines(n), table.half_dim());
        }
      }
    });
  }

  void WriteCache(uint32_t window_index, const RowsView& keys, const RowsView& values,
                  const kernels::KvLayer& kv) override {
    if (!status_.ok()) return;
    const kernels::CacheWriteParams params = {
        .rows = {.keys = keys.data,
                 .values = values.data,
                 .key_token_stride = keys.stride,
                 .value_token_stride = values.stride},
        .token_slots = input_->windows[window_index].token_slots,
        .kv = kv};
    if (kv.scales.per_slot()) Note("scales", kernels::cpu::FitScales(params, execution_));
    Note("cache write", kernels::cpu::WriteCache(params, execution_));
  }

  void Attend(const AttentionShape& shape, const RowsView& queries, const kernels::KvLayer& kv,
              const RowsView& output) override {
    if (!status_.ok()) return;
    const ModelInput::Window& window = input_->windows[shape.window_index];
    const Plan& plan = PlanFor(shape.window_index, kv.num_kv_heads);
    Note("paged attention",
         kernels::cpu::PagedAttention({.query = queries.data,
                                       .output = output.data,
                                       .query_token_stride = queries.stride,
                                       .output_token_stride = output.stride,
                                       .num_heads = shape.num_heads,
                                       .scale = shape.scale,
                                       .soft_cap = shape.soft_cap,
                                       .alibi_slopes = DataOf(shape.alibi_slopes),
                                       .sink_logits = DataOf(shape.sinks),
                                       .mask = plan.mask,
                                       .query_starts = input_->query_starts,
                                       .context_lengths = input_->context_lengths,
                                       .block_tables = window.block_tables,
                                       .block_table_stride = window.block_table_stride,
                                       .kv = kv},
                                      &plan.plan, execution_));
  }

  void Gate(const GateShape& shape, const RowsView& gate_up, const RowsView& output) override {
    InPieces(output, 4, [&](uint64_t begin, uint64_t end) {
      for (uint64_t n = begin; n < end; ++n) {
        const float* gate = gate_up.data + n * gate_up.stride;
        const float* up = gate + output.cols;
        float* result = output.data + n * output.stride;
        switch (shape.activation) {
          case Activation::kSilu:
            loops_.gate_silu(gate, up, output.cols, result);
            break;
          case Activation::kGeluTanh:
            loops_.gate_gelu_tanh(gate, up, output.cols, result);
            break;
          case Activation::kClampedSilu:
            loops_.gate_clamped_silu(gate, up, output.cols, shape.alpha, shape.limit, result);
            break;
        }
      }
    });
  }

  void Activate(Activation activation, const RowsView& rows) override {
    PAGODA_CHECK(activation == Activation::kGeluTanh, "a plain MLP has gelu");
    InPieces(rows, 4, [&](uint64_t begin, uint64_t end) {
      for (uint64_t n = begin; n < end; ++n) {
        loops_.gelu_tanh(rows.cols, rows.data + n * rows.stride);
      }
    });
  }

  void Add(const RowsView& addend, const RowsView& sum) override {
    InPieces(sum, 1, [&](uint64_t begin, uint64_t end) {
      for (uint64_t n = begin; n < end; ++n) {
        loops_.add(addend.data + n * addend.stride, sum.cols, sum.data + n * sum.stride);
      }
    });
  }

  void AddRows(absl::Span<const uint32_t> rows, absl::Span<const float> factors,
               const RowsView& addend, const RowsView& sum) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      loops_.add_scaled(factors[i], addend.data + i * addend.stride, sum.cols,
                        sum.data + rows[i] * sum.stride);
    }
  }

  void Clear(const RowsView& output) override {
    for (uint64_t n = 0; n < output.rows; ++n) {
      std::memset(output.data + n * output.stride, 0, output.cols * sizeof(float));
    }
  }

  void CopyHeads(uint32_t num_heads, uint32_t count, const HeadsView& input,
                 const HeadsView& output) override {
    for (uint64_t n = 0; n < output.rows.rows; ++n) {
      const float* from = input.rows.data + n * input.rows.stride;
      float* to = output.rows.data + n * output.rows.stride;
      for (uint32_t h = 0; h < num_heads; ++h) {
        std::memcpy(to + uint64_t{h} * output.head_dim, from + uint64_t{h} * input.head_dim,
                    count * sizeof(float));
      }
    }
  }

  void TakeRows(absl::Span<const uint32_t> rows, const RowsView& input,
                const RowsView& output) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(output.data + i * output.stride, input.data + rows[i] * input.stride,
                  output.cols * sizeof(float));
    }
  }

  absl::Span<const float> ToHost(const RowsView& rows) override {
    if (!status_.ok()) return {};
    PAGODA_CHECK(rows.stride == rows.cols, "the rows are contiguous");
    return absl::MakeConstSpan(rows.data, rows.rows * rows.cols);
  }

  absl::StatusOr<absl::Span<const float>> EndStep(float soft_cap, const RowsView& logits) override {
    if (!status_.ok()) return status_;
    if (soft_cap != 0.0f) {
      InPieces(logits, 4, [&](uint64_t begin, uint64_t end) {
        loops_.soft_cap(soft_cap, (end - begin) * logits.cols, logits.data + begin * logits.cols);
      });
    }
    return absl::MakeConstSpan(logits.data, logits.rows * logits.cols);
  }

 private:
  struct Plan {
    uint32_t window_index;
    kernels::AttentionMask mask;
    kernels::AttentionPlan plan;
  };

  // Keeps the first failure. A kernel's refusal is the engine's fault, not its caller's.
  void Note(const char* operation, const absl::Status& status) {
    if (status.ok() || !status_.ok()) return;
    status_ = absl::InternalError(absl::StrCat(operation, ": ", status.message()));
  }

  // Calls work(begin, end) for pieces of the rows. `weight`: the cost of an element, relative to a
  // copy of it.
  template <class Work>
  void InPieces(const RowsView& rows, uint64_t weight, const Work& work) {
    kernels::cpu::InPieces(execution_, rows.rows, rows.cols * sizeof(float) * weight, work);
  }

  // The plan shared by all layers of a window with this number of KV heads, made for the first of
  // them.
  const Plan& PlanFor(uint32_t window_index, uint32_t num_kv_heads) {
    for (const Plan& plan : plans_) {
      if (plan.window_index == window_index && plan.plan.num_kv_heads == num_kv_heads) return plan;
    }
    Plan& plan = plans_.emplace_back();
    plan.window_index = window_index;
    const WindowSize window = input_->windows[window_index].window;
    if (window != kFullAttention) plan.mask.window_tokens = window.value();
    plan.plan = kernels::cpu::PlanForCpu({.query_starts = input_->query_starts,
                                          .context_lengths = input_->context_lengths,
                                          .mask = plan.mask,
                                          .num_kv_heads = num_kv_heads},
                                         execution_);
    return plan;
  }

  const ComputeType compute_;
  kernels::cpu::ThreadPool threads_;
  const kernels::cpu::Execution execution_;  // With the instructions that attention chooses.
  const VectorLoops& loops_;
  MatMul matmul_;
  std::set<absl::string_view> factors_;  // The names of those of a decode step.
  std::vector<RotaryTable> rotaries_;

  // The state of the current step.
  const ModelInput* input_ = nullptr;
  absl::Status status_;
  std::vector<Plan> plans_;
  std::vector<ProductCall> calls_;  // The calls of MultiplyEach.
};

}  // namespace

uint32_t NumProcessors() {
  cpu_set_t set;
  if (sched_getaffinity(/*pid=*/0, sizeof(set), &set) != 0) return 1;
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options) {
  const Isa best = kernels::cpu::BestIsa();
  if (options.compute == ComputeType::kBFloat16 && best != Isa::kAvx512Bf16) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("compute bf16 needs AVX-512 BF16; this processor has ",
                                  std::string(kernels::cpu::IsaName(best))));
  }
  const uint32_t num_threads = options.num_threads == 0 ? NumProcessors() : options.num_threads;
  auto backend = std::make_unique<CpuBackend>(num_threads, options.compute);
  if (absl::Status status = backend->started(); !status.ok()) return status;
  return backend;
}

}  // namespace pagoda
