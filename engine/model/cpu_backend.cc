#include "engine/model/cpu_backend.h"

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
#include "engine/model/block_scales.h"
#include "engine/model/host_memory.h"
#include "engine/model/matmul.h"
#include "engine/model/rotary.h"
#include "engine/model/tensor_rows.h"
#include "engine/model/vector_loops.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/parallel.h"

namespace pagoda {
namespace {

using kernels::ElementType;
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

class CpuBackend : public Backend {
 public:
  CpuBackend(uint32_t num_threads, ComputeType compute)
      : compute_(compute),
        threads_(num_threads),
        execution_{.threads = &threads_},
        loops_(VectorLoopsFor(kernels::cpu::BestIsa())),
        matmul_({.threads = &threads_, .isa = kernels::cpu::BestIsa()}) {}

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
    for (RotaryTable& rotary : rotaries_) rotary.SetPositions(input.positions);
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

  void Rotate(uint32_t rotary, const VectorWeights* norm, float eps, uint32_t head_dim,
              const RowsView& heads) override {
    const RotaryTable& table = rotaries_[rotary];
    InPieces(heads, 2, [&](uint64_t begin, uint64_t end) {
      for (uint64_t n = begin; n < end; ++n) {
        float* row = heads.data + n * heads.stride;
        for (float* head = row; head < row + heads.cols; head += head_dim) {
          if (norm != nullptr) {
            loops_.rms_norm(head, ValuesOf(*norm).data(), head_dim, eps, head);
          }
          loops_.rotate(head, table.cosines(n), table.sines(n), table.half_dim());
        }
      }
    });
  }

  void WriteCache(uint32_t window_index, const RowsView& keys, const RowsView& values,
                  const kernels::KvLayer& kv) override {
    if (!status_.ok()) return;
    StartScales(input_->windows[window_index].token_slots, kv);
    Note("cache write",
         kernels::cpu::WriteCache({.rows = {.keys = keys.data,
                                            .values = values.data,
                                            .key_token_stride = keys.stride,
                                            .value_token_stride = values.stride},
                                   .token_slots = input_->windows[window_index].token_slots,
                                   .kv = kv},
                                  execution_));
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
                                       .mask = plan.mask,
                                       .query_starts = input_->query_starts,
                                       .context_lengths = input_->context_lengths,
                                       .block_tables = window.block_tables,
                                       .block_table_stride = window.block_table_stride,
                                       .kv = kv},
                                      &plan.plan, execution_));
  }

  void Gate(Activation activation, const RowsView& gate_up, const RowsView& output) override {
    const auto gate = activation == Activation::kSilu ? loops_.gate_silu : loops_.gate_gelu_tanh;
    InPieces(output, 4, [&](uint64_t begin, uint64_t end) {
      for (uint64_t n = begin; n < end; ++n) {
        const float* row = gate_up.data + n * gate_up.stride;
        gate(row, row + output.cols, output.cols, output.data + n * output.stride);
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

  void TakeRows(absl::Span<const uint32_t> rows, const RowsView& input,
                const RowsView& output) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(output.data + i * output.stride, input.data + rows[i] * input.stride,
                  output.cols * sizeof(float));
    }
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

  // Of the current step.
  const ModelInput* input_ = nullptr;
  absl::Status status_;
  std::vector<Plan> plans_;
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
  return std::make_unique<CpuBackend>(num_threads, options.compute);
}

}  // namespace pagoda
