#include "engine/model/backend/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <numbers>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "kernels/float8_scales.h"
#include "kernels/numeric.h"
#include "kernels/paged_attention.h"

namespace pagoda {
namespace {

struct ReferenceLinear final : LinearWeights {
  uint64_t inputs() const override { return columns; }
  uint64_t outputs() const override { return rows; }

  uint64_t rows = 0;
  uint64_t columns = 0;
  std::vector<float> values;  // [rows][columns]
  std::vector<float> bias;    // [rows], or none.
};
struct ReferenceEmbedding final : EmbeddingWeights {
  TensorInfo matrix;
};
struct ReferenceVector final : VectorWeights {
  std::vector<float> values;
};

const std::vector<float>& ValuesOf(const VectorWeights& weights) {
  return static_cast<const ReferenceVector&>(weights).values;
}

const float* DataOf(const VectorWeights* weights) {
  return weights == nullptr ? nullptr : ValuesOf(*weights).data();
}

float* RowOf(const RowsView& rows, uint64_t row) { return rows.data + row * rows.stride; }

// output = input / sqrt(mean(input^2) + eps) * weights. `output` can be `input`.
void Norm(const float* input, const std::vector<float>& weights, float eps, float* output) {
  double squares = 0;
  for (size_t i = 0; i < weights.size(); ++i) squares += double{input[i]} * input[i];
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(weights.size()) + eps);
  for (size_t i = 0; i < weights.size(); ++i) {
    output[i] = static_cast<float>(input[i] * scale * weights[i]);
  }
}

double Activated(Activation activation, double x) {
  if (activation == Activation::kSilu) return x / (1.0 + std::exp(-x));
  // GELU with the tanh (Hendrycks and Gimpel, 2016).
  const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}

double Gated(const GateShape& shape, double gate, double up) {
  if (shape.activation != Activation::kClampedSilu) {
    return Activated(shape.activation, gate) * up;
  }
  const double limit = shape.limit;
  gate = std::min(gate, limit);
  return (std::clamp(up, -limit, limit) + 1.0) * gate / (1.0 + std::exp(-shape.alpha * gate));
}

double Cap(double value, float soft_cap) {
  return soft_cap == 0.0f ? value : soft_cap * std::tanh(value / soft_cap);
}

class ReferenceBackend final : public Backend {
 public:
  std::string description() const override { return "reference, plain loops in fp64"; }

  absl::StatusOr<std::unique_ptr<LinearWeights>> MakeLinear(absl::Span<const TensorInfo> matrices,
                                                            absl::Span<const float> bias) override {
    auto made = std::make_unique<ReferenceLinear>();
    for (const TensorInfo& matrix : matrices) {
      made->rows += matrix.shape[0];
      made->columns = matrix.shape[1];
      const std::vector<float> values = ToFloats(matrix);
      made->values.insert(made->values.end(), values.begin(), values.end());
    }
    made->bias.assign(bias.begin(), bias.end());
    return made;
  }

  absl::StatusOr<std::unique_ptr<EmbeddingWeights>> MakeEmbedding(
      const TensorInfo& matrix) override {
    auto made = std::make_unique<ReferenceEmbedding>();
    made->matrix = matrix;
    return made;
  }

  absl::StatusOr<std::unique_ptr<VectorWeights>> MakeVector(
      absl::Span<const float> values) override {
    auto made = std::make_unique<ReferenceVector>();
    made->values.assign(values.begin(), values.end());
    return made;
  }

  absl::StatusOr<FloatMemory> Allocate(uint64_t elements) override {
    constexpr std::align_val_t kAlignment{64};
    void* const memory = ::operator new(elements * sizeof(float), kAlignment, std::nothrow);
    if (memory == nullptr && elements != 0) {
      return MakeError(Reason::kOutOfMemory,
                       absl::StrCat("no memory for ", elements, " numbers of activations"));
    }
    return FloatMemory(static_cast<float*>(memory),
                       [](float* data) { ::operator delete(data, kAlignment); });
  }

