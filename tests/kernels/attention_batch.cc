#include "tests/kernels/attention_batch.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <sstream>

#include "kernels/numeric.h"

namespace pagoda::kernels {
namespace {

// The number after rounding to the element type.
float Rounded(ElementType type, float number) {
  return VisitElementType(type, [&]<class T>() { return ToFloat(FromFloat<T>(number)); });
}

template <class T>
T Pick(std::mt19937& random, std::initializer_list<T> from) {
  return from.begin()[random() % from.size()];
}

AttentionMask RandomMask(std::mt19937& random) {
  AttentionMask mask;
  switch (random() % 8) {
    case 0:
      mask.causal = false;
      break;
    case 1:
    case 2:
      mask.window_tokens = 1 + random() % 60;
      mask.sink_tokens = random() % 2 * (random() % 20);
      break;
    case 3:
      mask.sparsity = {.block_tokens = Pick(random, {1u, 4u, 16u, 33u}),
                       .local_blocks = 1 + static_cast<uint32_t>(random() % 3),
                       .vertical_stride = static_cast<uint32_t>(random() % 4),
                       .head_step = static_cast<uint32_t>(random() % 3)};
      if (random() % 3 == 0) mask.window_tokens = 1 + random() % 60;
      break;
    default:
      break;
  }
  return mask;
}

}  // namespace

std::string BatchShape::Describe() const {
  std::ostringstream text;
  text << "pool type " << int(pool_type) << " query type " << int(query_type) << " kv heads "
       << num_kv_heads << " group " << group << " block " << tokens_per_block << " head_dim "
       << head_dim << " value_dim " << value_dim << (latents ? " latents" : "")
       << (token_flat ? " flat" : "") << (scales_per_slot ? " scales of slots" : "") << " padding "
       << padding << " causal " << mask.causal << " window " << mask.window_tokens
       << " sink tokens " << mask.sink_tokens << " sparse " << mask.sparsity.block_tokens << "/"
       << mask.sparsity.local_blocks << "/" << mask.sparsity.vertical_stride << "/"
       << mask.sparsity.head_step << " cap " << soft_cap << " alibi " << alibi << " sinks " << sinks
       << " lengths";
  for (const SequenceLengths& l : lengths) text << " " << l.queries << "/" << l.context;
  return text.str();
}

BatchShape RandomBatchShape(std::mt19937& random, int32_t largest_context) {
  BatchShape shape;
  shape.pool_type = static_cast<ElementType>(random() % 5);
  shape.query_type = Pick(random, {ElementType::kFloat32, ElementType::kFloat32,
                                   ElementType::kFloat16, ElementType::kBFloat16});
  shape.num_kv_heads = Pick(random, {1u, 1u, 2u, 3u});
  shape.group = Pick(random, {1u, 2u, 3u, 4u, 4u, 5u, 6u, 7u, 8u, 16u});
  shape.tokens_per_block = Pick(random, {1u, 5u, 8u, 16u, 16u, 32u, 64u, 128u});
  shape.head_dim = Pick(random, {16u, 32u, 48u, 64u, 64u, 80u, 96u, 128u, 128u, 192u, 256u, 40u});
  if (random() % 6 == 0) shape.value_dim = Pick(random, {16u, 32u, 48u, 8u});
  shape.value_dim = std::min(shape.value_dim, shape.head_dim);
  shape.latents = random() % 10 == 0;
  shape.token_flat = random() % 4 == 0;
  shape.padding = random() % 4 == 0 ? 1 + random() % 9 : 0;
  shape.scales_per_head = random() % 2 == 0;
  shape.mask = RandomMask(random);
  if (random() % 5 == 0) shape.soft_cap = Pick(random, {1.0f, 5.0f, 30.0f});
  shape.alibi = shape.mask.causal && random() % 5 == 0;
  shape.sinks = random() % 5 == 0;
  // Limits query heads x queries x keys: the reference computes the pairs one by one.
  shape.lengths.resize(1 + random() % 3);
  for (SequenceLengths& l : shape.lengths) {
    l.context = static_cast<int32_t>(random() % largest_context);
    const int32_t most = 1 + static_cast<int32_t>(60 / (shape.group * shape.num_kv_heads));
    l.queries = random() % 3 == 0 ? 1 : static_cast<int32_t>(random() % (2 * most));
    l.queries = std::min(l.queries, l.context);
  }
  shape.scales_per_slot = random() % 4 == 0;
  return shape;
}

GuardedBytes::GuardedBytes(size_t bytes) : size_(bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t pages = (bytes + page - 1) / page * page;
  mapped_bytes_ = pages + page;
  mapping_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  /*fd=*/-1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(static_cast<std::byte*>(mapping_) + pages, page, PROT_NONE);
  data_ = static_cast<std::byte*>(mapping_) + (pages - bytes);
}

GuardedBytes::~GuardedBytes() { munmap(mapping_, mapped_bytes_); }

AttentionBatch::AttentionBatch(const BatchShape& shape, std::mt19937& random) : shape_(shape) {
  LayOut(random);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform(0.25f, 2.0f);
  queries_.resize(uint64_t{num_queries()} * num_heads() * shape_.head_dim);
  for (float& number : queries_) number = Rounded(shape_.query_type, normal(random));
  for (uint32_t h = 0; h < num_heads(); ++h) {
    slopes_.push_back(std::exp2(-8.0f * static_cast<float>(h + 1) / num_heads()));
    sinks_.push_back(normal(random));
  }
  const uint32_t slots = shape_.scales_per_slot ? kv_.num_slots : 1;
  for (uint32_t i = 0; i < slots * shape_.num_kv_heads; ++i) {
    key_scales_.push_back(uniform(random));
    value_scales_.push_back(uniform(random));
  }
  if (IsFloat8(shape_.pool_type)) {
    kv_.scales = {.keys = key_scales_.data(),
                  .values = value_scales_.data(),
                  .per_head = shape_.scales_per_head,
                  .slot_stride = shape_.scales_per_slot ? shape_.num_kv_heads : 0};
  }
  params_ = {.num_heads = num_heads(),
             .scale = shape_.scale != 0 ? shape_.scale
                                        : 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
             .soft_cap = shape_.soft_cap,
             .alibi_slopes = shape_.alibi ? slopes_.data() : nullptr,
             .sink_logits = shape_.sinks ? sinks_.data() : nullptr,
             .mask = shape_.mask,
             .query_starts = query_starts_,
             .context_lengths = contexts_,
             .block_tables = tables_,
             .block_table_stride = contexts_.empty() ? 0 : tables_.size() / contexts_.size(),
             .kv = kv_};
  WriteSeen(random);
}

uint64_t AttentionBatch::Blocks(int32_t context) const {
  return (context + shape_.tokens_per_block - 1) / shape_.tokens_per_block;
}

void AttentionBatch::LayOut(std::mt19937& random) {
  kv_.type = shape_.pool_type;
  kv_.num_kv_heads = shape_.num_kv_heads;
  kv_.tokens_per_block = shape_.tokens_per_block;
  kv_.head_dim = shape_.head_dim;
  kv_.value_dim = shape_.value_dim;
  const uint64_t row = (shape_.head_dim + shape_.padding) * ElementBytes(shape_.pool_type);
  kv_.token_stride_bytes = shape_.token_flat ? row * shape_.num_kv_heads : row;
  kv_.head_stride_bytes = shape_.token_flat ? row : row * shape_.tokens_per_block;
  const uint64_t half = row * shape_.num_kv_heads * shape_.tokens_per_block;
  kv_.slot_stride_bytes = shape_.latents ? half : 2 * half;

  uint64_t stride = 2;  // At least two columns of padding.
  query_starts_ = {0};
  kv_.num_slots = 1 + random() % 3;  // Some stay unused.
  for (const SequenceLengths& l : shape_.lengths) {
    query_starts_.push_back(query_starts_.back() + l.queries);
    contexts_.push_back(l.context);
    stride = std::max(stride, Blocks(l.context) + 2);
    kv_.num_slots += static_cast<uint32_t>(Blocks(l.context));
  }
  pool_ = std::make_unique<GuardedBytes>(kv_.slot_stride_bytes * kv_.num_slots);
  std::memset(pool_->data(), 0xff, pool_->size());
  kv_.keys = pool_->data();
  kv_.values = shape_.latents ? kv_.keys : kv_.keys + half;

  std::vector<int32_t> slots(kv_.num_slots);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  tables_.assign(contexts_.size() * stride, -1);
  auto slot = slots.begin();
  for (size_t s = 0; s < contexts_.size(); ++s) {
    for (uint64_t b = 0; b < Blocks(contexts_[s]); ++b) tables_[s * stride + b] = *slot++;
  }
}

void AttentionBatch::WriteSeen(std::mt19937& random) {
  std::vector<bool> has_scale(key_scales_.size());
  for (size_t s = 0; s < contexts_.size(); ++s) {
    for (uint32_t h = 0; h < shape_.num_kv_heads; ++h) {
      for (int64_t key = 0; key < contexts_[s]; ++key) {
        bool seen = false;
        for (int32_t n = query_starts_[s]; n < query_starts_[s + 1] && !seen; ++n) {
          for (uint32_t g = 0; g < shape_.group; ++g) {
            seen |= Sees(shape_.mask, h * shape_.group + g, position(n), key);
          }
        }
        if (!seen) continue;
        const uint32_t slot = shape_.scales_per_slot ? SlotOf(s, key) : 0;
        const uint32_t scale = slot * shape_.num_kv_heads + (shape_.scales_per_head ? h : 0);
        has_scale[scale] = true;
        WriteToken(Key(s, h, key), shape_.head_dim, key_scales_[scale], random);
        if (!shape_.latents)
          WriteToken(Value(s, h, key), value_dim(), value_scales_[scale], random);
      }
    }
  }
  if (!shape_.scales_per_slot) return;
  for (size_t i = 0; i < has_scale.size(); ++i) {
    if (!has_scale[i]) key_scales_[i] = value_scales_[i] = std::bit_cast<float>(~uint32_t{0});
  }
}

void AttentionBatch::WriteToken(std::byte* token, uint32_t elements, float scale,
                                std::mt19937& random) {
  std::normal_distribution<float> normal;
  if (!IsFloat8(shape_.pool_type)) scale = 1.0f;
  VisitElementType(shape_.pool_type, [&]<class T>() {
    T* numbers = reinterpret_cast<T*>(token);
    for (uint32_t i = 0; i < elements; ++i) numbers[i] = FromFloat<T>(normal(random) / scale);
  });
}

PlanShape AttentionBatch::plan_shape() const {
  return {.query_starts = query_starts_,
          .context_lengths = contexts_,
          .mask = shape_.mask,
          .num_kv_heads = shape_.num_kv_heads};
}

size_t AttentionBatch::sequence(uint32_t n) const {
  return std::upper_bound(query_starts_.begin(), query_starts_.end(), static_cast<int32_t>(n)) -
         query_starts_.begin() - 1;
}

int64_t AttentionBatch::position(uint32_t n) const {
  const size_t s = sequence(n);
  return int64_t{contexts_[s]} - query_starts_[s + 1] + n;
}

uint32_t AttentionBatch::SlotOf(size_t s, int64_t position) const {
  const uint64_t block = s * params_.block_table_stride + position / shape_.tokens_per_block;
  return static_cast<uint32_t>(tables_[block]);
}

std::byte* AttentionBatch::Key(size_t s, uint32_t kv_head, int64_t position) {
  return kv_.keys + kv_.offset_bytes(SlotOf(s, position), kv_head,
                                     static_cast<uint32_t>(position % shape_.tokens_per_block));
}

std::byte* AttentionBatch::Value(size_t s, uint32_t kv_head, int64_t position) {
  return kv_.values + (Key(s, kv_head, position) - kv_.keys);
}

void AttentionBatch::FillKey(size_t s, uint32_t kv_head, int64_t position, float number) {
  std::byte* bytes = Key(s, kv_head, position);
  VisitElementType(shape_.pool_type, [&]<class T>() {
    std::fill_n(reinterpret_cast<T*>(bytes), shape_.head_dim, FromFloat<T>(number));
  });
}

void AttentionBatch::FillValue(size_t s, uint32_t kv_head, int64_t position, float number) {
  std::byte* bytes = Value(s, kv_head, position);
  VisitElementType(shape_.pool_type, [&]<class T>() {
    std::fill_n(reinterpret_cast<T*>(bytes), value_dim(), FromFloat<T>(number));
  });
}

void AttentionBatch::MoveBlocks(std::mt19937& random) {
  std::vector<std::byte> before(pool_->data(), pool_->data() + pool_->size());
  std::vector<int32_t> target(kv_.num_slots);
  std::iota(target.begin(), target.end(), 0);
  std::shuffle(target.begin(), target.end(), random);
  for (uint32_t slot = 0; slot < kv_.num_slots; ++slot) {
    std::memcpy(pool_->data() + target[slot] * kv_.slot_stride_bytes,
                before.data() + slot * kv_.slot_stride_bytes, kv_.slot_stride_bytes);
  }
  for (int32_t& slot : tables_) {
    if (slot >= 0) slot = target[slot];
  }
}

AttentionRows AttentionBatch::Run(const Runner& runner) const {
  // Queries, outputs and log-sum-exps end at pages without access. The gap between the tokens of an
  // output keeps its bytes.
  const uint64_t query_row = uint64_t{num_heads()} * shape_.head_dim + 3;
  const uint64_t output_row = uint64_t{num_heads()} * value_dim() + 5;
  const uint64_t element = ElementBytes(shape_.query_type);
  const uint32_t tokens = num_queries();
  const GuardedBytes query(std::max<uint64_t>(1, tokens * query_row) * element);
  const GuardedBytes output(std::max<uint64_t>(1, tokens * output_row) * element);
  const GuardedBytes lse(std::max<uint64_t>(1, uint64_t{tokens} * num_heads()) * sizeof(float));
  std::memset(query.data(), 0xff, query.size());
  std::memset(output.data(), 0xee, output.size());

  PagedAttentionParams params = params_;
  params.query = query.data();
  params.output = output.data();
  params.query_type = shape_.query_type;
  params.query_token_stride = query_row;
  params.output_token_stride = output_row;
  params.lse = reinterpret_cast<float*>(lse.data());
  AttentionRows rows;
  VisitElementType(shape_.query_type, [&]<class T>() {
    T* numbers = reinterpret_cast<T*>(query.data());
    const uint64_t size = uint64_t{num_heads()} * shape_.head_dim;
    for (uint64_t n = 0; n < tokens; ++n) {
      for (uint64_t i = 0; i < size; ++i) {
        numbers[n * query_row + i] = FromFloat<T>(queries_[n * size + i]);
      }
    }
    const absl::Status status = cpu::PagedAttention(params, runner.plan,
                                                    {.threads = runner.threads,
                                                     .isa = runner.isa,
                                                     .decode_isa = runner.decode_isa,
                                                     .fetch = runner.fetch,
                                                     .matrices = runner.matrices});
    EXPECT_TRUE(status.ok()) << status;
    const T* results = reinterpret_cast<const T*>(output.data());
    for (uint64_t n = 0; n < tokens; ++n) {
      for (uint64_t i = 0; i < output_row - 5; ++i) {
        rows.output.push_back(ToFloat(results[n * output_row + i]));
      }
      const auto* gap = output.data() + (n * output_row + output_row - 5) * element;
      EXPECT_TRUE(std::all_of(gap, gap + 5 * element, [](std::byte b) {
        return b == std::byte{0xee};
      })) << "between tokens something was written";
    }
  });
  rows.lse.assign(params.lse, params.lse + uint64_t{tokens} * num_heads());
  return rows;
}

AttentionRows AttentionBatch::Expected() const {
  AttentionRows rows;
  rows.output.resize(std::max<uint64_t>(1, uint64_t{num_queries()} * num_heads() * value_dim()));
  rows.lse.resize(uint64_t{num_queries()} * num_heads());
  PagedAttentionParams params = params_;
  params.query = queries_.empty() ? rows.output.data() + 0 : queries_.data();
  params.output = rows.output.data();
  std::vector<float> nothing(1);
  if (queries_.empty()) params.query = nothing.data();
  params.query_token_stride = uint64_t{num_heads()} * shape_.head_dim;
  params.output_token_stride = uint64_t{num_heads()} * value_dim();
  params.lse = rows.lse.empty() ? nullptr : rows.lse.data();
  const absl::Status status = reference::PagedAttention(params);
  EXPECT_TRUE(status.ok()) << status;
  rows.output.resize(uint64_t{num_queries()} * num_heads() * value_dim());
  return rows;
}

Tolerance ToleranceOf(const BatchShape& shape, cpu::Isa isa, cpu::MatrixUnit matrices) {
  Tolerance tolerance{.output = 1e-5, .lse = 1e-5};
  const bool amx = matrices == cpu::MatrixUnit::kAmx && isa >= cpu::Isa::kAvx512;
  const bool rounds = (isa == cpu::Isa::kAvx512Bf16 || amx) &&
                      shape.pool_type != ElementType::kFloat32 &&
                      shape.pool_type != ElementType::kFloat16;
  if (rounds && shape.head_dim % 16 == 0) {
    // A query that is exact in bf16 is not rounded; only its weights are.
    const bool exact_query = shape.query_type == ElementType::kBFloat16;
    tolerance.output = exact_query ? 5e-3 : 1e-2;
    tolerance.lse = exact_query ? 1e-5 : 1e-2;
  }
  if (shape.query_type == ElementType::kFloat16) tolerance.output += 5e-4;
  if (shape.query_type == ElementType::kBFloat16) tolerance.output += 4e-3;
  return tolerance;
}

void ExpectClose(const AttentionBatch& batch, const AttentionRows& actual,
                 const AttentionRows& expected, const Tolerance& tolerance) {
  const uint32_t value_dim = batch.value_dim();
  ASSERT_EQ(actual.output.size(), expected.output.size());
  for (size_t row = 0; row < expected.lse.size(); ++row) {
    const float* a = actual.output.data() + row * value_dim;
    const float* e = expected.output.data() + row * value_dim;
    double difference = 0, length = 0;
    for (uint32_t i = 0; i < value_dim; ++i) {
      difference += (double{a[i]} - e[i]) * (double{a[i]} - e[i]);
      length += double{e[i]} * e[i];
    }
    const size_t n = row / batch.num_heads(), head = row % batch.num_heads();
    // Not `>`: a NaN must fail.
    if (!(std::sqrt(difference) <= tolerance.output * std::sqrt(length))) {
      FAIL() << "token " << n << " head " << head << ": off by " << std::sqrt(difference / length)
             << ", first element " << a[0] << " not " << e[0];
    }
    const double lse = expected.lse[row];
    if (std::isinf(lse)) {
      ASSERT_EQ(actual.lse[row], expected.lse[row]) << "token " << n << " head " << head;
    } else {
      ASSERT_NEAR(actual.lse[row], lse, tolerance.lse * std::max(1.0, std::abs(lse)))
          << "token " << n << " head " << head;
    }
  }
}

std::vector<cpu::Isa> Isas() {
  std::vector<cpu::Isa> isas;
  for (const cpu::Isa isa :
       {cpu::Isa::kPortable, cpu::Isa::kAvx2, cpu::Isa::kAvx512, cpu::Isa::kAvx512Bf16}) {
    if (isa <= cpu::BestIsa()) isas.push_back(isa);
  }
  return isas;
}

std::vector<AttentionWay> Ways() {
  std::vector<AttentionWay> ways;
  for (const cpu::Isa isa : Isas()) {
    ways.push_back({.isa = isa});
    const bool with_amx = cpu::BestMatrixUnit() == cpu::MatrixUnit::kAmx;
    if (with_amx && isa >= cpu::Isa::kAvx512) ways.push_back({isa, cpu::MatrixUnit::kAmx});
  }
  return ways;
}

std::string WayName(const AttentionWay& way) {
  return std::string(IsaName(way.isa)) + (way.matrices == cpu::MatrixUnit::kAmx ? "_amx" : "");
}

}  // namespace pagoda::kernels
