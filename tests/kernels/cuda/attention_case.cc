#include "tests/kernels/cuda/attention_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cuda/device/tensor_map.h"
#include "kernels/numeric.h"

namespace pagoda::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void Store(ElementType type, std::byte* at, float value) {
  VisitElementType(type, [&]<class T>() {
    const T element = FromFloat<T>(value);
    std::memcpy(at, &element, sizeof(element));
  });
}

float Load(ElementType type, const std::byte* at) {
  return VisitElementType(type, [&]<class T>() {
    T element;
    std::memcpy(&element, at, sizeof(element));
    return ToFloat(element);
  });
}

float Rounded(ElementType type, float value) {
  return VisitElementType(type, [&]<class T>() { return ToFloat(FromFloat<T>(value)); });
}

const char* TypeName(ElementType type) {
  constexpr const char* kNames[] = {"fp32", "fp16", "bf16", "e4m3", "e5m2"};
  return kNames[static_cast<int>(type)];
}

}  // namespace

bool HasHopper() {
  HopperDevice device;
  return FindHopper(&device).ok() && device.present;
}

std::string AttentionCase::Describe() const {
  std::ostringstream out;
  constexpr const char* kKernels[] = {"auto", "sm80", "hopper", "generic"};
  out << kKernels[static_cast<int>(kernels)] << ", seed " << seed << ", " << TypeName(query_type)
      << " over " << TypeName(pool_type) << ", heads " << num_kv_heads << " x " << group << ", dim "
      << head_dim << "/" << value_dim << ", block " << tokens_per_block << ", lengths";
  for (const Lengths& l : lengths) out << " " << l.queries << "/" << l.context;
  out << ", causal " << mask.causal << ", window " << mask.window_tokens << ", sinks "
      << mask.sink_tokens << ", sparse " << mask.sparsity.block_tokens << ", cap " << soft_cap
      << ", scales " << pool_scales + 2 * slot_scales << ", alibi " << alibi << ", sink logits "
      << sinks << ", split " << split_tokens;
  return out.str();
}

struct AttentionData::Device {
  DeviceArray<std::byte> pool;
  DeviceArray<std::byte> query;
  DeviceArray<std::byte> output;
  DeviceArray<float> lse;
  DeviceArray<int32_t> query_starts;
  DeviceArray<int32_t> context_lengths;
  DeviceArray<int32_t> tables;
  DeviceArray<float> key_scales;
  DeviceArray<float> value_scales;
  DeviceArray<float> alibi_slopes;
  DeviceArray<float> sink_logits;
};

AttentionData::AttentionData(const AttentionCase& attention_case)
    : case_(attention_case),
      num_heads_(case_.num_kv_heads * case_.group),
      value_dim_(case_.value_dim == 0 ? case_.head_dim : case_.value_dim),
      query_stride_(uint64_t{num_heads_} * case_.head_dim + case_.padding),
      output_stride_(uint64_t{num_heads_} * value_dim_ + case_.padding) {
  for (const Lengths& l : case_.lengths) {
    query_starts_.push_back(query_starts_.back() + l.queries);
    context_lengths_.push_back(l.context);
  }
  MakeTables();
  FillPool();
  MakeQueries();
  Upload();
}

