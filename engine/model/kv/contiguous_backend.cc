#include "engine/model/kv/contiguous_backend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "engine/model/backend/forwarding_backend.h"
#include "kernels/execution/thread_pool.h"
#include "kernels/numeric.h"

namespace pagoda {
namespace {

// Sums of products are kept in so many parts, which compilers put into vector registers.
constexpr uint32_t kParts = 16;

float Dot(const float* a, const float* b, uint32_t count) {
  float parts[kParts] = {};
  uint32_t i = 0;
  for (; i + kParts <= count; i += kParts) {
    for (uint32_t p = 0; p < kParts; ++p) parts[p] += a[i + p] * b[i + p];
  }
  double sum = 0;
  for (; i < count; ++i) sum += double{a[i]} * b[i];
  for (const float part : parts) sum += part;
  return static_cast<float>(sum);
}

// The row of `kv` at `part` as floats: in place if it has floats, otherwise in `space`.
const float* Row(const kernels::KvLayer& kv, const std::byte* part, uint64_t offset, uint32_t count,
                 float* space) {
  const std::byte* const row = part + offset;
  if (kv.type == kernels::ElementType::kFloat32) return reinterpret_cast<const float*>(row);
  kernels::VisitElementType(kv.type, [&]<class T>() {
    const auto* elements = reinterpret_cast<const T*>(row);
    for (uint32_t i = 0; i < count; ++i) space[i] = kernels::ToFloat(elements[i]);
  });
  return space;
}

class ContiguousBackend final : public ForwardingBackend {
 public:
  ContiguousBackend(std::unique_ptr<Backend> inner, uint32_t num_threads)
      : ForwardingBackend(std::move(inner)), threads_(num_threads), space_(num_threads) {}

  absl::Status started() const { return threads_.started(); }

  std::string description() const override {
    return absl::StrCat(inner().description(), ", contiguous kv");
  }

  // Keeps a copy: sinks and slopes are read here, and only the inner backend reads its vectors.
  absl::StatusOr<std::unique_ptr<VectorWeights>> MakeVector(
      absl::Span<const float> values) override {
    absl::StatusOr<std::unique_ptr<VectorWeights>> made = inner().MakeVector(values);
    if (made.ok()) vectors_[made->get()].assign(values.begin(), values.end());
    return made;
  }

  void BeginStep(const ModelInput& input, const ModelConfig& config) override {
    input_ = &input;
    status_ = absl::OkStatus();
    inner().BeginStep(input, config);
  }

  // With the cache write below.
  void PlaceHeads(const LayerHeads& heads, const kernels::KvLayer& kv,
                  const RowsView& queries) override {
    Backend::PlaceHeads(heads, kv, queries);
  }

  void WriteCache(uint32_t window_index, const RowsView& keys, const RowsView& values,
                  const kernels::KvLayer& kv) override {
    const std::vector<int64_t>& rows = input_->windows[window_index].token_slots;
    if (!status_.ok() || !CheckRows(rows, kv)) return;
    for (size_t n = 0; n < rows.size(); ++n) {
      Write(kv, kv.keys, rows[n], keys.data + n * keys.stride, kv.head_dim);
      if (kv.values == kv.keys) continue;
      Write(kv, kv.values, rows[n], values.data + n * values.stride, kv.value_elements());
    }
  }

  void Attend(const AttentionShape& shape, const RowsView& queries, const kernels::KvLayer& kv,
              const RowsView& output) override {
    if (!status_.ok()) return;
    const std::vector<int64_t>& rows = input_->windows[shape.window_index].token_slots;
    const uint64_t items = rows.size() * kv.num_kv_heads;
    threads_.Run([&](uint32_t worker) {
      // Interleaved, because later tokens see more keys.
      for (uint64_t item = worker; item < items; item += threads_.num_threads()) {
        AttendToken(shape, queries, kv, output, rows, item / kv.num_kv_heads,
                    static_cast<uint32_t>(item % kv.num_kv_heads), space_[worker]);
      }
    });
  }

  absl::StatusOr<absl::Span<const float>> EndStep(float soft_cap, const RowsView& logits) override {
    const absl::StatusOr<absl::Span<const float>> result = inner().EndStep(soft_cap, logits);
    return status_.ok() ? result : status_;
  }

 private:
  struct Space {
    std::vector<float> row;     // [head_dim]
    std::vector<float> scores;  // [heads of a KV head][keys]
    std::vector<float> sums;    // [heads of a KV head][value_dim]
  };

  // Whether the token at position p of a sequence has row p of the sequence's tensor.
  bool CheckRows(const std::vector<int64_t>& rows, const kernels::KvLayer& kv) {
    for (size_t n = 0; n < rows.size(); ++n) {
      const int64_t capacity = kv.tokens_per_block;
      if (rows[n] >= 0 && rows[n] < capacity * kv.num_slots &&
          rows[n] % capacity == input_->positions[n]) {
        continue;
      }
      status_ = absl::InternalError(absl::StrCat("contiguous kv: the token at position ",
                                                 input_->positions[n], " has row ", rows[n],
                                                 ", of tensors of ", Counted(capacity, "token")));
      return false;
    }
    return true;
  }

  static void Write(const kernels::KvLayer& kv, std::byte* part, int64_t row, const float* from,
                    uint32_t count) {
    for (uint32_t head = 0; head < kv.num_kv_heads; ++head, from += count) {
      std::byte* const to = part + OffsetOf(kv, row, head);
      kernels::VisitElementType(kv.type, [&]<class T>() {
        auto* elements = reinterpret_cast<T*>(to);
        for (uint32_t i = 0; i < count; ++i) elements[i] = kernels::FromFloat<T>(from[i]);
      });
    }
  }