  void BeginStep(const ModelInput& input, const ModelConfig& config) override {
    input_ = &input;
    status_ = absl::OkStatus();
    frequencies_.clear();
    long_frequencies_.clear();
    rotaries_ = config.rotaries;
    for (const RotaryConfig& rotary : config.rotaries) {
      frequencies_.push_back(RotaryFrequencies(rotary, config.head_dim));
      long_frequencies_.push_back(RotaryFrequencies(rotary, config.head_dim, RotaryRange::kLong));
    }
  }

  void Embed(const EmbeddingWeights& weights, float scale, const RowsView& output) override {
    const TensorInfo& matrix = static_cast<const ReferenceEmbedding&>(weights).matrix;
    const uint64_t row_bytes = matrix.bytes.size() / matrix.shape[0];
    for (uint64_t n = 0; n < output.rows; ++n) {
      const std::vector<float> row =
          ToFloats({.type = matrix.type,
                    .shape = {1, matrix.shape[1]},
                    .bytes = matrix.bytes.subspan(input_->tokens[n] * row_bytes, row_bytes)});
      for (uint64_t c = 0; c < output.cols; ++c) RowOf(output, n)[c] = scale * row[c];
    }
  }

  void Multiply(const LinearWeights& weights, const RowsView& input,
                const RowsView& output) override {
    const auto& matrix = static_cast<const ReferenceLinear&>(weights);
    PAGODA_CHECK(input.cols == matrix.columns && output.cols == matrix.rows,
                 "a product's rows have the matrix's sizes");
    for (uint64_t n = 0; n < input.rows; ++n) {
      for (uint64_t o = 0; o < matrix.rows; ++o) {
        const float* const factors = matrix.values.data() + o * matrix.columns;
        double sum = matrix.bias.empty() ? 0.0 : matrix.bias[o];
        for (uint64_t i = 0; i < matrix.columns; ++i) {
          sum += double{factors[i]} * RowOf(input, n)[i];
        }
        RowOf(output, n)[o] = static_cast<float>(sum);
      }
    }
  }

  void RmsNorm(const VectorWeights& weights, float eps, const RowsView& input,
               const RowsView& output) override {
    const std::vector<float>& values = ValuesOf(weights);
    PAGODA_CHECK(values.size() == input.cols, "a norm has one weight per column");
    for (uint64_t n = 0; n < input.rows; ++n) {
      Norm(RowOf(input, n), values, eps, RowOf(output, n));
    }
  }

  void LayerNorm(const VectorWeights& weights, const VectorWeights& bias, float eps,
                 const RowsView& input, const RowsView& output) override {
    const std::vector<float>& factors = ValuesOf(weights);
    PAGODA_CHECK(factors.size() == input.cols, "a norm has one weight per column");
    const auto count = static_cast<double>(input.cols);
    for (uint64_t n = 0; n < input.rows; ++n) {
      const float* const row = RowOf(input, n);
      double mean = 0;
      for (uint64_t c = 0; c < input.cols; ++c) mean += row[c] / count;
      double variance = 0;
      for (uint64_t c = 0; c < input.cols; ++c) {
        variance += (row[c] - mean) * (row[c] - mean) / count;
      }
      const double scale = 1.0 / std::sqrt(variance + eps);
      for (uint64_t c = 0; c < input.cols; ++c) {
        RowOf(output, n)[c] =
            static_cast<float>((row[c] - mean) * scale * factors[c] + ValuesOf(bias)[c]);
      }
    }
  }

  void Rotate(const RotationShape& shape, const VectorWeights* norm, float eps,
              const RowsView& heads) override {
    const std::vector<RotaryRange>& ranges = input_->rotary_ranges;
    for (uint64_t n = 0; n < heads.rows; ++n) {
      const bool is_long = !ranges.empty() && ranges[n] == RotaryRange::kLong;
      const std::vector<float>& frequencies =
          is_long ? long_frequencies_[shape.rotary] : frequencies_[shape.rotary];
      for (uint64_t begin = 0; begin < heads.cols; begin += shape.head_dim) {
        float* const head = RowOf(heads, n) + begin;
        if (norm != nullptr) Norm(head, ValuesOf(*norm), eps, head);
        Turn(rotaries_[shape.rotary], frequencies, input_->positions[n],
             head + shape.first_element);
      }
    }
  }

