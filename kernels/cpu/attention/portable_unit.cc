// A unit in one pass over the blocks, with the online softmax of Milakov and Gimelshein (2018), as
// in FlashAttention. A query row keeps its largest score, the sum of its weights and the weighted
// sum of values, and rescales them when a larger score comes. Plain loops that a compiler
// vectorises: for every shape, and for readers.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/attention/attention_unit.h"
#include "kernels/cpu/attention/scratch.h"
#include "kernels/numeric.h"

namespace pagoda::kernels::cpu {
namespace {

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// Query rows that share one pass over the blocks: each block is converted to fp32 once for all of
// them.
constexpr uint32_t kRowsPerPass = 64;

// Eight sums in two SSE registers. The order of additions is fixed.
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

// Loads `count` tokens of one head of a block, times `scale`, as fp32 [count][elements].
void LoadTokens(const KvLayer& kv, const std::byte* first, uint32_t count, uint32_t elements,
                float scale, float* __restrict out) {
  VisitElementType(kv.type, [&]<class T>() {
    for (uint32_t token = 0; token < count; ++token) {
      const T* source = reinterpret_cast<const T*>(first + token * kv.token_stride_bytes);
      for (uint32_t i = 0; i < elements; ++i) *out++ = scale * ToFloat(source[i]);
    }
  });
}

// The online softmax of one query head of one query token.
struct Row {
  uint32_t q;  // The item's query token.
  uint32_t head;
  int64_t position;  // In its context.
  float* query;      // [head_dim]
  float* sums;       // [value_dim]
  float largest;
  float weight_sum;
};

class PortableUnit {
 public:
  PortableUnit(const AttentionCall& call, ScratchCutter& scratch)
      : call_(call),
        kv_(call.params.kv),
        value_dim_(call.value_dim()),
        keys_(scratch.Take<float>(uint64_t{kv_.tokens_per_block} * kv_.head_dim)),
        values_(scratch.Take<float>(uint64_t{kv_.tokens_per_block} * value_dim_)),
        scores_(scratch.Take<float>(kv_.tokens_per_block)),
        queries_(scratch.Take<float>(uint64_t{kRowsPerPass} * kv_.head_dim)),
        sums_(scratch.Take<float>(uint64_t{kRowsPerPass} * value_dim_)),
        rows_(scratch.Take<Row>(kRowsPerPass)) {}

  void Run(const AttentionUnit& unit) {
    rule_ = RuleOf(call_.params, unit.kv_head);
    const uint32_t rows = unit.item->num_queries * call_.group();
    for (uint32_t first = 0; first < rows; first += kRowsPerPass) {
      Attend(unit, first, std::min(kRowsPerPass, rows - first));
    }
  }

 private:
  // Rows first to first + count - 1. The rows of a query token are neighbours.
  void Attend(const AttentionUnit& unit, uint32_t first, uint32_t count) {
    const AttentionItem& item = *unit.item;
    StartRows(unit, first, count);
    const int32_t* table =
        call_.params.block_tables.data() + item.sequence * call_.params.block_table_stride;
    for (uint32_t key = item.first_key; key < item.end_key;) {
      const uint32_t token = key % kv_.tokens_per_block;
      const uint32_t run = std::min(kv_.tokens_per_block - token, item.end_key - key);
      if (MaySee(call_.params.mask, rows_[0].position, rows_[count - 1].position, key,
                 int64_t{key} + run - 1)) {
        const auto slot = static_cast<uint32_t>(table[key / kv_.tokens_per_block]);
        const uint64_t offset = kv_.offset_bytes(slot, unit.kv_head, token);
        const KvScales& scales = kv_.scales;
        LoadTokens(kv_, kv_.keys + offset, run, kv_.head_dim,
                   SlotScale(scales, scales.keys, slot, unit.kv_head), keys_);
        LoadTokens(kv_, kv_.values + offset, run, value_dim_,
                   SlotScale(scales, scales.values, slot, unit.kv_head), values_);
        for (uint32_t r = 0; r < count; ++r) Absorb(rows_[r], key, run);
      }
      key += run;
    }
    for (uint32_t r = 0; r < count; ++r) {
      const Row& row = rows_[r];
      StoreRow(call_, item, row.q, row.head,
               {.largest = row.largest, .weight_sum = row.weight_sum, .sums = row.sums});
    }
  }