  static uint64_t OffsetOf(const kernels::KvLayer& kv, int64_t row, uint32_t head) {
    return static_cast<uint64_t>(row / kv.tokens_per_block) * kv.slot_stride_bytes +
           static_cast<uint64_t>(row % kv.tokens_per_block) * kv.token_stride_bytes +
           head * kv.head_stride_bytes;
  }

  // The query heads of token n that read `kv_head`.
  void AttendToken(const AttentionShape& shape, const RowsView& queries, const kernels::KvLayer& kv,
                   const RowsView& output, const std::vector<int64_t>& rows, size_t n,
                   uint32_t kv_head, Space& space) const {
    const uint32_t group = shape.num_heads / kv.num_kv_heads;
    const uint32_t value_dim = kv.value_elements();
    const int64_t position = input_->positions[n];
    const WindowSize window = input_->windows[shape.window_index].window;
    const int64_t first =
        window == kFullAttention ? 0 : std::max<int64_t>(0, position + 1 - window.value());
    const auto keys = static_cast<uint64_t>(position + 1 - first);
    const uint64_t tensor = OffsetOf(kv, rows[n] - position, kv_head);
    const float* const query =
        queries.data + n * queries.stride + uint64_t{kv_head} * group * kv.head_dim;
    space.row.resize(kv.head_dim);
    space.scores.resize(group * keys);
    space.sums.assign(uint64_t{group} * value_dim, 0.0f);

    for (uint64_t k = 0; k < keys; ++k) {
      const uint64_t offset = tensor + (first + k) * kv.token_stride_bytes;
      const float* const key = Row(kv, kv.keys, offset, kv.head_dim, space.row.data());
      for (uint32_t h = 0; h < group; ++h) {
        float score = shape.scale * Dot(query + h * kv.head_dim, key, kv.head_dim);
        if (shape.soft_cap > 0) score = shape.soft_cap * std::tanh(score / shape.soft_cap);
        if (shape.alibi_slopes != nullptr) {
          const auto distance = static_cast<float>(first + static_cast<int64_t>(k) - position);
          score += vectors_.at(shape.alibi_slopes)[kv_head * group + h] * distance;
        }
        space.scores[h * keys + k] = score;
      }
    }
    for (uint32_t h = 0; h < group; ++h) {
      const float sink = shape.sinks == nullptr ? -std::numeric_limits<float>::infinity()
                                                : vectors_.at(shape.sinks)[kv_head * group + h];
      ToWeights(&space.scores[h * keys], keys, sink);
    }
    for (uint64_t k = 0; k < keys; ++k) {
      const uint64_t offset = tensor + (first + k) * kv.token_stride_bytes;
      const float* const value = Row(kv, kv.values, offset, value_dim, space.row.data());
      for (uint32_t h = 0; h < group; ++h) {
        const float weight = space.scores[h * keys + k];
        float* const sum = &space.sums[uint64_t{h} * value_dim];
        for (uint32_t i = 0; i < value_dim; ++i) sum[i] += weight * value[i];
      }
    }
    std::copy(space.sums.begin(), space.sums.end(),
              output.data + n * output.stride + uint64_t{kv_head} * group * value_dim);
  }

  // The softmax of the scores and the sink, in place. The sink has a weight but no value.
  static void ToWeights(float* scores, uint64_t count, float sink) {
    const float largest = std::max(sink, *std::max_element(scores, scores + count));
    double sum = std::exp(sink - largest);
    for (uint64_t k = 0; k < count; ++k) {
      scores[k] = std::exp(scores[k] - largest);
      sum += scores[k];
    }
    const auto factor = static_cast<float>(1.0 / sum);
    for (uint64_t k = 0; k < count; ++k) scores[k] *= factor;
  }

  kernels::cpu::ThreadPool threads_;
  std::vector<Space> space_;  // By worker.
  std::unordered_map<const VectorWeights*, std::vector<float>> vectors_;

  // The state of the current step.
  const ModelInput* input_ = nullptr;
  absl::Status status_;
};

}  // namespace

std::vector<kernels::KvLayer> ContiguousLayers(const KvPools& pools, uint32_t slots_per_sequence) {
  std::vector<kernels::KvLayer> layers(pools.layers().begin(), pools.layers().end());
  for (const std::unique_ptr<MappedPool>& pool : pools.pools()) {
    const PoolLayout& layout = pool->mapping().layout;
    if (layout.content != PoolContent::kElements) continue;
    auto* const slots = reinterpret_cast<std::byte*>(pool->memory().address);
    for (size_t i = 0; i < layout.layers.size(); ++i) {
      kernels::KvLayer& layer = layers[layout.layers[i]];
      const uint64_t element = kernels::ElementBytes(layer.type);
      layer.keys = slots + i * layout.layer_stride_bytes() * slots_per_sequence;
      layer.values = layout.kv_factor == 1
                         ? layer.keys
                         : layer.keys + layout.kv_stride_bytes() * slots_per_sequence;
      layer.num_slots /= slots_per_sequence;
      layer.tokens_per_block *= slots_per_sequence;
      layer.slot_stride_bytes = layout.slot_stride_bytes() * slots_per_sequence;
      layer.head_stride_bytes = layer.head_dim * element;
      layer.token_stride_bytes = layer.head_stride_bytes * layer.num_kv_heads;
      layer.scales = {};
    }
  }
  return layers;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeContiguousBackend(std::unique_ptr<Backend> inner,
                                                               uint32_t num_threads) {
  auto backend = std::make_unique<ContiguousBackend>(std::move(inner), num_threads);
  if (absl::Status status = backend->started(); !status.ok()) return status;
  return backend;
}

}  // namespace pagoda