  void WriteCache(uint32_t window_index, const RowsView& keys, const RowsView& values,
                  const kernels::KvLayer& kv) override {
    const std::vector<int64_t>& token_slots = input_->windows[window_index].token_slots;
    for (uint64_t n = 0; n < keys.rows; ++n) {
      Store(kv, kv.keys, kv.scales.keys, token_slots[n], RowOf(keys, n), kv.head_dim);
      if (kv.values == kv.keys) continue;
      Store(kv, kv.values, kv.scales.values, token_slots[n], RowOf(values, n), kv.value_elements());
    }
  }

  void Attend(const AttentionShape& shape, const RowsView& queries, const kernels::KvLayer& kv,
              const RowsView& output) override {
    const ModelInput::Window& window = input_->windows[shape.window_index];
    kernels::AttentionMask mask;
    if (window.window != kFullAttention) mask.window_tokens = window.window.value();
    Note("attention",
         kernels::reference::PagedAttention({.query = queries.data,
                                             .output = output.data,
                                             .query_token_stride = queries.stride,
                                             .output_token_stride = output.stride,
                                             .num_heads = shape.num_heads,
                                             .scale = shape.scale,
                                             .soft_cap = shape.soft_cap,
                                             .alibi_slopes = DataOf(shape.alibi_slopes),
                                             .sink_logits = DataOf(shape.sinks),
                                             .mask = mask,
                                             .query_starts = input_->query_starts,
                                             .context_lengths = input_->context_lengths,
                                             .block_tables = window.block_tables,
                                             .block_table_stride = window.block_table_stride,
                                             .kv = kv}));
  }

  void Gate(const GateShape& shape, const RowsView& gate_up, const RowsView& output) override {
    for (uint64_t n = 0; n < output.rows; ++n) {
      const float* const gate = RowOf(gate_up, n);
      const float* const up = gate + output.cols;
      for (uint64_t c = 0; c < output.cols; ++c) {
        RowOf(output, n)[c] = static_cast<float>(Gated(shape, gate[c], up[c]));
      }
    }
  }

  void Activate(Activation activation, const RowsView& rows) override {
    for (uint64_t n = 0; n < rows.rows; ++n) {
      for (uint64_t c = 0; c < rows.cols; ++c) {
        RowOf(rows, n)[c] = static_cast<float>(Activated(activation, RowOf(rows, n)[c]));
      }
    }
  }

