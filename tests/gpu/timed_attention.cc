#include "tests/gpu/timed_attention.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

#include "tests/gpu/gpu_timer.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda::kernels::cuda {
namespace {

constexpr uint64_t kColdBytes = uint64_t{256} << 20;  // More than any L2.

uint64_t Blocks(const AttentionBatch& batch) {  // The blocks of the longest sequence.
  const std::vector<int32_t> contexts = batch.contexts();
  const auto longest = static_cast<uint32_t>(*std::max_element(contexts.begin(), contexts.end()));
  return (longest + batch.tokens_per_block - 1) / batch.tokens_per_block;
}

std::vector<int32_t> QueryStarts(const AttentionBatch& batch) {
  std::vector<int32_t> starts(batch.sequences + 1);
  for (uint32_t s = 0; s <= batch.sequences; ++s) {
    starts[s] = static_cast<int32_t>(s) * batch.queries;
  }
  return starts;
}

AttentionPlan PlanOf(const AttentionBatch& batch, const std::vector<int32_t>& starts,
                     const std::vector<int32_t>& contexts, uint32_t multiprocessors) {
  return PlanForCuda({.query_starts = starts,
                      .context_lengths = contexts,
                      .mask = {},
                      .num_kv_heads = batch.num_kv_heads},
                     batch.num_heads, {.num_multiprocessors = multiprocessors});
}

uint16_t BFloat16Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

void FillRandom(std::byte* memory, uint64_t bytes, ElementType type) {
  constexpr uint64_t kPieceBytes = uint64_t{8} << 20;
  std::mt19937 random(1);
  std::vector<std::byte> piece(std::min(kPieceBytes, bytes));
  if (IsFloat8(type)) {
    // Without the largest exponents, so without NaN and infinity.
    for (std::byte& element : piece) element = static_cast<std::byte>(random() & 0xbf);
  } else {
    std::normal_distribution<float> normal;
    for (uint64_t i = 0; i + 2 <= piece.size(); i += 2) {
      const uint16_t bits = BFloat16Bits(normal(random));
      std::memcpy(&piece[i], &bits, sizeof(bits));
    }
  }
  for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
    CopyToDevice(memory + at, piece.data(), std::min(kPieceBytes, bytes - at));
  }
}

std::vector<int32_t> AttentionBatch::contexts() const {
  std::vector<int32_t> result(sequences, context);
  if (lengths == Lengths::kEqual) return result;
  for (uint32_t s = 0; s < sequences; ++s) {
    const auto length = static_cast<int32_t>(int64_t{2} * context * (s + 1) / (sequences + 1));
    result[s] = std::max(length, queries);
  }
  std::shuffle(result.begin(), result.end(), std::mt19937(5));
  return result;
}

uint64_t AttentionBatch::kv_bytes() const {
  const std::vector<int32_t> each = contexts();
  const uint64_t tokens = std::accumulate(each.begin(), each.end(), uint64_t{0});
  return tokens * num_kv_heads * head_dim * parts() * ElementBytes(type);
}