void AttentionData::MakeTables() {
  const uint32_t block = case_.tokens_per_block;
  const auto blocks_of = [block](int32_t context) { return (context + block - 1) / block; };
  uint32_t num_slots = 3;  // Some slots stay unused.
  for (const int32_t context : context_lengths_) {
    num_slots += blocks_of(context);
    table_stride_ = std::max<uint64_t>(table_stride_, blocks_of(context) + 2);
  }
  std::mt19937 random(case_.seed);
  std::vector<int32_t> slots(num_slots);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  auto next = slots.begin();
  tables_.assign(context_lengths_.size() * table_stride_, -1);
  for (size_t s = 0; s < context_lengths_.size(); ++s) {
    for (uint32_t b = 0; b < blocks_of(context_lengths_[s]); ++b) {
      int32_t& entry = tables_[s * table_stride_ + b];
      const bool shared = case_.shared_blocks && s > 0 && b < blocks_of(context_lengths_[0]) &&
                          b + 1 < blocks_of(context_lengths_[s]);
      entry = shared ? tables_[b] : *next++;
    }
  }

  const bool latent = case_.value_dim != 0;
  kv_.type = case_.pool_type;
  kv_.num_slots = num_slots;
  kv_.num_kv_heads = case_.num_kv_heads;
  kv_.tokens_per_block = block;
  kv_.head_dim = case_.head_dim;
  kv_.value_dim = case_.value_dim;
  const uint64_t row_bytes = case_.head_dim * ElementBytes(kv_.type);
  uint64_t part_bytes = 0;
  if (case_.token_flat) {
    kv_.head_stride_bytes = row_bytes;
    kv_.token_stride_bytes = row_bytes * case_.num_kv_heads;
    kv_.slot_stride_bytes = kv_.token_stride_bytes * block;
    part_bytes = kv_.slot_stride_bytes * num_slots;
    values_offset_ = part_bytes;
  } else {
    kv_.token_stride_bytes = row_bytes;
    kv_.head_stride_bytes = row_bytes * block;
    values_offset_ = kv_.head_stride_bytes * case_.num_kv_heads;
    kv_.slot_stride_bytes = values_offset_ * (latent ? 1 : 2);
    part_bytes = kv_.slot_stride_bytes * num_slots / 2;
  }
  if (latent) values_offset_ = 0;
  pool_.assign(2 * part_bytes + (latent ? part_bytes : 0), std::byte{0xff});
  kv_.keys = pool_.data();
  kv_.values = pool_.data() + values_offset_;
}

bool AttentionData::SeenByAny(size_t sequence, int64_t key) const {
  const int64_t queries = case_.lengths[sequence].queries;
  const int64_t context = case_.lengths[sequence].context;
  for (int64_t q = context - queries; q < context; ++q) {
    if (case_.mask.sparsity.block_tokens == 0) {
      if (Sees(case_.mask, 0, q, key)) return true;
      continue;
    }
    for (uint32_t h = 0; h < num_heads_; ++h) {
      if (Sees(case_.mask, h, q, key)) return true;
    }
  }
  return false;
}

void AttentionData::FillPool() {
  std::mt19937 random(case_.seed + 1000);
  std::normal_distribution<float> normal;
  if (case_.pool_scales) {
    std::uniform_real_distribution<float> scale(0.25f, 2.0f);
    for (uint32_t h = 0; h < case_.num_kv_heads; ++h) {
      key_scales_.push_back(scale(random));
      value_scales_.push_back(scale(random));
    }
    kv_.scales = {.keys = key_scales_.data(), .values = value_scales_.data(), .per_head = true};
  }
  if (case_.slot_scales) {
    key_scales_.assign(uint64_t{kv_.num_slots} * case_.num_kv_heads, std::nanf(""));
    value_scales_ = key_scales_;
    kv_.scales = {.keys = key_scales_.data(),
                  .values = value_scales_.data(),
                  .per_head = true,
                  .slot_stride = case_.num_kv_heads};
  }
  seen_tables_.assign(tables_.size(), -1);
  for (size_t s = 0; s < context_lengths_.size(); ++s) {
    for (int32_t key = 0; key < context_lengths_[s]; ++key) {
      if (!SeenByAny(s, key)) continue;
      const uint64_t entry = s * table_stride_ + key / case_.tokens_per_block;
      seen_tables_[entry] = tables_[entry];
      if (case_.slot_scales) SetScales(static_cast<uint32_t>(tables_[entry]));
      for (uint32_t h = 0; h < case_.num_kv_heads; ++h) {
        const uint64_t offset = kv_.offset_bytes(static_cast<uint32_t>(tables_[entry]), h,
                                                 key % case_.tokens_per_block);
        for (uint32_t i = 0; i < case_.head_dim; ++i) {
          const uint64_t element = i * ElementBytes(kv_.type);
          Store(kv_.type, kv_.keys + offset + element, normal(random));
          if (case_.value_dim == 0) Store(kv_.type, kv_.values + offset + element, normal(random));
        }
      }
    }
  }
}

