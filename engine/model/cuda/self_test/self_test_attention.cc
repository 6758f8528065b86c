#include "engine/model/cuda/self_test/self_test_attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/model/cuda/self_test/self_test_kv.h"
#include "kernels/attention_plan.h"
#include "kernels/paged_attention.h"

namespace pagoda::cuda {
namespace {

using kernels::AttentionPlan;
using kernels::ElementBytes;
using kernels::ElementType;
using kernels::KvLayer;
using kernels::PagedAttentionParams;
using kernels::cuda::AttentionFamily;
using kernels::cuda::AttentionKernels;
using kernels::cuda::kShortRows;

// The number of different layers of a model that are tested.
constexpr size_t kMostLayers = 3;
// Windows are cut to this length, so that the short contexts here reach beyond them.
constexpr uint32_t kMostWindow = 90;
// Several tiles of keys for every kernel; the last one is not full.
constexpr int32_t kLongContext = 276;
// Decode's contexts are cut at multiples of this, so that partial results are merged.
constexpr uint32_t kSplitTokens = 64;
constexpr uint32_t kTimedSequences = 16;
constexpr uint32_t kTimedQueries = 512;
constexpr uint32_t kMostTimedTokens = 1 << 15;

const char* NameOf(AttentionFamily family) {
  switch (family) {
    case AttentionFamily::kGeneric:
      break;
    case AttentionFamily::kSm80:
      return kFamilySm80;
    case AttentionFamily::kHopper:
      return kFamilyHopper;
    case AttentionFamily::kLatent:
      return "latent";
  }
  return kFamilyGeneric;
}

double ToleranceFor(ElementType kv_type) {
  if (kv_type == ElementType::kBFloat16 || kernels::IsFloat8(kv_type)) return 1e-2;
  return kv_type == ElementType::kFloat16 ? 2e-3 : 1e-4;
}

// The backend chooses the same type (device_backend.cc).
ElementType QueryTypeFor(ElementType kv_type) {
  if (kernels::IsFloat8(kv_type)) return ElementType::kBFloat16;
  return kv_type == ElementType::kFloat16 || kv_type == ElementType::kBFloat16
             ? kv_type
             : ElementType::kFloat32;
}

struct Lengths {
  int32_t queries = 1;
  int32_t context = 1;
};

// One call of attention. The arrays are in host memory.
struct Call {
  LayerConfig layer;
  uint32_t num_heads = 0;
  float scale = 1;
  float soft_cap = 0;
  std::vector<float> alibi_slopes;  // [num_heads], or none.
  std::vector<float> sinks;         // [num_heads], or none.
  kernels::AttentionMask mask;
  ElementType query_type = ElementType::kFloat32;
  KvLayer kv;  // Without pointers.
  std::vector<int32_t> query_starts = {0};
  std::vector<int32_t> contexts;
  std::vector<int32_t> tables;  // Slots in descending order.
  uint64_t table_stride = 0;

