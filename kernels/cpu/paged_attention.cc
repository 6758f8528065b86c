// Paged attention in one pass over the blocks, with the online softmax of Milakov and Gimelshein
// (2018), as in FlashAttention: a query row keeps the largest score so far, the sum of its weights
// and the weighted sum of values, and rescales them when a larger score comes.
#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention_checks.h"
#include "kernels/numeric.h"

namespace pagoda::kernels::cpu {
namespace {

// Query tokens that share one pass over the blocks: a block is converted to fp32 once for all of
// them.
constexpr uint64_t kQueryTokensPerTile = 16;

// Eight sums side by side are two SSE registers or one of AVX; the order of additions is fixed.
float Dot(const float* __restrict a, const float* __restrict b, uint32_t size) {
  constexpr uint32_t kLanes = 8;
  float lanes[kLanes] = {};
  uint32_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (uint32_t lane = 0; i + lane < size; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// The first `count` tokens of a block of one head, times `scale`, as fp32 [count][elements].
void LoadTokens(const KvLayer& kv, const std::byte* block, uint32_t count, uint32_t elements,
                float scale, float* __restrict out) {
  VisitElementType(kv.type, [&]<class T>() {
    for (uint32_t token = 0; token < count; ++token) {
      const T* source = reinterpret_cast<const T*>(block + token * kv.token_stride_bytes);
      for (uint32_t i = 0; i < elements; ++i) *out++ = scale * ToFloat(source[i]);
    }
  });
}

float ScaleOf(const float* scales, bool per_head, uint32_t head) {
  return scales == nullptr ? 1.0f : scales[per_head ? head : 0];
}

// The softmax of one query head of one query token, while its keys come by.
struct Row {
  uint32_t head;
  uint64_t token;          // Of the batch.
  int64_t position;        // In its context.
  float* query;            // [head_dim]
  float* weighted_values;  // [value_dim]
  float largest_score = -std::numeric_limits<float>::infinity();
  float weight_sum = 0;
};

class Attention {
 public:
  explicit Attention(const PagedAttentionParams& params)
      : params_(params),
        kv_(params.kv),
        group_(params.num_heads / params.kv.num_kv_heads),
        value_dim_(kv_.value_elements()),
        keys_(uint64_t{kv_.tokens_per_block} * kv_.head_dim),
        values_(uint64_t{kv_.tokens_per_block} * value_dim_),
        scores_(kv_.tokens_per_block),
        queries_(kQueryTokensPerTile * group_ * kv_.head_dim),
        weighted_values_(kQueryTokensPerTile * group_ * value_dim_) {}

  void Run() {
    for (size_t s = 0; s < params_.context_lengths.size(); ++s) {
      const uint64_t end = params_.query_starts[s + 1];
      for (uint64_t begin = params_.query_starts[s]; begin < end; begin += kQueryTokensPerTile) {
        const uint64_t tile_end = std::min(begin + kQueryTokensPerTile, end);
        for (uint32_t head = 0; head < kv_.num_kv_heads; ++head) {
          AttendTile(s, begin, tile_end, head);
        }
      }
    }
  }

 private:
  // The query tokens begin to end - 1 of sequence s, in all query heads of one KV head.
  void AttendTile(size_t s, uint64_t begin, uint64_t end, uint32_t kv_head) {
    StartRows(s, begin, end, kv_head);
    const int32_t* table = params_.block_tables.data() + s * params_.block_table_stride;
    const int64_t context = params_.context_lengths[s];
    const int64_t end_key = params_.mask.causal ? rows_.back().position + 1 : context;
    const KvScales& scales = kv_.scales;
    for (int64_t first = 0; first < end_key; first += kv_.tokens_per_block) {
      const auto count =
          static_cast<uint32_t>(std::min<int64_t>(kv_.tokens_per_block, end_key - first));
      if (!MaySee(params_.mask, rows_.front().position, rows_.back().position, first,
                  first + count - 1)) {
        continue;
      }
      const auto slot = static_cast<uint32_t>(table[first / kv_.tokens_per_block]);
      const uint64_t offset = kv_.offset_bytes(slot, kv_head, 0);
      LoadTokens(kv_, kv_.keys + offset, count, kv_.head_dim,
                 ScaleOf(scales.keys, scales.per_head, kv_head), keys_.data());
      LoadTokens(kv_, kv_.values + offset, count, value_dim_,
                 ScaleOf(scales.values, scales.per_head, kv_head), values_.data());
      for (Row& row : rows_) Absorb(row, first, count);
    }
    for (Row& row : rows_) Finish(row);
  }

  void StartRows(size_t s, uint64_t begin, uint64_t end, uint32_t kv_head) {
    rows_.clear();
    std::fill(weighted_values_.begin(), weighted_values_.end(), 0.0f);
    for (uint64_t n = begin; n < end; ++n) {
      for (uint32_t g = 0; g < group_; ++g) {
        const uint32_t head = kv_head * group_ + g;
        float* query = queries_.data() + rows_.size() * kv_.head_dim;
        VisitElementType(params_.query_type, [&]<class T>() {
          const T* source = static_cast<const T*>(params_.query) + n * params_.query_token_stride +
                            uint64_t{head} * kv_.head_dim;
          for (uint32_t i = 0; i < kv_.head_dim; ++i) query[i] = ToFloat(source[i]);
        });
        rows_.push_back({.head = head,
                         .token = n,
                         .position = params_.context_lengths[s] - params_.query_starts[s + 1] +
                                     static_cast<int64_t>(n),
                         .query = query,
                         .weighted_values = weighted_values_.data() + rows_.size() * value_dim_});
      }
    }
  }

  // Takes the loaded tokens, whose first one is at the position `first`, into the row's softmax.
  void Absorb(Row& row, int64_t first, uint32_t count) {
    float largest = row.largest_score;
    for (uint32_t t = 0; t < count; ++t) {
      if (!Sees(params_.mask, row.head, row.position, first + t)) {
        scores_[t] = kUnseen;
        continue;
      }
      scores_[t] = Score(row, first + t, keys_.data() + uint64_t{t} * kv_.head_dim);
      largest = std::max(largest, scores_[t]);
    }
    if (largest == kUnseen) return;
    Rescale(row, largest);
    float* __restrict sums = row.weighted_values;
    for (uint32_t t = 0; t < count; ++t) {
      if (scores_[t] == kUnseen) continue;  // Its value may be NaN.
      const float weight = std::exp(scores_[t] - largest);
      const float* __restrict value = values_.data() + uint64_t{t} * value_dim_;
      for (uint32_t i = 0; i < value_dim_; ++i) sums[i] += weight * value[i];
      row.weight_sum += weight;
    }
  }

  float Score(const Row& row, int64_t key_position, const float* key) const {
    float score = params_.scale * Dot(row.query, key, kv_.head_dim);
    if (params_.soft_cap > 0) score = params_.soft_cap * std::tanh(score / params_.soft_cap);
    if (params_.alibi_slopes != nullptr) {
      score += params_.alibi_slopes[row.head] * static_cast<float>(key_position - row.position);
    }
    return score;
  }

  void Rescale(Row& row, float largest) {
    const float factor = std::exp(row.largest_score - largest);
    for (uint32_t i = 0; i < value_dim_; ++i) row.weighted_values[i] *= factor;
    row.weight_sum *= factor;
    row.largest_score = largest;
  }

  void Finish(Row& row) {
    if (params_.sink_logits != nullptr) {
      const float sink = params_.sink_logits[row.head];
      Rescale(row, std::max(sink, row.largest_score));
      row.weight_sum += std::exp(sink - row.largest_score);
    }
    const float inverse = row.weight_sum == 0 ? 0.0f : 1.0f / row.weight_sum;
    VisitElementType(params_.query_type, [&]<class T>() {
      T* output = static_cast<T*>(params_.output) + row.token * params_.output_token_stride +
                  uint64_t{row.head} * value_dim_;
      for (uint32_t i = 0; i < value_dim_; ++i) {
        output[i] = FromFloat<T>(row.weighted_values[i] * inverse);
      }
    });
    if (params_.lse != nullptr) {
      params_.lse[row.token * params_.num_heads + row.head] =
          row.weight_sum == 0 ? kUnseen : row.largest_score + std::log(row.weight_sum);
    }
  }

  static constexpr float kUnseen = -std::numeric_limits<float>::infinity();

  const PagedAttentionParams& params_;
  const KvLayer& kv_;
  const uint32_t group_;
  const uint32_t value_dim_;
  std::vector<float> keys_;    // The loaded block, [tokens_per_block][head_dim].
  std::vector<float> values_;  // Likewise, [tokens_per_block][value_dim].
  std::vector<float> scores_;  // [tokens_per_block]
  std::vector<float> queries_;
  std::vector<float> weighted_values_;
  std::vector<Row> rows_;  // Of the tile; the last one sees the most tokens.
};

}  // namespace

absl::Status PagedAttention(const PagedAttentionParams& params, const AttentionPlan*,
                            const Execution&) {
  if (absl::Status status = CheckHostArguments(params); !status.ok()) return status;
  Attention(params).Run();
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cpu
