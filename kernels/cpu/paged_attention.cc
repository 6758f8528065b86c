// Paged attention in one pass over the blocks, with the online softmax of Milakov and Gimelshein
// (2018), as in FlashAttention: a query row keeps the largest score so far, the sum of its weights
// and the weighted sum of values, and rescales them when a larger score comes.
#include "kernels/paged_attention.h"

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

// The first `count` tokens of a block of one head, as fp32 [count][head_dim].
void LoadTokens(const KvLayer& kv, const std::byte* block, uint32_t count, float* __restrict out) {
  VisitElementType(kv.type, [&]<class T>() {
    for (uint32_t token = 0; token < count; ++token) {
      const T* elements = reinterpret_cast<const T*>(block + token * kv.token_stride_bytes);
      for (uint32_t i = 0; i < kv.head_dim; ++i) *out++ = ToFloat(elements[i]);
    }
  });
}

// The softmax of one query head of one query token, while its keys come by.
struct Row {
  const float* query;       // [head_dim]
  float* output;            // [head_dim]
  float* weighted_values;   // [head_dim]
  uint64_t visible_tokens;  // The context up to and with the query token itself.
  float largest_score;
  float weight_sum;
};

class Attention {
 public:
  explicit Attention(const PagedAttentionParams& params)
      : params_(params),
        kv_(params.kv),
        group_(params.num_heads / params.kv.num_kv_heads),
        keys_(uint64_t{kv_.tokens_per_block} * kv_.head_dim),
        values_(keys_.size()),
        scores_(kv_.tokens_per_block),
        weighted_values_(kQueryTokensPerTile * group_ * kv_.head_dim) {}

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
    const uint64_t visible = rows_.back().visible_tokens;
    for (uint64_t first = 0; first < visible; first += kv_.tokens_per_block) {
      const auto slot = static_cast<uint32_t>(table[first / kv_.tokens_per_block]);
      const uint32_t count = CountInBlock(first, visible);
      LoadTokens(kv_, kv_.keys + kv_.offset_bytes(slot, kv_head, 0), count, keys_.data());
      LoadTokens(kv_, kv_.values + kv_.offset_bytes(slot, kv_head, 0), count, values_.data());
      for (Row& row : rows_) {
        if (row.visible_tokens > first) Absorb(row, CountInBlock(first, row.visible_tokens));
      }
    }
    for (const Row& row : rows_) {
      for (uint32_t i = 0; i < kv_.head_dim; ++i) {
        row.output[i] = row.weighted_values[i] / row.weight_sum;
      }
    }
  }

  void StartRows(size_t s, uint64_t begin, uint64_t end, uint32_t kv_head) {
    rows_.clear();
    std::fill(weighted_values_.begin(), weighted_values_.end(), 0.0f);
    const uint64_t context = params_.context_lengths[s];
    for (uint64_t n = begin; n < end; ++n) {
      const uint64_t after = params_.query_starts[s + 1] - n - 1;
      for (uint32_t g = 0; g < group_; ++g) {
        const uint64_t head_offset = (uint64_t{kv_head} * group_ + g) * kv_.head_dim;
        rows_.push_back({.query = params_.query + n * params_.query_token_stride + head_offset,
                         .output = params_.output + n * params_.output_token_stride + head_offset,
                         .weighted_values = weighted_values_.data() + rows_.size() * kv_.head_dim,
                         .visible_tokens = context - after,
                         .largest_score = -std::numeric_limits<float>::infinity(),
                         .weight_sum = 0.0f});
      }
    }
  }

  uint32_t CountInBlock(uint64_t first, uint64_t visible) const {
    return static_cast<uint32_t>(std::min<uint64_t>(kv_.tokens_per_block, visible - first));
  }

  // Takes the first `count` tokens of the loaded block into the row's softmax.
  void Absorb(Row& row, uint32_t count) {
    float largest = row.largest_score;
    for (uint32_t t = 0; t < count; ++t) {
      scores_[t] =
          params_.scale * Dot(row.query, keys_.data() + uint64_t{t} * kv_.head_dim, kv_.head_dim);
      largest = std::max(largest, scores_[t]);
    }
    float* __restrict sums = row.weighted_values;
    const float rescale = std::exp(row.largest_score - largest);
    for (uint32_t i = 0; i < kv_.head_dim; ++i) sums[i] *= rescale;
    row.weight_sum *= rescale;
    row.largest_score = largest;
    for (uint32_t t = 0; t < count; ++t) {
      const float weight = std::exp(scores_[t] - largest);
      const float* __restrict value = values_.data() + uint64_t{t} * kv_.head_dim;
      for (uint32_t i = 0; i < kv_.head_dim; ++i) sums[i] += weight * value[i];
      row.weight_sum += weight;
    }
  }

  const PagedAttentionParams& params_;
  const KvLayer& kv_;
  const uint32_t group_;
  std::vector<float> keys_;    // The loaded block, [tokens_per_block][head_dim].
  std::vector<float> values_;  // Likewise.
  std::vector<float> scores_;  // [tokens_per_block]
  std::vector<float> weighted_values_;
  std::vector<Row> rows_;  // Of the tile; the last one sees the most tokens.
};

}  // namespace

absl::Status PagedAttention(const PagedAttentionParams& params) {
  if (absl::Status status = CheckHostArguments(params); !status.ok()) return status;
  Attention(params).Run();
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cpu