// Different ones for each slot and head, also of K and V unless these are the same.
void AttentionData::SetScales(uint32_t slot) {
  for (uint32_t h = 0; h < case_.num_kv_heads; ++h) {
    const uint64_t at = uint64_t{slot} * case_.num_kv_heads + h;
    key_scales_[at] = 0.25f + 0.125f * static_cast<float>((5 * slot + 3 * h) % 13);
    value_scales_[at] =
        case_.value_dim != 0 ? key_scales_[at] : 0.2f + static_cast<float>((slot + h) % 7);
  }
}

void AttentionData::MakeQueries() {
  std::mt19937 random(case_.seed + 2000);
  std::normal_distribution<float> normal;
  const auto num_queries = static_cast<uint64_t>(query_starts_.back());
  const uint64_t bytes = ElementBytes(case_.query_type);
  query_bytes_.assign((num_queries * query_stride_ + 1) * bytes, std::byte{0xff});
  for (uint64_t n = 0; n < num_queries; ++n) {
    for (uint32_t i = 0; i < num_heads_ * case_.head_dim; ++i) {
      queries_.push_back(Rounded(case_.query_type, case_.query_size * normal(random)));
      Store(case_.query_type, query_bytes_.data() + (n * query_stride_ + i) * bytes,
            queries_.back());
    }
  }
  for (uint32_t h = 0; h < num_heads_; ++h) {
    alibi_slopes_.push_back(case_.alibi ? std::exp2(-8.0f * (h + 1) / num_heads_) : 0.0f);
    sink_logits_.push_back(case_.sinks ? normal(random) : 0.0f);
  }
}

void AttentionData::Upload() {
  const uint64_t outputs = query_starts_.back() * output_stride_ + 1;
  device_ = std::make_shared<Device>(
      Device{DeviceArray<std::byte>(pool_), DeviceArray<std::byte>(query_bytes_),
             DeviceArray<std::byte>(outputs * ElementBytes(case_.query_type)),
             DeviceArray<float>(uint64_t{num_heads_} * query_starts_.back()),
             DeviceArray<int32_t>(query_starts_), DeviceArray<int32_t>(context_lengths_),
             DeviceArray<int32_t>(seen_tables_), DeviceArray<float>(key_scales_),
             DeviceArray<float>(value_scales_), DeviceArray<float>(alibi_slopes_),
             DeviceArray<float>(sink_logits_)});
  PoisonOutput();
}

void AttentionData::PoisonOutput() {
  device_->output.Set(std::vector<std::byte>(device_->output.size(), std::byte{0xff}));
  device_->lse.Set(std::vector<float>(device_->lse.size(), std::nanf("")));
}

PagedAttentionParams AttentionData::HostParams() const {
  return {.query = queries_.empty() ? static_cast<const void*>(tables_.data()) : queries_.data(),
          .query_type = ElementType::kFloat32,
          .query_token_stride = uint64_t{num_heads_} * case_.head_dim,
          .output_token_stride = uint64_t{num_heads_} * value_dim_,
          .num_heads = num_heads_,
          .scale =
              case_.scale == 0 ? 1.0f / std::sqrt(static_cast<float>(case_.head_dim)) : case_.scale,
          .soft_cap = case_.soft_cap,
          .alibi_slopes = case_.alibi ? alibi_slopes_.data() : nullptr,
          .sink_logits = case_.sinks ? sink_logits_.data() : nullptr,
          .mask = case_.mask,
          .query_starts = query_starts_,
          .context_lengths = context_lengths_,
          .block_tables = tables_,
          .block_table_stride = table_stride_,
          .kv = kv_};
}