  void StartRows(const AttentionUnit& unit, uint32_t first, uint32_t count) {
    std::fill_n(sums_, uint64_t{count} * value_dim_, 0.0f);
    for (uint32_t r = 0; r < count; ++r) {
      const uint32_t q = (first + r) / call_.group();
      rows_[r] = {.q = q,
                  .head = unit.kv_head * call_.group() + (first + r) % call_.group(),
                  .position = PositionOf(call_, *unit.item, q),
                  .query = queries_ + uint64_t{r} * kv_.head_dim,
                  .sums = sums_ + uint64_t{r} * value_dim_,
                  .largest = kUnseen,
                  .weight_sum = 0};
      LoadQuery(call_, *unit.item, q, rows_[r].head, rows_[r].query);
    }
  }

  // Adds the loaded tokens, which begin at the position `first`, to the row's softmax.
  void Absorb(Row& row, int64_t first, uint32_t count) {
    float largest = row.largest;
    bool seen = false;
    for (uint32_t t = 0; t < count; ++t) {
      if (!Sees(call_.params.mask, row.head, row.position, first + t)) {
        scores_[t] = kUnseen;
        continue;
      }
      scores_[t] = Score(row, first + t, keys_ + uint64_t{t} * kv_.head_dim);
      largest = std::max(largest, scores_[t]);
      seen = true;
    }
    if (!seen) return;
    Rescale(row, largest);
    float* __restrict sums = row.sums;
    for (uint32_t t = 0; t < count; ++t) {
      if (scores_[t] == kUnseen) continue;  // Its value may be NaN.
      const float weight = std::exp2(scores_[t] - largest);
      const float* __restrict value = values_ + uint64_t{t} * value_dim_;
      for (uint32_t i = 0; i < value_dim_; ++i) sums[i] += weight * value[i];
      row.weight_sum += weight;
    }
  }

  float Score(const Row& row, int64_t key_position, const float* key) const {
    float score = rule_.multiplier * Dot(row.query, key, kv_.head_dim);
    if (rule_.cap != 0) score = rule_.cap * std::tanh(score);
    if (call_.params.alibi_slopes != nullptr) {
      score += call_.params.alibi_slopes[row.head] * kLog2E *
               static_cast<float>(key_position - row.position);
    }
    return score;
  }

  void Rescale(Row& row, float largest) {
    if (largest == row.largest) return;
    const float factor = std::exp2(row.largest - largest);
    for (uint32_t i = 0; i < value_dim_; ++i) row.sums[i] *= factor;
    row.weight_sum *= factor;
    row.largest = largest;
  }

  const AttentionCall& call_;
  const KvLayer& kv_;
  const uint32_t value_dim_;
  ScoreRule rule_;
  float* keys_;    // The loaded block, [tokens_per_block][head_dim].
  float* values_;  // The block's values, [tokens_per_block][value_dim].
  float* scores_;  // [tokens_per_block]
  float* queries_;
  float* sums_;
  Row* rows_;  // The rows of the pass; the last one sees the most tokens.
};

}  // namespace

size_t PortableScratchBytes(const AttentionCall& call) {
  ScratchCutter scratch;
  PortableUnit(call, scratch);
  return scratch.bytes();
}

void RunPortableUnit(const AttentionCall& call, const AttentionUnit& unit,
                     absl::Span<std::byte> memory) {
  ScratchCutter scratch(memory);
  PortableUnit(call, scratch).Run(unit);
}

}  // namespace pagoda::kernels::cpu
