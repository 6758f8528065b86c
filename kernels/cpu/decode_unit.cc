#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cpu/tile_unit.h"
#include "kernels/numeric.h"

namespace pagoda::kernels::cpu {
namespace {

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// Tokens that are fetched into the second cache while as many before them are in work, and the
// streams in which they are: one row of each in turn. A core has as many lines on their way from
// memory as its prefetchers follow pages at a time.
constexpr uint32_t kFetchTokens = 128;
constexpr uint32_t kFetchStreams = kFetchTokens / kTileTokens;
constexpr uint32_t kStreamRows = kTileTokens / kFetchStreams;  // Of a stream, a tile.

uint32_t RoundUp(uint32_t number, uint32_t granule) {
  return (number + granule - 1) / granule * granule;
}

}  // namespace

DecodeUnit::DecodeUnit(const AttentionCall& call, ScratchCutter& scratch)
    : call_(call),
      kernels_(*call.kernels),
      group_(call.group()),
      query_stride_(RoundUp(call.params.kv.head_dim, 32)),
      sum_stride_(SumStride(call.value_dim())),
      keys_(scratch.Take<const std::byte*>(kTileTokens)),
      values_(scratch.Take<const std::byte*>(kTileTokens)),
      seen_keys_(scratch.Take<const std::byte*>(kTileTokens)),
      seen_values_(scratch.Take<const std::byte*>(kTileTokens)),
      next_rows_(scratch.Take<const std::byte*>(2 * kTileTokens)),
      zeros_(scratch.Take<std::byte>(query_stride_ * sizeof(float))),
      queries_(scratch.Take<std::byte>(kMostRows * query_stride_ * sizeof(float))),
      natural_(scratch.Take<float>(query_stride_)),
      arranged_(scratch.Take<float>(query_stride_)),
      sums_(scratch.Take<float>(uint64_t{kMostRows} * sum_stride_)),
      largest_(scratch.Take<float>(kMostRows)),
      weight_sums_(scratch.Take<float>(kMostRows)),
      slopes_(scratch.Take<float>(kMostRows)),
      biases_(scratch.Take<float>(kMostRows)) {}

bool DecodeUnit::Run(const AttentionUnit& unit, const AttentionUnit& next, bool fetched) {
  unit_ = unit;
  next_ = next;
  Start();
  if (!fetched) FetchFirst();
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
  return tiles_for_next_ == kFetchTokens / kTileTokens;
}

void DecodeUnit::Start() {
  const PagedAttentionParams& params = call_.params;
  const uint32_t head_dim = params.kv.head_dim;
  num_rows_ = unit_.item->num_queries * group_;
  // A pass of 4 rows may have rows that nobody reads.
  const uint32_t rows = RoundUp(num_rows_, 4);
  std::fill_n(zeros_, query_stride_ * sizeof(float), std::byte{0});
  std::fill_n(queries_, rows * query_stride_ * sizeof(float), std::byte{0});
  std::fill_n(sums_, uint64_t{rows} * sum_stride_, 0.0f);
  std::fill_n(largest_, rows, kUnseen);
  std::fill_n(weight_sums_, rows, 0.0f);
  std::fill_n(slopes_, rows, 0.0f);
  std::fill_n(biases_, rows, 0.0f);
  for (uint32_t r = 0; r < num_rows_; ++r) {
    const uint32_t head = unit_.kv_head * group_ + r % group_;
    LoadQuery(call_, *unit_.item, r / group_, head, natural_);
    if (kernels_.bf16) {
      auto* query = reinterpret_cast<BFloat16*>(queries_) + r * query_stride_;
      for (uint32_t i = 0; i < head_dim; ++i) query[i] = ToBFloat16(natural_[i]);
    } else {
      Arrange(kernels_.query_order, kernels_.lanes, natural_, head_dim,
              reinterpret_cast<float*>(queries_) + r * query_stride_);
    }
    if (params.alibi_slopes != nullptr) slopes_[r] = params.alibi_slopes[head] * kLog2E;
  }
  tile_ = {.keys = keys_,
           .values = values_,
           .next_rows = next_rows_,
           .num_next_rows = 0,
           .tokens = 0,
           .visible = 0,
           .queries = nullptr,
           .query_stride = query_stride_,
           .head_dim = head_dim,
           .value_dim = call_.value_dim(),
           .rule = RuleOf(params, unit_.kv_head),
           .rows = {}};
}

void DecodeUnit::AttendTile(uint32_t first_key, uint32_t count) {
  const AttentionItem& item = *unit_.item;
  const AttentionMask& mask = call_.params.mask;
  FindTokens(call_, item.sequence, unit_.kv_head, first_key, count, keys_, values_);
  std::fill(keys_ + count, keys_ + kTileTokens, zeros_);
  std::fill(values_ + count, values_ + kTileTokens, zeros_);
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
  if (alike) {
    HideUnseen(words[0]);
    for (uint32_t r = 0; r < num_rows_; r += 4) {
      AttendRows(r, std::min(4u, num_rows_ - r), words[0]);
    }
    return;
  }
  // What one row sees may be NaN, and does not concern another.
  std::copy_n(keys_, kTileTokens, seen_keys_);
  std::copy_n(values_, kTileTokens, seen_values_);
  for (uint32_t r = 0; r < num_rows_; ++r) {
    std::copy_n(seen_keys_, kTileTokens, keys_);
    std::copy_n(seen_values_, kTileTokens, values_);
    HideUnseen(words[r]);
    AttendRows(r, 1, words[r]);
  }
}

void DecodeUnit::HideUnseen(uint32_t visible) {
  for (uint32_t hidden = ~visible; hidden != 0; hidden &= hidden - 1) {
    keys_[std::countr_zero(hidden)] = zeros_;
    values_[std::countr_zero(hidden)] = zeros_;
  }
}

void DecodeUnit::AttendRows(uint32_t first_row, uint32_t rows, uint32_t visible) {
  if (visible == 0) return;
  tile_.tokens = RoundUp(static_cast<uint32_t>(std::bit_width(visible)), 16);
  tile_.visible = visible;
  tile_.queries = queries_ + uint64_t{first_row} * query_stride_ *
                                 (kernels_.bf16 ? sizeof(BFloat16) : sizeof(float));
  const bool biased = call_.params.alibi_slopes != nullptr;
  tile_.rows = {.largest = largest_ + first_row,
                .weight_sums = weight_sums_ + first_row,
                .sums = sums_ + uint64_t{first_row} * sum_stride_,
                .sum_stride = sum_stride_,
                .first_biases = biased ? biases_ + first_row : nullptr,
                .biases_per_token = biased ? slopes_ + first_row : nullptr};
  kernels_.decode[rows == 1 ? 0 : rows == 2 ? 1 : 2](tile_);
  tile_.num_next_rows = 0;  // Once is enough.
}

// What is fetched during the tile of first_key: a share of each stream of the next kFetchTokens
// tokens; where the item has ended, of the next item's first ones.
void DecodeUnit::FindFetched(uint32_t first_key) {
  tile_.num_next_rows = 0;
  const uint32_t begin = unit_.item->first_key;
  const uint32_t tile = (first_key - begin) % kFetchTokens / kTileTokens;
  AttentionUnit unit = unit_;
  uint64_t key = begin + (uint64_t{first_key - begin} / kFetchTokens + 1) * kFetchTokens;
  if (key >= unit.item->end_key) {
    unit = next_;
    if (unit.item == nullptr) return;
    ++tiles_for_next_;
    key = unit.item->first_key;
  }
  const AttentionItem& item = *unit.item;
  key += tile * kStreamRows;
  const std::byte* keys[kFetchStreams][kStreamRows];
  const std::byte* values[kFetchStreams][kStreamRows];
  uint32_t counts[kFetchStreams] = {};
  for (uint32_t stream = 0; stream < kFetchStreams && key < item.end_key; ++stream) {
    counts[stream] = static_cast<uint32_t>(std::min<uint64_t>(kStreamRows, item.end_key - key));
    FindTokens(call_, item.sequence, unit.kv_head, static_cast<uint32_t>(key), counts[stream],
               keys[stream], values[stream]);
    key += kTileTokens;
  }
  const bool has_values = call_.params.kv.values != call_.params.kv.keys;
  for (uint32_t row = 0; row < kStreamRows; ++row) {
    for (uint32_t stream = 0; stream < kFetchStreams; ++stream) {
      if (row >= counts[stream]) continue;
      next_rows_[tile_.num_next_rows++] = keys[stream][row];
      if (has_values) next_rows_[tile_.num_next_rows++] = values[stream][row];
    }
  }
}

void DecodeUnit::FetchFirst() {
  const AttentionItem& item = *unit_.item;
  const KvLayer& kv = call_.params.kv;
  const uint64_t key_bytes = kv.head_dim * ElementBytes(kv.type);
  const uint64_t value_bytes = call_.value_dim() * ElementBytes(kv.type);
  const uint32_t end = std::min(item.end_key, item.first_key + kFetchTokens);
  for (uint32_t key = item.first_key; key < end; key += kTileTokens) {
    const uint32_t count = std::min(kTileTokens, end - key);
    FindTokens(call_, item.sequence, unit_.kv_head, key, count, keys_, values_);
    for (uint32_t t = 0; t < count; ++t) {
      for (uint64_t i = 0; i < key_bytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(keys_[t] + i), _MM_HINT_T1);
      }
      for (uint64_t i = 0; i < value_bytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(values_[t] + i), _MM_HINT_T1);
      }
    }
  }
}

void DecodeUnit::Finish() {
  for (uint32_t r = 0; r < num_rows_; ++r) {
    Restore(kernels_.sum_order, kernels_.lanes, sums_ + uint64_t{r} * sum_stride_,
            call_.value_dim(), natural_);
    StoreRow(call_, *unit_.item, r / group_, unit_.kv_head * group_ + r % group_,
             {.largest = largest_[r], .weight_sum = weight_sums_[r], .sums = natural_});
  }
}

}  // namespace pagoda::kernels::cpu