  uint64_t num_queries() const { return static_cast<uint64_t>(query_starts.back()); }
  uint64_t query_elements() const { return num_queries() * num_heads * kv.head_dim; }
  uint64_t output_elements() const { return num_queries() * num_heads * kv.value_elements(); }
  uint64_t pool_bytes() const { return kv.num_slots * kv.slot_stride_bytes; }
  kernels::PlanShape plan_shape() const {
    return {.query_starts = query_starts,
            .context_lengths = contexts,
            .mask = mask,
            .num_kv_heads = kv.num_kv_heads};
  }
};

Call MakeCall(const GpuSelfTestRequest& request, const LayerConfig& layer, uint32_t num_kv_heads,
              const std::vector<Lengths>& lengths) {
  const ModelConfig& config = request.config;
  const auto block = static_cast<int32_t>(request.tokens_per_block);
  Call call = {.layer = layer,
               .num_heads = config.num_heads / layer.num_kv_heads * num_kv_heads,
               .scale = config.query_scale,
               .soft_cap = config.attention_soft_cap,
               .query_type = QueryTypeFor(request.kv_type)};
  if (config.alibi) call.alibi_slopes = AlibiSlopes(call.num_heads);
  // The sinks are as large as the scores.
  if (config.attention_sinks) call.sinks = TestNumbers(10).Many(call.num_heads, 3);
  if (layer.window != kFullAttention) call.mask.window_tokens = layer.window.value();
  uint32_t slots = 0;
  for (const Lengths& l : lengths) {
    call.query_starts.push_back(call.query_starts.back() + l.queries);
    call.contexts.push_back(l.context);
    const auto blocks = static_cast<uint32_t>((l.context + block - 1) / block);
    call.table_stride = std::max<uint64_t>(call.table_stride, blocks + 1);
    slots += blocks;
  }
  call.kv = MakeKv(layer, request.kv_type, num_kv_heads, config.head_dim, request.tokens_per_block,
                   slots);
  call.tables.assign(lengths.size() * call.table_stride, -1);
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (int32_t b = 0; b * block < lengths[s].context; ++b) {
      call.tables[s * call.table_stride + b] = static_cast<int32_t>(--slots);
    }
  }
  return call;
}

// Null for an empty array.
const float* DataOf(const std::vector<float>& numbers) {
  return numbers.empty() ? nullptr : numbers.data();
}

PagedAttentionParams ParamsOf(const Call& call) {
  return {.query_type = call.query_type,
          .query_token_stride = uint64_t{call.num_heads} * call.kv.head_dim,
          .output_token_stride = uint64_t{call.num_heads} * call.kv.value_elements(),
          .num_heads = call.num_heads,
          .scale = call.scale,
          .soft_cap = call.soft_cap,
          .alibi_slopes = DataOf(call.alibi_slopes),
          .sink_logits = DataOf(call.sinks),
          .mask = call.mask,
          .query_starts = call.query_starts,
          .context_lengths = call.contexts,
          .block_tables = call.tables,
          .block_table_stride = call.table_stride,
          .kv = call.kv};
}

// A call with its data and the expected result.
struct Problem {
  Call call;
  std::vector<std::byte> pool;  // NaN where there is no token.
  std::vector<std::byte> queries;
  std::vector<double> expected;  // [N][num_heads][value_dim]
};

Problem Solve(Call call) {
  Problem problem{.call = std::move(call), .pool = {}, .queries = {}, .expected = {}};
  const Call& c = problem.call;
  TestNumbers numbers(1);
  problem.pool.assign(c.pool_bytes(), std::byte{0xff});
  KvLayer kv = c.kv;
  const std::vector<float> scales = MakeScales(c.layer, kv);
  PlaceKv(c.layer, problem.pool.data(), kv);
  PlaceScales(c.layer, scales.data(), kv);
  for (size_t s = 0; s < c.contexts.size(); ++s) {
    for (uint32_t t = 0; t < static_cast<uint32_t>(c.contexts[s]); ++t) {
      const auto slot =
          static_cast<uint32_t>(c.tables[s * c.table_stride + t / kv.tokens_per_block]);
      for (uint32_t h = 0; h < kv.num_kv_heads; ++h) {
        const uint64_t offset = kv.offset_bytes(slot, h, t % kv.tokens_per_block);
        for (uint64_t i = 0; i < kv.token_stride_bytes; i += ElementBytes(kv.type)) {
          Store(kv.type, kv.keys + offset + i, numbers.Next(1));
          // With K only, this is the same element once more.
          Store(kv.type, kv.values + offset + i, numbers.Next(1));
        }
      }
    }
  }
  // Large enough that the weights differ, and small enough that several of them matter.
  const float range = 6 / (c.scale * std::sqrt(static_cast<float>(kv.head_dim)));
  problem.queries.resize(c.query_elements() * ElementBytes(c.query_type));
  std::vector<float> queries(c.query_elements());
  for (uint64_t i = 0; i < queries.size(); ++i) {
    queries[i] = Store(c.query_type, problem.queries.data() + i * ElementBytes(c.query_type),
                       numbers.Next(range));
  }
  std::vector<float> outputs(c.output_elements());
  PagedAttentionParams params = ParamsOf(c);
  params.query = queries.data();
  params.output = outputs.data();
  params.query_type = ElementType::kFloat32;
  params.kv = kv;
  // If the reference refuses the call, no result counts as right.
  if (!kernels::reference::PagedAttention(params).ok()) outputs.clear();
  problem.expected.assign(outputs.begin(), outputs.end());
  return problem;
}

// A call on the device: its arguments, and how to start it.
struct Launched {
  PagedAttentionParams params;
  kernels::cuda::AttentionExecution execution;
};

Launched Bring(TestBed& bed, const Call& call, const AttentionPlan& plan, std::byte* pool,
               void* queries, void* outputs, AttentionKernels asked) {
  const kernels::cuda::PlanCapacity capacity = kernels::cuda::CapacityFor(plan, call.num_heads);
  std::vector<std::byte> encoded(kernels::cuda::PlanBytes(capacity));
  bed.Keep([&] {
    return kernels::cuda::EncodePlan(plan, call.num_heads, capacity, absl::MakeSpan(encoded));
  });
  const uint64_t workspace =
      kernels::cuda::WorkspaceBytes(capacity, call.num_heads, call.kv.value_elements());
  Launched launched{.params = ParamsOf(call), .execution = {}};
  PagedAttentionParams& params = launched.params;
  params.query = queries;
  params.output = outputs;
  params.query_starts = {bed.Bring(call.query_starts), call.query_starts.size()};
  params.context_lengths = {bed.Bring(call.contexts), call.contexts.size()};
  params.block_tables = {bed.Bring(call.tables), call.tables.size()};
  if (!call.alibi_slopes.empty()) params.alibi_slopes = bed.Bring(call.alibi_slopes);
  if (!call.sinks.empty()) params.sink_logits = bed.Bring(call.sinks);
  PlaceKv(call.layer, pool, params.kv);
  PlaceScales(call.layer, bed.Bring(MakeScales(call.layer, call.kv)), params.kv);
  launched.execution = {.stream = bed.stream(),
                        .plan = bed.Bring(encoded),
                        .capacity = capacity,
                        .workspace = bed.Allocate<std::byte>(workspace),
                        .workspace_bytes = workspace,
                        .kernels = asked};
  return launched;
}

// Decode tests short items, prefill long ones.
enum class Kind : uint8_t { kDecode, kPrefill };

AttentionPlan PlanFor(const Call& call, Kind kind, const ComputeDevice& device) {
  const uint32_t group = call.num_heads / call.kv.num_kv_heads;
  if (kind == Kind::kPrefill) {
    return kernels::cuda::PlanForCuda(call.plan_shape(), call.num_heads,
                                      {.num_multiprocessors = device.num_multiprocessors()});
  }
  const uint32_t tokens = std::max(1u, kShortRows / group);
  return kernels::PlanAttention(
      call.plan_shape(),
      {.query_tokens = tokens, .split_tokens = kSplitTokens, .split_query_tokens = tokens});
}

double ErrorOf(TestBed& bed, const TestedKernels& kernels, const Problem& problem, Kind kind,
               AttentionKernels asked) {
  const Call& call = problem.call;
  std::byte* const pool = bed.Bring(problem.pool);
  std::byte* const queries = bed.Bring(problem.queries);
  const uint64_t output_bytes = call.output_elements() * ElementBytes(call.query_type);
  std::byte* const outputs = bed.Bring(std::vector<std::byte>(output_bytes, std::byte{0xff}));
  if (!bed.status().ok()) return 0;
  const Launched launched =
      Bring(bed, call, PlanFor(call, kind, bed.device()), pool, queries, outputs, asked);
  bed.Keep([&] { return kernels.attention(launched.params, launched.execution); });
  const std::vector<std::byte> result = bed.Take(outputs, output_bytes);
  if (!bed.status().ok()) return 0;
  return RowError(FloatsOf(call.query_type, result), problem.expected, call.kv.value_elements());
}

// Uses uninitialised memory, because the time of attention does not depend on the numbers.
double SecondsOf(TestBed& bed, const TestedKernels& kernels, const GpuSelfTestRequest& request,
                 const LayerConfig& layer, Kind kind, AttentionKernels asked) {
  const uint64_t token_bytes = kLayersOfSlot * PartsOf(layer) * layer.num_kv_heads *
                               request.config.head_dim * ElementBytes(request.kv_type);
  const auto tokens = static_cast<int32_t>(
      std::clamp<uint64_t>(request.timing_bytes / token_bytes, kTimedSequences, kMostTimedTokens));
  std::vector<Lengths> lengths(kTimedSequences,
                               {.queries = 1, .context = tokens / int32_t{kTimedSequences}});
  if (kind == Kind::kPrefill) {
    const int32_t queries = std::min<int32_t>(kTimedQueries, tokens);
    lengths = {{.queries = queries, .context = std::min(tokens, 4 * queries)}};
  }
  const Call call = MakeCall(request, layer, layer.num_kv_heads, lengths);
  const uint64_t element_bytes = ElementBytes(call.query_type);
  auto* const pool = bed.Allocate<std::byte>(call.pool_bytes());
  auto* const queries = bed.Allocate<std::byte>(call.query_elements() * element_bytes);
  auto* const outputs = bed.Allocate<std::byte>(call.output_elements() * element_bytes);
  if (!bed.status().ok()) return 0;
  const AttentionPlan plan =
      kernels::cuda::PlanForCuda(call.plan_shape(), call.num_heads,
                                 {.num_multiprocessors = bed.device().num_multiprocessors()});
  const Launched launched = Bring(bed, call, plan, pool, queries, outputs, asked);
  return bed.SecondsOf([&] { return kernels.attention(launched.params, launched.execution); });
}

// The first layers that differ in properties that kernels depend on.
std::vector<LayerConfig> LayersOf(const ModelConfig& config) {
  std::vector<LayerConfig> layers;
  for (const LayerConfig& layer : config.layers) {
    const bool seen = std::any_of(layers.begin(), layers.end(), [&](const LayerConfig& other) {
      return other.window == layer.window && other.num_kv_heads == layer.num_kv_heads &&
             other.kind == layer.kind && other.value_dim == layer.value_dim;
    });
    if (!seen && layers.size() < kMostLayers) layers.push_back(layer);
  }
  return layers;
}

std::vector<Lengths> LengthsFor(Kind kind, uint32_t group) {
  if (kind == Kind::kPrefill) {
    // More rows than the tile of any kernel, and few for the plain loops on the host.
    const auto queries = static_cast<int32_t>(std::max(group > kShortRows ? 3u : 24u, 160 / group));
    std::vector<Lengths> lengths = {{queries, queries + kLongContext}, {17, 17}};
    // With this many rows, decode is such an item too.
    if (group > kShortRows) lengths = {{queries, queries + kLongContext}, {5, 5}, {1, 90}};
    return lengths;
  }
  std::vector<Lengths> lengths = {{1, kLongContext}, {1, 64}, {1, 7}};
  if (2 * group <= kShortRows) lengths.push_back({2, 50});  // A token and its draft token.
  return lengths;
}

// Owned by the items of several families.
using Problems = std::shared_ptr<const std::vector<Problem>>;

Problems ProblemsFor(const GpuSelfTestRequest& request, Kind kind) {
  auto problems = std::make_shared<std::vector<Problem>>();
  for (LayerConfig layer : LayersOf(request.config)) {
    const uint32_t group = request.config.num_heads / layer.num_kv_heads;
    if (kind == Kind::kDecode && group > kShortRows) continue;
    if (layer.window != kFullAttention && layer.window.value() > kMostWindow) {
      layer.window = WindowSize(kMostWindow);
    }
    problems->push_back(Solve(MakeCall(request, layer, std::min(layer.num_kv_heads, kMostKvHeads),
                                       LengthsFor(kind, group))));
  }
  return problems;
}

std::vector<AttentionKernels> AskedFor(GpuAttention attention) {
  switch (attention) {
    case GpuAttention::kAuto:
      break;
    case GpuAttention::kSm80:
      return {AttentionKernels::kSm80};
    case GpuAttention::kHopper:
      return {AttentionKernels::kHopper};
  }
  // In the order of preference.
  return {AttentionKernels::kSm80, AttentionKernels::kHopper, AttentionKernels::kGeneric};
}

AttentionFamily FamilyOf(Problem& problem, Kind kind, AttentionKernels asked) {
  PagedAttentionParams params = ParamsOf(problem.call);
  // The host's memory has the same alignment as the device's.
  PlaceKv(problem.call.layer, problem.pool.data(), params.kv);
  params.query = params.output = problem.pool.data();
  return kind == Kind::kDecode ? kernels::cuda::FamilyOf(params, asked)
                               : kernels::cuda::FamilyOfLongItems(params, asked);
}

}  // namespace

