#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/attention/tile_unit.h"
#include "kernels/numeric.h"

namespace pagoda::kernels::cpu {
namespace {

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

uint32_t RoundUp(uint32_t number, uint32_t granule) {
  return (number + granule - 1) / granule * granule;
}

// Rounds rows up to whole blocks.
uint32_t BlockRows(const TileKernels& kernels, uint32_t rows) {
  return RoundUp(rows, kernels.block_rows);
}

}  // namespace

PrefillUnit::PrefillUnit(const AttentionCall& call, ScratchCutter& scratch)
    : call_(call),
      kernels_(*call.kernels),
      group_(call.group()),
      sum_stride_(WholeSteps(call.value_dim())),
      block_bytes_(kernels_.block_rows * call.params.kv.head_dim *
                   (kernels_.bf16 ? sizeof(BFloat16) : sizeof(float))) {
  const uint32_t head_dim = call.params.kv.head_dim;
  const uint32_t rows = BlockRows(kernels_, kMostRows);
  keys_ = scratch.Take<const std::byte*>(kPackTokens);
  values_ = scratch.Take<const std::byte*>(kPackTokens);
  const uint32_t scales = call.params.kv.scales.per_slot() ? kPackTokens : 0;
  key_scales_ = scratch.Take<float>(scales);
  value_scales_ = scratch.Take<float>(scales);
  if (scales == 0) key_scales_ = value_scales_ = nullptr;
  visible_ = scratch.Take<uint32_t>(uint64_t{rows} * kPackWords);
  zeros_ = scratch.Take<std::byte>(RoundUp(head_dim, 32) * sizeof(float));
  queries_ = scratch.Take<std::byte>(uint64_t{rows} / kernels_.block_rows * block_bytes_);
  natural_ = scratch.Take<float>(head_dim);
  key_pack_ = scratch.Take<std::byte>(uint64_t{kPackTokens} * head_dim * sizeof(float));
  value_pack_ = scratch.Take<std::byte>(uint64_t{kPackTokens} * sum_stride_ * sizeof(float));
  kernel_scratch_ = scratch.Take<std::byte>(kernels_.scratch_bytes);
  sums_ = scratch.Take<float>(uint64_t{rows} * sum_stride_);
  largest_ = scratch.Take<float>(rows);
  weight_sums_ = scratch.Take<float>(rows);
  slopes_ = scratch.Take<float>(rows);
  biases_ = scratch.Take<float>(rows);
}

void PrefillUnit::Run(const AttentionUnit& unit) {
  unit_ = unit;
  rule_ = RuleOf(call_.params, unit.kv_head);
  const uint32_t rows = unit.item->num_queries * group_;
  for (uint32_t first = 0; first < rows; first += kMostRows) {
    Attend(first, std::min(kMostRows, rows - first));
  }
}

void PrefillUnit::Attend(uint32_t first_row, uint32_t num_rows) {
  first_row_ = first_row;
  num_rows_ = num_rows;
  Start();
  const AttentionItem& item = *unit_.item;
  const int64_t first_position = PositionOfRow(0);
  const int64_t last_position = PositionOfRow(num_rows_ - 1);
  for (uint32_t key = item.first_key; key < item.end_key;) {
    const uint32_t count = std::min(kPackTokens, item.end_key - key);
    if (MaySee(call_.params.mask, first_position, last_position, key, int64_t{key} + count - 1)) {
      AttendPack(key, count);
    }
    key += count;
  }
  Finish();
}

void PrefillUnit::Start() {
  const PagedAttentionParams& params = call_.params;
  const uint32_t rows = BlockRows(kernels_, num_rows_);
  std::fill_n(zeros_, RoundUp(params.kv.head_dim, 32) * sizeof(float), std::byte{0});
  std::fill_n(queries_, uint64_t{rows} / kernels_.block_rows * block_bytes_, std::byte{0});
  std::fill_n(sums_, uint64_t{rows} * sum_stride_, 0.0f);
  std::fill_n(largest_, rows, kUnseen);
  std::fill_n(weight_sums_, rows, 0.0f);
  std::fill_n(slopes_, rows, 0.0f);
  std::fill_n(biases_, rows, 0.0f);
  for (uint32_t r = 0; r < num_rows_; ++r) {
    PackQuery(r);
    if (params.alibi_slopes != nullptr) slopes_[r] = params.alibi_slopes[HeadOf(r)] * kLog2E;
  }
}

void PrefillUnit::PackQuery(uint32_t row) {
  const uint32_t block_rows = kernels_.block_rows;
  const uint32_t head_dim = call_.params.kv.head_dim;
  std::byte* block = queries_ + uint64_t{row} / block_rows * block_bytes_;
  const uint32_t r = row % block_rows;
  if (kernels_.bf16) {
    auto* query = reinterpret_cast<BFloat16*>(natural_);
    LoadQuery(call_, *unit_.item, QueryOf(row), HeadOf(row), query);
    constexpr uint32_t kPairBytes = 2 * sizeof(BFloat16);
    for (uint32_t pair = 0; pair < head_dim / 2; ++pair) {
      std::memcpy(block + (pair * block_rows + r) * kPairBytes, query + 2 * pair, kPairBytes);
    }
  } else {
    LoadQuery(call_, *unit_.item, QueryOf(row), HeadOf(row), natural_);
    auto* out = reinterpret_cast<float*>(block) + r;
    for (uint32_t i = 0; i < head_dim; ++i) out[i * block_rows] = natural_[i];
  }
}

void PrefillUnit::AttendPack(uint32_t first_key, uint32_t count) {
  // Padding behind the last tokens is hidden like masked tokens.
  const bool all_seen = count % kTileTokens == 0 &&
                        SeesAll(call_.params.mask, PositionOfRow(0), PositionOfRow(num_rows_ - 1),
                                first_key, int64_t{first_key} + count - 1);
  const uint32_t tokens = Pack(first_key, count, all_seen);
  if (tokens == 0) return;
  for (uint32_t row = 0; row < num_rows_; row += kernels_.block_rows) {
    AttendBlock(row, first_key, count, tokens);
  }
}

// Finds which of the pack's tokens each row sees, in `words` words.
void PrefillUnit::FindVisible(uint32_t first_key, uint32_t count, uint32_t words) {
  const AttentionMask& mask = call_.params.mask;
  const bool heads_differ = mask.sparsity.block_tokens != 0;
  for (uint32_t r = 0; r < num_rows_; ++r) {
    uint32_t* row = visible_ + uint64_t{r} * kPackWords;
    if (r > 0 && !heads_differ && QueryOf(r) == QueryOf(r - 1)) {
      std::copy_n(row - kPackWords, words, row);
      continue;
    }
    for (uint32_t w = 0; w < words; ++w) {
      row[w] = VisibleWord(mask, HeadOf(r), PositionOfRow(r), int64_t{first_key} + w * kTileTokens,
                           int64_t{first_key} + count);
    }
  }
}

// Packs the tokens that some row sees. Returns the padded number of tokens, 0 if none is seen.
uint32_t PrefillUnit::Pack(uint32_t first_key, uint32_t count, bool all_seen) {
  const AttentionItem& item = *unit_.item;
  FindTokens(call_, item.sequence, unit_.kv_head, first_key, count, keys_, values_);
  uint32_t tokens = RoundUp(count, kTileTokens);
  uint32_t seen[kPackWords] = {};
  if (!all_seen) {
    FindVisible(first_key, count, tokens / kTileTokens);
    for (uint32_t r = 0; r < num_rows_; ++r) {
      for (uint32_t w = 0; w < tokens / kTileTokens; ++w) seen[w] |= visible_[r * kPackWords + w];
    }
    // Also prevents that unseen tokens make the values infinite.
    for (uint32_t t = 0; t < tokens; ++t) {
      if ((seen[t / kTileTokens] >> (t % kTileTokens) & 1) != 0) continue;
      keys_[t] = zeros_;
      values_[t] = zeros_;
    }
    while (tokens > 0 && seen[tokens / kTileTokens - 1] == 0) tokens -= kTileTokens;
    if (tokens == 0) return 0;
  }
  kernels_.pack_keys(keys_, tokens, call_.params.kv.head_dim, key_pack_);
  finite_values_ = kernels_.pack_values(values_, tokens, call_.value_dim(), value_pack_);
  if (key_scales_ != nullptr) FindPackScales(first_key, count, all_seen ? nullptr : seen);
  return tokens;
}

void PrefillUnit::FindPackScales(uint32_t first_key, uint32_t count, const uint32_t* seen) {
  FindScales(call_, unit_.item->sequence, unit_.kv_head, first_key, count, seen, key_scales_,
             value_scales_);
  std::fill(key_scales_ + count, key_scales_ + kPackTokens, 1.0f);
  std::fill(value_scales_ + count, value_scales_ + kPackTokens, 1.0f);
  for (uint32_t t = 0; t < count; ++t) finite_values_ &= std::isfinite(value_scales_[t]);
}

// Computes the block of rows that begins at `row`.
void PrefillUnit::AttendBlock(uint32_t row, uint32_t first_key, uint32_t count, uint32_t tokens) {
  const AttentionMask& mask = call_.params.mask;
  const uint32_t end_row = std::min(row + kernels_.block_rows, num_rows_);
  const int64_t first_position = PositionOfRow(row);
  const int64_t last_position = PositionOfRow(end_row - 1);
  // No row of the block sees tokens before `first` or from `end` on.
  uint32_t first = 0, end = tokens;
  const auto hidden = [&](uint32_t t) {
    const int64_t key = int64_t{first_key} + t;
    return !MaySee(mask, first_position, last_position, key, key + kTileTokens - 1);
  };
  while (first < end && hidden(first)) first += kTileTokens;
  while (first < end && hidden(end - kTileTokens)) end -= kTileTokens;
  if (first == end) return;

  const bool all_seen =
      end <= count && SeesAll(mask, first_position, last_position, int64_t{first_key} + first,
                              int64_t{first_key} + end - 1);
  uint32_t* visible = nullptr;
  if (!all_seen) {
    visible = visible_ + uint64_t{row} * kPackWords;
    // Unused rows see nothing.
    for (uint32_t r = end_row; r < row + kernels_.block_rows; ++r) {
      std::fill_n(visible_ + r * kPackWords, kPackWords, 0u);
    }
  }
  const bool biased = call_.params.alibi_slopes != nullptr;
  if (biased) {
    for (uint32_t r = row; r < end_row; ++r) {
      biases_[r] = slopes_[r] * static_cast<float>(int64_t{first_key} + first - PositionOfRow(r));
    }
  }
  kernels_.prefill({.queries = queries_ + uint64_t{row} / kernels_.block_rows * block_bytes_,
                    .keys = key_pack_,
                    .values = value_pack_,
                    .first_token = first,
                    .end_token = end,
                    .visible = visible,
                    .key_scales = key_scales_,
                    .value_scales = value_scales_,
                    .select_values = !finite_values_,
                    .head_dim = call_.params.kv.head_dim,
                    .value_dim = call_.value_dim(),
                    .rule = rule_,
                    .rows = {.largest = largest_ + row,
                             .weight_sums = weight_sums_ + row,
                             .sums = sums_ + uint64_t{row} * sum_stride_,
                             .sum_stride = sum_stride_,
                             .first_biases = biased ? biases_ + row : nullptr,
                             .biases_per_token = biased ? slopes_ + row : nullptr},
                    .scratch = kernel_scratch_});
}

void PrefillUnit::Finish() {
  for (uint32_t r = 0; r < num_rows_; ++r) {
    StoreRow(call_, *unit_.item, QueryOf(r), HeadOf(r),
             {.largest = largest_[r],
              .weight_sum = weight_sums_[r],
              .sums = sums_ + uint64_t{r} * sum_stride_});
  }
}

}  // namespace pagoda::kernels::cpu