double AttentionSeconds(const AttentionBatch& batch, uint32_t multiprocessors,
                        AttentionKernels kernels) {
  const uint64_t blocks = Blocks(batch);
  const int rounds =
      static_cast<int>(std::clamp<uint64_t>(kColdBytes / batch.kv_bytes() + 1, 3, 64));
  const uint64_t slots = uint64_t(rounds) * batch.sequences * blocks;
  KvLayer kv = {.type = batch.type,
                .num_slots = static_cast<uint32_t>(slots),
                .num_kv_heads = batch.num_kv_heads,
                .tokens_per_block = batch.tokens_per_block,
                .head_dim = batch.head_dim,
                .value_dim = batch.value_dim};
  kv.token_stride_bytes = batch.head_dim * ElementBytes(batch.type);
  kv.head_stride_bytes = kv.token_stride_bytes * batch.tokens_per_block;
  kv.slot_stride_bytes = batch.parts() * kv.head_stride_bytes * batch.num_kv_heads;
  DeviceArray<std::byte> pool(kv.slot_stride_bytes * slots);
  FillRandom(pool.data(), pool.size(), batch.type);
  kv.keys = pool.data();
  kv.values = pool.data() + (batch.parts() - 1) * kv.head_stride_bytes * batch.num_kv_heads;

  std::vector<int32_t> order(slots);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(2));
  DeviceArray<int32_t> tables(order);
  const std::vector<int32_t> starts = QueryStarts(batch);
  const std::vector<int32_t> contexts = batch.contexts();
  DeviceArray<int32_t> device_starts(starts);
  DeviceArray<int32_t> device_contexts(contexts);
  const uint64_t row = uint64_t{batch.num_heads} * batch.head_dim;
  const uint64_t output_row = uint64_t{batch.num_heads} * batch.value_elements();
  DeviceArray<std::byte> query(starts.back() * row * 2);
  DeviceArray<std::byte> output(starts.back() * output_row * 2);
  FillRandom(query.data(), query.size());

  const AttentionPlan plan = PlanOf(batch, starts, contexts, multiprocessors);
  const PlanCapacity capacity = CapacityFor(plan, batch.num_heads);
  DeviceArray<std::byte> device_plan(PlanBytes(capacity));
  DeviceArray<std::byte> workspace(
      WorkspaceBytes(capacity, batch.num_heads, batch.value_elements()));
  Require(CopyPlan(plan, batch.num_heads, capacity, device_plan.data(), nullptr));
  PagedAttentionParams params = {.query = query.data(),
                                 .output = output.data(),
                                 .query_type = ElementType::kBFloat16,
                                 .query_token_stride = row,
                                 .output_token_stride = output_row,
                                 .num_heads = batch.num_heads,
                                 .scale = 1.0f / std::sqrt(static_cast<float>(batch.head_dim)),
                                 .query_starts = device_starts.span(),
                                 .context_lengths = device_contexts.span(),
                                 .block_table_stride = blocks,
                                 .kv = kv};
  return GraphSeconds(rounds, [&](Stream stream, int round) {
    const uint64_t entries = batch.sequences * blocks;
    params.block_tables = absl::MakeConstSpan(tables.data() + round * entries, entries);
    Require(PagedAttention(params, {.stream = stream,
                                    .plan = device_plan.data(),
                                    .capacity = capacity,
                                    .workspace = workspace.data(),
                                    .workspace_bytes = workspace.size(),
                                    .kernels = kernels}));
  });
}

PlanSeconds TimePlan(const AttentionBatch& batch, uint32_t multiprocessors) {
  constexpr int kRepetitions = 101;
  const std::vector<int32_t> starts = QueryStarts(batch);
  const std::vector<int32_t> contexts = batch.contexts();
  const PlanCapacity capacity =
      CapacityFor(PlanOf(batch, starts, contexts, multiprocessors), batch.num_heads);
  DeviceArray<std::byte> device_plan(PlanBytes(capacity));
  std::vector<double> plans, uploads;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto begun = std::chrono::steady_clock::now();
    const AttentionPlan plan = PlanOf(batch, starts, contexts, multiprocessors);
    const auto planned = std::chrono::steady_clock::now();
    Require(CopyPlan(plan, batch.num_heads, capacity, device_plan.data(), nullptr));
    if (cudaStreamSynchronize(nullptr) != cudaSuccess) Require(absl::InternalError("the upload"));
    const auto uploaded = std::chrono::steady_clock::now();
    plans.push_back(std::chrono::duration<double>(planned - begun).count());
    uploads.push_back(std::chrono::duration<double>(uploaded - planned).count());
  }
  const auto median = [](std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + kRepetitions / 2, values.end());
    return values[kRepetitions / 2];
  };
  return {median(plans), median(uploads)};
}

}  // namespace pagoda::kernels::cuda