PagedAttentionParams AttentionData::Params() const {
  PagedAttentionParams params = HostParams();
  params.query = device_->query.data();
  params.output = device_->output.data();
  params.query_type = case_.query_type;
  params.query_token_stride = query_stride_;
  params.output_token_stride = output_stride_;
  params.lse = device_->lse.data();
  if (case_.alibi) params.alibi_slopes = device_->alibi_slopes.data();
  if (case_.sinks) params.sink_logits = device_->sink_logits.data();
  params.query_starts = device_->query_starts.span();
  params.context_lengths = device_->context_lengths.span();
  params.block_tables = device_->tables.span();
  params.kv.keys = device_->pool.data();
  params.kv.values = device_->pool.data() + values_offset_;
  if (case_.pool_scales || case_.slot_scales) {
    params.kv.scales.keys = device_->key_scales.data();
    params.kv.scales.values = device_->value_scales.data();
  }
  return params;
}

AttentionResult AttentionData::Reference() const { return OnHost(&reference::PagedAttention); }

AttentionResult AttentionData::OnCpu() const {
  return OnHost([](const PagedAttentionParams& params) { return cpu::PagedAttention(params); });
}

AttentionResult AttentionData::OnHost(
    absl::Status (*attention)(const PagedAttentionParams&)) const {
  AttentionResult result;
  result.output.resize(uint64_t{num_heads_} * query_starts_.back() * value_dim_ + 1);
  result.lse.resize(uint64_t{num_heads_} * query_starts_.back());
  PagedAttentionParams params = HostParams();
  params.output = result.output.data();
  params.lse = result.lse.data();
  const absl::Status status = attention(params);
  if (!status.ok())
    result.output.clear();  // Compare reports it.
  else
    result.output.pop_back();
  return result;
}

AttentionPlan AttentionData::Plan() const {
  const PlanShape shape = {.query_starts = query_starts_,
                           .context_lengths = context_lengths_,
                           .mask = case_.mask,
                           .num_kv_heads = case_.num_kv_heads};
  if (case_.split_tokens == 0) return PlanForCuda(shape, num_heads_);
  return PlanAttention(shape, {.num_workers = 4,
                               .query_tokens = std::max(1u, 128 / case_.group),
                               .split_tokens = case_.split_tokens,
                               .split_query_tokens = 1u << 20});
}

absl::StatusOr<AttentionResult> AttentionData::Run() {
  const AttentionPlan plan = Plan();
  const PlanCapacity capacity = CapacityFor(plan, num_heads_);
  DeviceArray<std::byte> device_plan(PlanBytes(capacity));
  DeviceArray<std::byte> workspace(WorkspaceBytes(capacity, num_heads_, value_dim_));
  absl::Status status = CopyPlan(plan, num_heads_, capacity, device_plan.data(), nullptr);
  if (!status.ok()) return status;
  PoisonOutput();
  status = PagedAttention(Params(), {.plan = device_plan.data(),
                                     .capacity = capacity,
                                     .workspace = workspace.data(),
                                     .workspace_bytes = workspace.size(),
                                     .kernels = case_.kernels});
  if (!status.ok()) return status;
  FinishDevice();
  return TakeResult();
}

absl::StatusOr<AttentionResult> AttentionData::TakeResult() {
  const std::vector<std::byte> output = device_->output.Get();
  AttentionResult result = {.output = {}, .lse = device_->lse.Get()};
  const uint64_t bytes = ElementBytes(case_.query_type);
  const uint64_t row = uint64_t{num_heads_} * value_dim_;
  for (int32_t n = 0; n < query_starts_.back(); ++n) {
    for (uint64_t i = 0; i < output_stride_; ++i) {
      const std::byte* element = output.data() + (n * output_stride_ + i) * bytes;
      if (i < row) {
        result.output.push_back(Load(case_.query_type, element));
      } else if (!std::all_of(element, element + bytes,
                              [](std::byte b) { return b == std::byte{0xff}; })) {
        return absl::InternalError(absl::StrCat("element ", i, " behind row ", n, " is written"));
      }
    }
  }
  return result;
}

