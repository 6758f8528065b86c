#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cpu/attention/tile_unit.h"
#include "kernels/numeric.h"

namespace pagoda::kernels::cpu {
namespace {

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// While a unit works on some tokens, it prefetches tokens `tokens` further, in several streams, one
// row of each in turn. The number of pages that a core's prefetchers follow at a time limits its
// lines in flight.
struct FetchPlan {
  uint32_t tokens;
  uint32_t streams;

  uint32_t tiles() const { return tokens / kTileTokens; }
  uint32_t stream_rows() const { return kTileTokens / streams; }  // Per stream and tile.
};

FetchPlan PlanOf(FetchAhead ahead) {
  if (ahead == FetchAhead::kNear) return {.tokens = kTileTokens, .streams = 1};
  return {.tokens = 4 * kTileTokens, .streams = 4};
}

uint32_t RoundUp(uint32_t number, uint32_t granule) {
  return (number + granule - 1) / granule * granule;
}

}  // namespace

DecodeUnit::DecodeUnit(const AttentionCall& call, ScratchCutter& scratch)
    : call_(call),
      kernels_(*call.decode_kernels),
      scaled_(call.params.kv.scales.per_slot()),
      amx_(kernels_.amx),
      group_(call.group()),
      query_elements_(WholeSteps(call.params.kv.head_dim)),
      sum_stride_(WholeSteps(call.value_dim())),
      tile_rows_(scratch),
      seen_rows_(scratch),
      next_rows_(scratch),
      zeros_(scratch.Take<std::byte>(query_elements_ * sizeof(float))),
      queries_(scratch.Take<std::byte>(kMostRows * query_elements_ * sizeof(float))),
      natural_(scratch.Take<float>(query_elements_)),
      arranged_(scratch.Take<float>(query_elements_)),
      sums_(scratch.Take<float>(uint64_t{kMostRows} * sum_stride_)),
      largest_(scratch.Take<float>(kMostRows)),
      weight_sums_(scratch.Take<float>(kMostRows)),
      slopes_(scratch.Take<float>(kMostRows)),
      biases_(scratch.Take<float>(kMostRows)),
      tile_scratch_(scratch.Take<std::byte>(
          amx_ == nullptr ? 0 : uint64_t{2} * kTileTokens * call.params.kv.head_dim)),
      waiting_(scratch.Take<AmxValues>(amx_ == nullptr ? 0 : 1)) {}

bool DecodeUnit::Run(const AttentionUnit& unit, const AttentionUnit& next, bool fetched) {
  unit_ = unit;
  next_ = next;
  Start();
  if (!fetched && call_.fetch == FetchAhead::kNear) FetchFirst<_MM_HINT_T0>();
  if (!fetched && call_.fetch == FetchAhead::kFar) FetchFirst<_MM_HINT_T1>();
  const AttentionItem& item = *unit.item;
  const int64_t first_position = PositionOf(call_, item, 0);
  const int64_t last_position = PositionOf(call_, item, item.num_queries - 1);
  for (uint32_t key = item.first_key; key < item.end_key;) {
    const uint32_t count = std::min(kTileTokens, item.end_key - key);
    if (MaySee(call_.params.mask, first_position, last_position, key, int64_t{key} + count - 1)) {
      AttendTile(key, count);
    }
    key += count;
  }
  Finish();
  return tiles_for_next_ == PlanOf(call_.fetch).tiles();
}

void DecodeUnit::Start() {
  const PagedAttentionParams& params = call_.params;
  num_rows_ = unit_.item->num_queries * group_;
  next_key_ = unit_.item->end_key;
  // A pass of 4 rows can have unused rows.
  const uint32_t rows = RoundUp(num_rows_, kQueryRows);
  std::fill_n(zeros_, query_elements_ * sizeof(float), std::byte{0});
  std::fill_n(queries_, rows * query_elements_ * sizeof(float), std::byte{0});
  std::fill_n(sums_, uint64_t{rows} * sum_stride_, 0.0f);
  std::fill_n(largest_, rows, kUnseen);
  std::fill_n(weight_sums_, rows, 0.0f);
  std::fill_n(slopes_, rows, 0.0f);
  std::fill_n(biases_, rows, 0.0f);
  for (uint32_t r = 0; r < num_rows_; ++r) {
    const uint32_t head = unit_.kv_head * group_ + r % group_;
    TakeQuery(r, head);
    if (params.alibi_slopes != nullptr) slopes_[r] = params.alibi_slopes[head] * kLog2E;
  }
  tile_ = {.keys = nullptr,
           .values = nullptr,
           .next_keys = nullptr,
           .next_values = nullptr,
           .num_next_tokens = 0,
           .near = call_.fetch == FetchAhead::kNear,
           .tokens = 0,
           .visible = 0,
           .key_scales = scaled_ ? tile_scales_.keys : nullptr,
           .value_scales = scaled_ ? tile_scales_.values : nullptr,
           .float8 = call_.float8,
           .queries = nullptr,
           .head_dim = params.kv.head_dim,
           .value_dim = call_.value_dim(),
           .rule = RuleOf(params, unit_.kv_head),
           .rows = {},
           .num_rows = 0,
           .scratch = tile_scratch_,
           .waiting = waiting_};
  if (amx_ != nullptr) waiting_->count = 0;
}

void DecodeUnit::TakeQuery(uint32_t row, uint32_t head) {
  const AttentionItem& item = *unit_.item;
  const uint32_t q = row / group_;
  if (kernels_.bf16) {
    auto* query = reinterpret_cast<BFloat16*>(natural_);
    auto* arranged = reinterpret_cast<BFloat16*>(arranged_);
    LoadQuery(call_, item, q, head, query);
    Arrange(kernels_.query_order, kernels_.lanes, query, call_.params.kv.head_dim, arranged);
    if (amx_ != nullptr) {
      InterleavePairs(arranged, row);
    } else {
      Interleave(arranged, row);
    }
  } else {
    LoadQuery(call_, item, q, head, natural_);
    Arrange(kernels_.query_order, kernels_.lanes, natural_, call_.params.kv.head_dim, arranged_);
    Interleave(arranged_, row);
  }
}

template <class T>
void DecodeUnit::Interleave(const T* query, uint32_t row) {
  const uint32_t head_dim =
      IsOfBytes(kernels_.query_order) ? query_elements_ : call_.params.kv.head_dim;
  const uint32_t step = kernels_.query_step;
  T* out = reinterpret_cast<T*>(queries_) + QueryOffset(row);
  for (uint32_t i = 0; i < head_dim; i += step) {
    std::copy_n(query + i, std::min(step, head_dim - i), out + i * kQueryRows);
  }
}

void DecodeUnit::InterleavePairs(const BFloat16* query, uint32_t row) {
  auto* const out = reinterpret_cast<BFloat16*>(queries_) + 2 * row;
  for (uint32_t i = 0; i < call_.params.kv.head_dim; i += 2) {
    std::copy_n(query + i, 2, out + uint64_t{i} * kMostTileRows);
  }
}

uint64_t DecodeUnit::QueryOffset(uint32_t row) const {
  return row / kQueryRows * kQueryRows * uint64_t{query_elements_} +
         row % kQueryRows * kernels_.query_step;
}

void DecodeUnit::AttendTile(uint32_t first_key, uint32_t count) {
  const AttentionItem& item = *unit_.item;
  const AttentionMask& mask = call_.params.mask;
  FindTile(first_key, count);
  FindFetched(first_key);
  if (call_.params.alibi_slopes != nullptr) {
    for (uint32_t r = 0; r < num_rows_; ++r) {
      const int64_t distance = int64_t{first_key} - PositionOf(call_, item, r / group_);
      biases_[r] = slopes_[r] * static_cast<float>(distance);
    }
  }
  const int64_t end_key = int64_t{first_key} + count;
  const int64_t last_position = PositionOf(call_, item, item.num_queries - 1);
  uint32_t words[kMostRows];
  bool alike = true;
  if (SeesAll(mask, PositionOf(call_, item, 0), last_position, first_key, end_key - 1)) {
    words[0] = VisibleWord({.causal = false}, 0, 0, first_key, end_key);
  } else {
    for (uint32_t r = 0; r < num_rows_; ++r) {
      words[r] = VisibleWord(mask, unit_.kv_head * group_ + r % group_,
                             PositionOf(call_, item, r / group_), first_key, end_key);
      alike &= words[r] == words[0];
    }
  }
  if (scaled_) {
    uint32_t seen = words[0];
    for (uint32_t r = 1; r < num_rows_ && !alike; ++r) seen |= words[r];
    FindTileScales(first_key, count, seen);
  }
  if (alike) {
    HideUnseen(words[0]);
    const uint32_t step = amx_ != nullptr ? kMostTileRows : kQueryRows;
    for (uint32_t r = 0; r < num_rows_; r += step) {
      AttendRows(r, std::min(step, num_rows_ - r), words[0]);
    }
    return;
  }
  // A value that one row sees can be NaN, and must not affect another row.
  std::copy_n(tile_rows_.keys, kTileTokens, seen_rows_.keys);
  std::copy_n(tile_rows_.values, kTileTokens, seen_rows_.values);
  seen_scales_ = tile_scales_;
  for (uint32_t r = 0; r < num_rows_; ++r) {
    std::copy_n(seen_rows_.keys, kTileTokens, tile_rows_.keys);
    std::copy_n(seen_rows_.values, kTileTokens, tile_rows_.values);
    tile_scales_ = seen_scales_;
    HideUnseen(words[r]);
    AttendRows(r, 1, words[r]);
  }
}

void DecodeUnit::HideUnseen(uint32_t visible) {
  for (uint32_t hidden = ~visible; hidden != 0; hidden &= hidden - 1) {
    tile_rows_.keys[std::countr_zero(hidden)] = zeros_;
    tile_rows_.values[std::countr_zero(hidden)] = zeros_;
    // An unseen block's scale can be NaN.
    tile_scales_.values[std::countr_zero(hidden)] = 1.0f;
  }
}

void DecodeUnit::FindTileScales(uint32_t first_key, uint32_t count, uint32_t seen) {
  FindScales(call_, unit_.item->sequence, unit_.kv_head, first_key, count, &seen, tile_scales_.keys,
             tile_scales_.values);
  std::fill(tile_scales_.keys + count, tile_scales_.keys + kTileTokens, 1.0f);
  std::fill(tile_scales_.values + count, tile_scales_.values + kTileTokens, 1.0f);
}

void DecodeUnit::AttendRows(uint32_t first_row, uint32_t rows, uint32_t visible) {
  if (visible == 0) return;
  float* const sums = sums_ + uint64_t{first_row} * sum_stride_;
  if (amx_ != nullptr && (rows != tile_.num_rows || sums != tile_.rows.sums)) {
    AddWaiting();
    amx_->begin(rows);
  }
  tile_.num_rows = rows;
  tile_.tokens = RoundUp(static_cast<uint32_t>(std::bit_width(visible)), 16);
  tile_.visible = visible;
  const uint64_t offset = amx_ != nullptr ? 2 * first_row : QueryOffset(first_row);
  tile_.queries = queries_ + offset * (kernels_.bf16 ? sizeof(BFloat16) : sizeof(float));
  const bool biased = call_.params.alibi_slopes != nullptr;
  tile_.rows = {.largest = largest_ + first_row,
                .weight_sums = weight_sums_ + first_row,
                .sums = sums,
                .sum_stride = sum_stride_,
                .first_biases = biased ? biases_ + first_row : nullptr,
                .biases_per_token = biased ? slopes_ + first_row : nullptr};
  if (amx_ != nullptr) {
    amx_->decode(tile_);
  } else {
    kernels_.decode[rows == 1 ? 0 : rows == 2 ? 1 : 2](tile_);
  }
  tile_.num_next_tokens = 0;  // The rows are prefetched only once.
}

// tile_ still has the rows with which they were weighed.
void DecodeUnit::AddWaiting() {
  if (tile_.num_rows != 0) amx_->add_waiting(tile_);
}

void DecodeUnit::FindTile(uint32_t first_key, uint32_t count) {
  if (next_key_ == first_key) {
    std::swap(tile_rows_, next_rows_);
  } else {
    FindTokens(call_, unit_.item->sequence, unit_.kv_head, first_key, count, tile_rows_.keys,
               tile_rows_.values);
  }
  std::fill(tile_rows_.keys + count, tile_rows_.keys + kTileTokens, zeros_);
  std::fill(tile_rows_.values + count, tile_rows_.values + kTileTokens, zeros_);
  tile_.keys = tile_rows_.keys;
  tile_.values = tile_rows_.values;
}

// The first tile, from the tile of `key` on, that some row can see; the item's end if there is
// none.
uint64_t DecodeUnit::NextSeen(uint64_t key) const {
  const AttentionItem& item = *unit_.item;
  const AttentionMask& mask = call_.params.mask;
  const int64_t first_position = PositionOf(call_, item, 0);
  const int64_t last_position = PositionOf(call_, item, item.num_queries - 1);
  while (key < item.end_key &&
         !MaySee(mask, first_position, last_position, static_cast<int64_t>(key),
                 static_cast<int64_t>(key) + kTileTokens - 1)) {
    key += kTileTokens;
  }
  return key;
}

// Finds the rows to prefetch during the tile of first_key: a share of each stream of the tokens
// FetchPlan::tokens behind it. Behind the item's end, they are the next item's first tokens.
void DecodeUnit::FindFetched(uint32_t first_key) {
  const FetchPlan plan = PlanOf(call_.fetch);
  const uint32_t begin = unit_.item->first_key;
  const uint32_t tile = (first_key - begin) % plan.tokens / kTileTokens;
  AttentionUnit unit = unit_;
  uint64_t key = begin + (uint64_t{first_key - begin} / plan.tokens + 1) * plan.tokens;
  if (call_.fetch == FetchAhead::kNear) key = NextSeen(key);
  next_key_ = unit.item->end_key;
  tile_.num_next_tokens = 0;
  if (key >= unit.item->end_key) {
    unit = next_;
    if (unit.item == nullptr) return;
    ++tiles_for_next_;
    key = unit.item->first_key;
  } else if (call_.fetch == FetchAhead::kNear) {
    next_key_ = static_cast<uint32_t>(key);
  }
  const AttentionItem& item = *unit.item;
  key += tile * plan.stream_rows();
  uint32_t counts[kTileTokens] = {};  // By stream.
  const std::byte* keys[kTileTokens];
  const std::byte* values[kTileTokens];
  const bool one_stream = plan.streams == 1;
  for (uint32_t stream = 0; stream < plan.streams && key < item.end_key; ++stream) {
    counts[stream] =
        static_cast<uint32_t>(std::min<uint64_t>(plan.stream_rows(), item.end_key - key));
    const uint32_t first = stream * plan.stream_rows();
    FindTokens(call_, item.sequence, unit.kv_head, static_cast<uint32_t>(key), counts[stream],
               one_stream ? next_rows_.keys : keys + first,
               one_stream ? next_rows_.values : values + first);
    if (scaled_) FetchScales(item.sequence, unit.kv_head, static_cast<uint32_t>(key));
    key += kTileTokens;
  }
  if (one_stream) {
    tile_.num_next_tokens = counts[0];
  } else {
    for (uint32_t row = 0; row < plan.stream_rows(); ++row) {
      for (uint32_t stream = 0; stream < plan.streams; ++stream) {
        if (row >= counts[stream]) continue;
        const uint32_t i = stream * plan.stream_rows() + row;
        next_rows_.keys[tile_.num_next_tokens] = keys[i];
        next_rows_.values[tile_.num_next_tokens++] = values[i];
      }
    }
  }
  tile_.next_keys = next_rows_.keys;
  tile_.next_values =
      call_.params.kv.values == call_.params.kv.keys ? next_rows_.keys : next_rows_.values;
}

void DecodeUnit::FetchScales(uint32_t sequence, uint32_t kv_head, uint32_t key) const {
  const PagedAttentionParams& params = call_.params;
  const KvScales& scales = params.kv.scales;
  const int32_t slot =
      params.block_tables[sequence * params.block_table_stride + key / params.kv.tokens_per_block];
  const uint64_t at = static_cast<uint64_t>(slot) * scales.slot_stride + kv_head;
  _mm_prefetch(reinterpret_cast<const char*>(scales.keys + at), _MM_HINT_T0);
  _mm_prefetch(reinterpret_cast<const char*>(scales.values + at), _MM_HINT_T0);
}

template <_mm_hint kHint>
void DecodeUnit::FetchFirst() {
  const AttentionItem& item = *unit_.item;
  const KvLayer& kv = call_.params.kv;
  const uint64_t key_bytes = kv.head_dim * ElementBytes(kv.type);
  const uint64_t value_bytes = call_.value_dim() * ElementBytes(kv.type);
  const uint32_t end = std::min(item.end_key, item.first_key + PlanOf(call_.fetch).tokens);
  for (uint32_t key = item.first_key; key < end; key += kTileTokens) {
    const uint32_t count = std::min(kTileTokens, end - key);
    FindTokens(call_, item.sequence, unit_.kv_head, key, count, tile_rows_.keys, tile_rows_.values);
    for (uint32_t t = 0; t < count; ++t) {
      for (uint64_t i = 0; i < key_bytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(tile_rows_.keys[t] + i), kHint);
      }
      for (uint64_t i = 0; i < value_bytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(tile_rows_.values[t] + i), kHint);
      }
    }
  }
}

void DecodeUnit::Finish() {
  if (amx_ != nullptr && tile_.num_rows != 0) {
    AddWaiting();
    amx_->end();
  }
  for (uint32_t r = 0; r < num_rows_; ++r) {
    Restore(kernels_.sum_order, kernels_.lanes, sums_ + uint64_t{r} * sum_stride_,
            call_.value_dim(), natural_);
    StoreRow(call_, *unit_.item, r / group_, unit_.kv_head * group_ + r % group_,
             {.largest = largest_[r], .weight_sum = weight_sums_[r], .sums = natural_});
  }
}

}  // namespace pagoda::kernels::cpu
