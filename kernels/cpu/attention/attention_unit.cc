#include "kernels/cpu/attention/attention_unit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/numeric.h"

namespace pagoda::kernels::cpu {
namespace {

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// The bits first to end - 1 of a word, clipped to the word.
uint32_t Bits(int64_t first, int64_t end) {
  first = std::clamp<int64_t>(first, 0, 32);
  end = std::clamp<int64_t>(end, 0, 32);
  if (first >= end) return 0;
  return static_cast<uint32_t>(((uint64_t{1} << end) - 1) & ~((uint64_t{1} << first) - 1));
}

// The scale that all slots share, or 1.
float CommonScale(const KvScales& scales, const float* part, uint32_t kv_head) {
  return part == nullptr || scales.per_slot() ? 1.0f : *scales.At(part, /*slot=*/0, kv_head);
}

// exp2(score - largest), also if both are infinite: a row without keys has no weight.
float WeightOf(float score, float largest) {
  return score == kUnseen ? 0.0f : std::exp2(score - largest);
}

// How many query tokens ahead queries and outputs are prefetched. One KV head has too few bytes of
// each token for hardware prefetchers.
constexpr uint32_t kTokensAhead = 4;

// Stores the final row of the batch's query token n.
void FinishRow(const AttentionCall& call, uint64_t n, uint32_t head, const RowResult& result) {
  const PagedAttentionParams& params = call.params;
  float largest = result.largest;
  float weight_sum = result.weight_sum;
  float factor = 1.0f;
  if (params.sink_logits != nullptr) {
    const float sink = params.sink_logits[head] * kLog2E;
    const float with_sink = std::max(sink, largest);
    factor = WeightOf(largest, with_sink);
    weight_sum = weight_sum * factor + WeightOf(sink, with_sink);
    largest = with_sink;
  }
  factor *= ValueScale(params, head / call.group());
  // Without a key the sums are zeros.
  const float share = weight_sum == 0 ? 0.0f : factor / weight_sum;
  const uint32_t value_dim = call.value_dim();
  const uint64_t element_bytes = ElementBytes(params.query_type);
  std::byte* output = static_cast<std::byte*>(params.output) +
                      (n * params.output_token_stride + uint64_t{head} * value_dim) * element_bytes;
  const std::byte* ahead = output + kTokensAhead * params.output_token_stride * element_bytes;
  for (uint64_t i = 0; i < value_dim * element_bytes; i += 64) {
    __builtin_prefetch(ahead + i);
  }
  constexpr uint32_t kPiece = 256;
  float piece[kPiece];
  for (uint32_t first = 0; first < value_dim; first += kPiece) {
    const uint32_t count = std::min(kPiece, value_dim - first);
    const float* __restrict sums = result.sums + first;
    for (uint32_t i = 0; i < count; ++i) piece[i] = sums[i] * share;
    call.conversions.from_float({.source = reinterpret_cast<const std::byte*>(piece),
                                 .target = output + first * element_bytes,
                                 .num_rows = 1,
                                 .row_elements = count},
                                /*scale=*/1.0f);
  }
  if (params.lse != nullptr) {
    params.lse[n * params.num_heads + head] =
        weight_sum == 0 ? kUnseen : (largest + std::log2(weight_sum)) * kLn2;
  }
}

void ConvertQuery(const AttentionCall& call, const AttentionItem& item, uint32_t q, uint32_t head,
                  ConvertRows convert, void* query) {
  const PagedAttentionParams& params = call.params;
  const uint64_t first = (uint64_t{item.first_query} + q) * params.query_token_stride +
                         uint64_t{head} * params.kv.head_dim;
  const uint64_t element_bytes = ElementBytes(params.query_type);
  const std::byte* source = static_cast<const std::byte*>(params.query) + first * element_bytes;
  const std::byte* ahead = source + kTokensAhead * params.query_token_stride * element_bytes;
  for (uint64_t i = 0; i < params.kv.head_dim * element_bytes; i += 64) {
    __builtin_prefetch(ahead + i);
  }
  convert({.source = source,
           .target = static_cast<std::byte*>(query),
           .num_rows = 1,
           .row_elements = params.kv.head_dim},
          /*scale=*/1.0f);
}

}  // namespace

int64_t PositionOf(const AttentionCall& call, const AttentionItem& item, uint32_t q) {
  const PagedAttentionParams& params = call.params;
  return int64_t{params.context_lengths[item.sequence]} - params.query_starts[item.sequence + 1] +
         item.first_query + q;
}

void LoadQuery(const AttentionCall& call, const AttentionItem& item, uint32_t q, uint32_t head,
               float* query) {
  ConvertQuery(call, item, q, head, call.conversions.to_float, query);
}

void LoadQuery(const AttentionCall& call, const AttentionItem& item, uint32_t q, uint32_t head,
               BFloat16* query) {
  ConvertQuery(call, item, q, head, call.conversions.to_bf16, query);
}

void FindTokens(const AttentionCall& call, uint32_t sequence, uint32_t kv_head, uint32_t first_key,
                uint32_t count, const std::byte** __restrict keys,
                const std::byte** __restrict values) {
  const KvLayer& kv = call.params.kv;
  const int32_t* table =
      call.params.block_tables.data() + sequence * call.params.block_table_stride;
  const uint64_t stride = kv.token_stride_bytes;
  uint32_t block = first_key / kv.tokens_per_block;
  uint32_t token = first_key % kv.tokens_per_block;
  for (uint32_t found = 0; found < count; token = 0, ++block) {
    const uint32_t run = std::min(count - found, kv.tokens_per_block - token);
    const uint64_t offset = kv.offset_bytes(static_cast<uint32_t>(table[block]), kv_head, token);
    const std::byte* key = kv.keys + offset;
    const std::byte* value = kv.values + offset;
    for (uint32_t t = 0; t < run; ++t) {
      keys[found + t] = key + t * stride;
      values[found + t] = value + t * stride;
    }
    found += run;
  }
}

void FindScales(const AttentionCall& call, uint32_t sequence, uint32_t kv_head, uint32_t first_key,
                uint32_t count, const uint32_t* seen, float* __restrict key_scales,
                float* __restrict value_scales) {
  const KvLayer& kv = call.params.kv;
  const int32_t* table =
      call.params.block_tables.data() + sequence * call.params.block_table_stride;
  uint32_t block = first_key / kv.tokens_per_block;
  uint32_t token = first_key % kv.tokens_per_block;
  for (uint32_t found = 0; found < count; token = 0, ++block) {
    const uint32_t run = std::min(count - found, kv.tokens_per_block - token);
    bool any = seen == nullptr;
    for (uint32_t t = found; t < found + run && !any; ++t) {
      any = (seen[t / kTileTokens] >> (t % kTileTokens) & 1) != 0;
    }
    float key_scale = 1.0f, value_scale = 1.0f;
    if (any) {
      const auto slot = static_cast<uint32_t>(table[block]);
      key_scale = SlotScale(kv.scales, kv.scales.keys, slot, kv_head);
      value_scale = SlotScale(kv.scales, kv.scales.values, slot, kv_head);
    }
    std::fill_n(key_scales + found, run, key_scale);
    std::fill_n(value_scales + found, run, value_scale);
    found += run;
  }
}

uint32_t VisibleWord(const AttentionMask& mask, uint32_t head, int64_t position, int64_t first_key,
                     int64_t end_key) {
  uint32_t word = Bits(0, end_key - first_key);
  if (!mask.causal) return word;
  word &= Bits(0, position + 1 - first_key);
  if (mask.window_tokens != 0) {
    const int64_t window = position + 1 - mask.window_tokens;
    word &= Bits(window - first_key, 32) | Bits(0, int64_t{mask.sink_tokens} - first_key);
  }
  if (mask.sparsity.block_tokens == 0) return word;
  for (uint32_t left = word; left != 0; left &= left - 1) {
    const int bit = std::countr_zero(left);
    if (!Sees(mask, head, position, first_key + bit)) word &= ~(1u << bit);
  }
  return word;
}

float SlotScale(const KvScales& scales, const float* part, uint32_t slot, uint32_t kv_head) {
  return part == nullptr || !scales.per_slot() ? 1.0f : *scales.At(part, slot, kv_head);
}

ScoreRule RuleOf(const PagedAttentionParams& params, uint32_t kv_head) {
  const KvScales& scales = params.kv.scales;
  const float scale = params.scale * CommonScale(scales, scales.keys, kv_head);
  if (params.soft_cap == 0) return {.multiplier = scale * kLog2E, .cap = 0};
  return {.multiplier = scale / params.soft_cap, .cap = params.soft_cap * kLog2E};
}

float ValueScale(const PagedAttentionParams& params, uint32_t kv_head) {
  return CommonScale(params.kv.scales, params.kv.scales.values, kv_head);
}

void StoreRow(const AttentionCall& call, const AttentionItem& item, uint32_t q, uint32_t head,
              const RowResult& result) {
  if (item.partial == AttentionItem::kWhole) {
    return FinishRow(call, uint64_t{item.first_query} + q, head, result);
  }
  const uint64_t row = (uint64_t{item.partial} + q) * call.params.num_heads + head;
  std::copy_n(result.sums, call.value_dim(), call.partials.sums + row * call.value_dim());
  call.partials.largest[row] = result.largest;
  call.partials.weight_sums[row] = result.weight_sum;
}

void MergeParts(const AttentionCall& call, const AttentionMerge& merge, uint32_t kv_head,
                float* sums) {
  const uint32_t value_dim = call.value_dim();
  const uint32_t num_heads = call.params.num_heads;
  for (uint32_t q = 0; q < merge.num_queries; ++q) {
    for (uint32_t head = kv_head * call.group(); head < (kv_head + 1) * call.group(); ++head) {
      const auto row_of = [&](uint32_t part) {
        return (uint64_t{merge.partial} + q + uint64_t{part} * merge.num_queries) * num_heads +
               head;
      };
      float largest = kUnseen;
      for (uint32_t part = 0; part < merge.num_parts; ++part) {
        largest = std::max(largest, call.partials.largest[row_of(part)]);
      }
      float weight_sum = 0;
      std::fill_n(sums, value_dim, 0.0f);
      for (uint32_t part = 0; part < merge.num_parts; ++part) {
        const uint64_t row = row_of(part);
        if (call.partials.weight_sums[row] == 0) continue;  // No keys.
        const float factor = WeightOf(call.partials.largest[row], largest);
        const float* __restrict part_sums = call.partials.sums + row * value_dim;
        for (uint32_t i = 0; i < value_dim; ++i) sums[i] += factor * part_sums[i];
        weight_sum += factor * call.partials.weight_sums[row];
      }
      FinishRow(call, uint64_t{merge.first_query} + q, head,
                {.largest = largest, .weight_sum = weight_sum, .sums = sums});
    }
  }
}

}  // namespace pagoda::kernels::cpu