void AttentionData::SetQueryToNaN(uint32_t query, uint32_t head) {
  const uint64_t bytes = ElementBytes(case_.query_type);
  for (uint32_t i = head * case_.head_dim; i < (head + 1) * case_.head_dim; ++i) {
    queries_[uint64_t{query} * num_heads_ * case_.head_dim + i] = std::nanf("");
    Store(case_.query_type, query_bytes_.data() + (query * query_stride_ + i) * bytes,
          std::nanf(""));
  }
  device_->query.Set(query_bytes_);
}

void AttentionData::SetKeyToNaN(size_t sequence, int32_t position) {
  const int32_t slot = tables_[sequence * table_stride_ + position / case_.tokens_per_block];
  for (uint32_t h = 0; h < case_.num_kv_heads; ++h) {
    std::byte* key = kv_.keys + kv_.offset_bytes(static_cast<uint32_t>(slot), h,
                                                 position % case_.tokens_per_block);
    for (uint32_t i = 0; i < case_.head_dim; ++i) {
      Store(kv_.type, key + i * ElementBytes(kv_.type), std::nanf(""));
    }
  }
  device_->pool.Set(pool_);
}

void AttentionData::PermuteSlots(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> target(kv_.num_slots);
  std::iota(target.begin(), target.end(), 0);
  std::shuffle(target.begin(), target.end(), random);
  const std::vector<std::byte> before = pool_;
  const uint64_t bytes = kv_.slot_stride_bytes;
  for (uint32_t slot = 0; slot < kv_.num_slots; ++slot) {
    std::copy_n(before.begin() + slot * bytes, bytes, pool_.begin() + target[slot] * bytes);
    if (!case_.token_flat) continue;  // V is behind all of K.
    std::copy_n(before.begin() + values_offset_ + slot * bytes, bytes,
                pool_.begin() + values_offset_ + target[slot] * bytes);
  }
  for (std::vector<int32_t>* tables : {&tables_, &seen_tables_}) {
    for (int32_t& entry : *tables) {
      if (entry >= 0) entry = target[entry];
    }
  }
  device_->pool.Set(pool_);
  device_->tables.Set(seen_tables_);
}

std::string Compare(const AttentionCase& attention_case, const AttentionResult& result,
                    const AttentionResult& reference) {
  if (result.output.size() != reference.output.size()) {
    return absl::StrCat("the reference has ", reference.output.size(), " elements, the result ",
                        result.output.size());
  }
  // Relative to the norm. The scores of large queries have larger rounding errors.
  double tolerance = 1e-5;
  double lse_tolerance = 1e-4;
  if (attention_case.query_type == ElementType::kFloat16) tolerance = 1.5e-3;
  if (attention_case.query_type == ElementType::kBFloat16) tolerance = 7e-3;
  if (attention_case.query_type != ElementType::kFloat32) lse_tolerance = 1e-3;
  const uint64_t rows = reference.lse.size();
  const uint64_t dim = rows == 0 ? 0 : reference.output.size() / rows;
  for (uint64_t row = 0; row < rows; ++row) {
    double error = 0;
    double norm = 0;
    for (uint64_t i = row * dim; i < (row + 1) * dim; ++i) {
      const double difference = double{result.output[i]} - reference.output[i];
      error += difference * difference;
      norm += double{reference.output[i]} * reference.output[i];
    }
    // NaN must fail.
    if (!(std::sqrt(error) <= tolerance * std::sqrt(norm) + 1e-6 * std::sqrt(double(dim)))) {
      return absl::StrCat("row ", row, " of ", rows, " (heads ",
                          attention_case.num_kv_heads * attention_case.group, "): error ",
                          std::sqrt(error), " of norm ", std::sqrt(norm), "; begins with ",
                          result.output[row * dim], ", not ", reference.output[row * dim]);
    }
    const float lse = reference.lse[row];
    const bool close =
        lse == -kInfinity ? result.lse[row] == lse
                          : std::abs(result.lse[row] - lse) <= lse_tolerance + 1e-5 * std::abs(lse);
    if (!close) {
      return absl::StrCat("log-sum-exp of row ", row, " is ", result.lse[row], ", not ", lse);
    }
  }
  return "";
}

}  // namespace pagoda::kernels::cuda