std::vector<SelfTestItem> AttentionItems(const GpuSelfTestRequest& request,
                                         const TestedKernels& kernels) {
  std::vector<SelfTestItem> items;
  for (const Kind kind : {Kind::kDecode, Kind::kPrefill}) {
    const Problems problems = ProblemsFor(request, kind);
    if (problems->empty()) continue;
    std::vector<AttentionFamily> families;
    for (const AttentionKernels asked : AskedFor(request.attention)) {
      Problem first = problems->front();
      const AttentionFamily family = FamilyOf(first, kind, asked);
      // For these types and shapes, the requested family falls back to one that is already in the
      // list.
      if (std::find(families.begin(), families.end(), family) != families.end()) continue;
      families.push_back(family);
      const bool timed = family != AttentionFamily::kGeneric;
      items.push_back({.part = kind == Kind::kDecode ? kAttentionDecode : kAttentionPrefill,
                       .family = NameOf(family),
                       .tolerance = ToleranceFor(request.kv_type),
                       .test = [&request, &kernels, problems, kind, asked, timed](TestBed& bed) {
                         Measured measured;
                         for (const Problem& problem : *problems) {
                           measured.error = std::max(measured.error,
                                                     ErrorOf(bed, kernels, problem, kind, asked));
                         }
                         if (timed) {
                           measured.seconds = SecondsOf(bed, kernels, request,
                                                        request.config.layers.front(), kind, asked);
                         }
                         return measured;
                       }});
    }
  }
  return items;
}

}  // namespace pagoda::cuda