  void AddRows(absl::Span<const uint32_t> rows, absl::Span<const float> factors,
               const RowsView& addend, const RowsView& sum) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      for (uint64_t c = 0; c < sum.cols; ++c) {
        RowOf(sum, rows[i])[c] += factors[i] * RowOf(addend, i)[c];
      }
    }
  }

  void Clear(const RowsView& output) override {
    for (uint64_t n = 0; n < output.rows; ++n) std::fill_n(RowOf(output, n), output.cols, 0.0f);
  }

  void CopyHeads(uint32_t num_heads, uint32_t count, const HeadsView& input,
                 const HeadsView& output) override {
    for (uint64_t n = 0; n < output.rows.rows; ++n) {
      for (uint64_t h = 0; h < num_heads; ++h) {
        std::copy_n(RowOf(input.rows, n) + h * input.head_dim, count,
                    RowOf(output.rows, n) + h * output.head_dim);
      }
    }
  }

  absl::Span<const float> ToHost(const RowsView& rows) override {
    if (!status_.ok()) return {};
    PAGODA_CHECK(rows.stride == rows.cols, "the rows are contiguous");
    return absl::MakeConstSpan(rows.data, rows.rows * rows.cols);
  }

  void Add(const RowsView& addend, const RowsView& sum) override {
    for (uint64_t n = 0; n < sum.rows; ++n) {
      for (uint64_t c = 0; c < sum.cols; ++c) RowOf(sum, n)[c] += RowOf(addend, n)[c];
    }
  }

  void TakeRows(absl::Span<const uint32_t> rows, const RowsView& input,
                const RowsView& output) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(RowOf(input, rows[i]), output.cols, RowOf(output, i));
    }
  }

  absl::StatusOr<absl::Span<const float>> EndStep(float soft_cap, const RowsView& logits) override {
    if (!status_.ok()) return status_;
    for (uint64_t i = 0; i < logits.rows * logits.cols; ++i) {
      logits.data[i] = static_cast<float>(Cap(logits.data[i], soft_cap));
    }
    return absl::MakeConstSpan(logits.data, logits.rows * logits.cols);
  }

 private:
  void Note(const char* operation, const absl::Status& status) {
    if (status.ok() || !status_.ok()) return;
    status_ = absl::InternalError(absl::StrCat(operation, ": ", status.message()));
  }

  // The angle is fp32, as in transformers: its last bits count at far positions.
  static void Turn(const RotaryConfig& rotary, const std::vector<float>& frequencies,
                   int32_t position, float* head) {
    const bool halves = rotary.pairs == RotaryConfig::Pairs::kHalves;
    const size_t half = frequencies.size();
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(position) * frequencies[i];
      const double cosine = std::cos(angle) * rotary.attention_factor;
      const double sine = std::sin(angle) * rotary.attention_factor;
      float& first = halves ? head[i] : head[2 * i];
      float& second = halves ? head[i + half] : head[2 * i + 1];
      const double x = first;
      const double y = second;
      first = static_cast<float>(x * cosine - y * sine);
      second = static_cast<float>(y * cosine + x * sine);
    }
  }

  // Writes all heads of one token's K or V, divided by their scales.
  static void Store(const kernels::KvLayer& kv, std::byte* part, const float* scales,
                    int64_t token_slot, const float* from, uint32_t count) {
    if (token_slot < 0) return;
    const auto slot = static_cast<uint32_t>(token_slot / kv.tokens_per_block);
    const auto token = static_cast<uint32_t>(token_slot % kv.tokens_per_block);
    for (uint32_t head = 0; head < kv.num_kv_heads; ++head, from += count) {
      float scale = 1.0f;
      if (scales != nullptr) {
        if (kv.scales.per_slot()) FitScale(kv, part, scales, slot, head, token, from, count);
        scale = *kv.scales.At(scales, slot, head);
      }
      kernels::VisitElementType(kv.type, [&]<class T>() {
        auto* const to = reinterpret_cast<T*>(part + kv.offset_bytes(slot, head, token));
        for (uint32_t i = 0; i < count; ++i) to[i] = kernels::FromFloat<T>(from[i] / scale);
      });
    }
  }

  // Sets or raises the scale of a head of a block before a token is written into it: the rules of
  // kernels/float8_scales.h, token by token. REQUIRES: scales per head.
  static void FitScale(const kernels::KvLayer& kv, std::byte* part, const float* scales,
                       uint32_t slot, uint32_t head, uint32_t token, const float* from,
                       uint32_t count) {
    double largest = 0;
    for (uint32_t i = 0; i < count; ++i) {
      if (std::isfinite(from[i])) largest = std::max(largest, std::abs(double{from[i]}));
    }
    const double limit = kv.type == kernels::ElementType::kFloat8E4M3 ? 448.0 : 57344.0;
    float needed = kernels::kSmallestFittedScale;
    while (largest > limit * needed) needed *= 2;
    float& scale = *const_cast<float*>(kv.scales.At(scales, slot, head));
    if (token == 0) {
      scale = kernels::kHeadroom * needed;
    } else if (!kernels::IsScale(scale)) {
      scale = needed;
    } else if (needed > scale) {
      for (uint32_t earlier = 0; earlier < token; ++earlier) {
        kernels::VisitElementType(kv.type, [&]<class T>() {
          auto* const row = reinterpret_cast<T*>(part + kv.offset_bytes(slot, head, earlier));
          for (uint32_t i = 0; i < count; ++i) {
            row[i] = kernels::FromFloat<T>(kernels::ToFloat(row[i]) / (needed / scale));
          }
        });
      }
      scale = needed;
    }
  }

  // The state of the current step.
  const ModelInput* input_ = nullptr;
  absl::Status status_;
  std::vector<RotaryConfig> rotaries_;
  std::vector<std::vector<float>> frequencies_;       // By rotary embedding.
  std::vector<std::vector<float>> long_frequencies_;  // The same for RotaryRange::kLong.
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace pagoda
