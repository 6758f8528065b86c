#include "tests/bench/kernels/attention_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/numeric.h"
#include "tests/bench/figure.h"
#include "tests/bench/kernels/machine_peaks.h"

namespace pagoda::bench {
namespace {

using kernels::ElementType;
using kernels::cpu::FetchAhead;
using kernels::cpu::Isa;

constexpr uint32_t kKvHeads = 8;
constexpr uint32_t kHeads = 32;
constexpr uint32_t kHeadDim = 128;
constexpr uint32_t kTokensPerBlock = 32;
// DeepSeek's latent attention: a token has one key for all heads, and its value is the beginning.
constexpr uint32_t kLatentDim = 576;
constexpr uint32_t kLatentValueDim = 512;
constexpr uint64_t kMeasuredBytes = 256 << 20;  // The least bytes that one measurement reads.

// Random numbers like a model's: a normal distribution.
template <class T>
std::vector<T> RandomNumbers(size_t count, float deviation = 1.0f) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<T> numbers(count);
  for (T& number : numbers) number = kernels::FromFloat<T>(normal(random));
  return numbers;
}

// The memory that calls rotate over.
class Rotation {
 public:
  Rotation(uint64_t bytes, ElementType type) : type_(type), memory_(bytes) {
    kernels::VisitElementType(type, [&]<class T>() {
      // Numbers of 8 bits have the size that fitted scales give them.
      const std::vector<T> numbers = RandomNumbers<T>(1000 * kHeadDim, sizeof(T) == 1 ? 64 : 1);
      Fill(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(numbers.data()),
                               numbers.size() * sizeof(T)));
    });
  }

  kernels::KvLayer Layer(uint32_t tokens_per_block) {
    kernels::KvLayer kv;
    kv.type = type_;
    kv.num_kv_heads = kKvHeads;
    kv.tokens_per_block = tokens_per_block;
    kv.head_dim = kHeadDim;
    kv.token_stride_bytes = kHeadDim * kernels::ElementBytes(type_);
    kv.head_stride_bytes = kv.token_stride_bytes * tokens_per_block;
    kv.slot_stride_bytes = kv.head_stride_bytes * kKvHeads * 2;
    kv.num_slots = static_cast<uint32_t>(memory_.bytes().size() / kv.slot_stride_bytes);
    kv.keys = memory_.bytes().data();
    kv.values = kv.keys + kv.slot_stride_bytes / 2;
    if (IsFloat8(type_)) {
      scales_.resize(uint64_t{kv.num_slots} * 2 * kKvHeads);
      for (size_t i = 0; i < scales_.size(); ++i) scales_[i] = i % 3 == 0 ? 0x1p-6f : 0x1p-7f;
      kv.scales = {.keys = scales_.data(),
                   .values = scales_.data() + kKvHeads,
                   .per_head = true,
                   .slot_stride = 2 * kKvHeads};
    }
    return kv;
  }

  kernels::KvLayer LatentLayer() {
    kernels::KvLayer kv;
    kv.type = type_;
    kv.num_kv_heads = 1;
    kv.tokens_per_block = kTokensPerBlock;
    kv.head_dim = kLatentDim;
    kv.value_dim = kLatentValueDim;
    kv.token_stride_bytes = kLatentDim * kernels::ElementBytes(type_);
    kv.head_stride_bytes = kv.token_stride_bytes * kTokensPerBlock;
    kv.slot_stride_bytes = kv.head_stride_bytes;
    kv.num_slots = static_cast<uint32_t>(memory_.bytes().size() / kv.slot_stride_bytes);
    kv.keys = kv.values = memory_.bytes().data();
    return kv;
  }

  // `bytes` in one piece that have not been touched for long.
  absl::Span<const std::byte> Piece(uint64_t bytes) {
    if (next_ + bytes > memory_.bytes().size()) next_ = 0;
    const auto piece = memory_.bytes().subspan(next_, bytes);
    next_ += bytes;
    return piece;
  }

 private:
  // Repeats one piece. Its length differs from the distance between heads or slots.
  void Fill(absl::Span<const std::byte> piece) {
    const uint64_t bytes = memory_.bytes().size();
    for (uint64_t at = 0; at < bytes; at += piece.size()) {
      std::memcpy(memory_.bytes().data() + at, piece.data(),
                  std::min<uint64_t>(piece.size(), bytes - at));
    }
  }

  const ElementType type_;
  ColdMemory memory_;
  std::vector<float> scales_;
  uint64_t next_ = 0;
};

struct How {
  uint32_t threads = 1;
  uint32_t heads = kHeads;
  Isa isa = kernels::cpu::FastestIsa();
  Isa decode_isa = kernels::cpu::FastestDecodeIsa();
  FetchAhead fetch = kernels::cpu::FastestFetchAhead();
  kernels::cpu::MatrixUnit matrices = kernels::cpu::BestMatrixUnit();
};

// Sequences of similar lengths. Each call has other blocks.
class Call {
 public:
  Call(const kernels::KvLayer& kv, int32_t batch, int32_t queries, int32_t context, const How& how)
      : threads_(std::make_unique<kernels::cpu::ThreadPool>(how.threads)),
        execution_{.threads = threads_.get(),
                   .isa = how.isa,
                   .decode_isa = how.decode_isa,
                   .fetch = how.fetch,
                   .matrices = how.matrices},
        slots_(kv.num_slots) {
    std::iota(slots_.begin(), slots_.end(), 0);
    std::shuffle(slots_.begin(), slots_.end(), std::mt19937(1));
    for (int32_t s = 0; s <= batch; ++s) query_starts_.push_back(s * queries);
    contexts_.assign(batch, context);
    const uint64_t blocks = (context + kv.tokens_per_block - 1) / kv.tokens_per_block;
    tables_.resize(batch * blocks);
    const uint32_t value_dim = kv.value_dim == 0 ? kv.head_dim : kv.value_dim;
    query_ = RandomNumbers<kernels::BFloat16>(uint64_t(batch) * queries * how.heads * kv.head_dim);
    output_.resize(uint64_t(batch) * queries * how.heads * value_dim);
    params_ = {.query = query_.data(),
               .output = output_.data(),
               .query_type = ElementType::kBFloat16,
               .query_token_stride = how.heads * kv.head_dim,
               .output_token_stride = how.heads * value_dim,
               .num_heads = how.heads,
               .scale = 1.0f / std::sqrt(static_cast<float>(kv.head_dim)),
               .query_starts = query_starts_,
               .context_lengths = contexts_,
               .block_tables = tables_,
               .block_table_stride = blocks,
               .kv = kv};
    plan_ = kernels::cpu::PlanForCpu({.query_starts = query_starts_,
                                      .context_lengths = contexts_,
                                      .mask = {},
                                      .num_kv_heads = kv.num_kv_heads},
                                     execution_);
  }

  uint64_t kv_bytes() const {
    const kernels::KvLayer& kv = params_.kv;
    const uint32_t parts = kv.values == kv.keys ? 1 : 2;
    return std::accumulate(contexts_.begin(), contexts_.end(), uint64_t{0}) * kv.num_kv_heads *
           kv.head_dim * parts * kernels::ElementBytes(kv.type);
  }

  double TakeSeconds() {
    for (int32_t& slot : tables_) {
      slot = slots_[next_slot_];
      next_slot_ = (next_slot_ + 1) % slots_.size();
    }
    return Seconds([&] {
      PAGODA_CHECK(kernels::cpu::PagedAttention(params_, &plan_, execution_).ok(),
                   "a benchmark's call is right");
    });
  }

 private:
  std::unique_ptr<kernels::cpu::ThreadPool> threads_;
  kernels::cpu::Execution execution_;
  std::vector<int32_t> slots_;
  size_t next_slot_ = 0;
  std::vector<int32_t> query_starts_;
  std::vector<int32_t> contexts_;
  std::vector<int32_t> tables_;
  std::vector<kernels::BFloat16> query_;
  std::vector<kernels::BFloat16> output_;
  kernels::PagedAttentionParams params_;
  kernels::AttentionPlan plan_;
};

// The instruction sets whose kernels have figures of their own.
std::vector<Isa> NamedIsas(bool smoke) {
  std::vector<Isa> isas;
  if (smoke) return isas;  // The further ones depend on the machine.
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (isa <= kernels::cpu::BestIsa()) isas.push_back(isa);
  }
  return isas;
}

class AttentionBench {
 public:
  explicit AttentionBench(const AttentionBenchOptions& options)
      : options_(options),
        rotation_(options.smoke ? 64 << 20 : uint64_t{2} << 30, ElementType::kBFloat16) {}

  void Run() {
    for (const uint32_t threads : {1u, 2u}) {
      const std::string tail = absl::StrCat("_t", threads);
      const How fastest = {.threads = threads};
      for (const int32_t batch : {1, 16}) {
        for (const int32_t kv : {4096, 16384}) {
          Decode(absl::StrCat(Name(kv, batch), tail), kv, batch, kTokensPerBlock, fastest);
        }
      }
      for (const uint32_t page : {16u, 64u}) {
        Decode(absl::StrCat(Name(4096, 16), tail, "_page", page), 4096, 16, page, fastest);
      }
      for (const FetchAhead fetch : {FetchAhead::kNear, FetchAhead::kFar}) {
        Decode(absl::StrCat(Name(4096, 16), tail, "_fetch_",
                            std::string(kernels::cpu::FetchAheadName(fetch))),
               4096, 16, kTokensPerBlock, {.threads = threads, .fetch = fetch});
      }
      for (const Isa isa : NamedIsas(options_.smoke)) {
        Decode(absl::StrCat(Name(4096, 16), tail, "_", std::string(IsaName(isa))), 4096, 16,
               kTokensPerBlock, {.threads = threads, .isa = isa, .decode_isa = isa});
      }
    }
    for (const uint32_t threads : {1u, 2u}) {
      for (const uint32_t group : {1u, 8u, 16u}) {
        Decode(absl::StrCat("cpu_decode_bf16_g", group, "_kv4096_b16_t", threads), 4096, 16,
               kTokensPerBlock, {.threads = threads, .heads = group * kKvHeads});
      }
    }
    DecodeFloat16();
    for (const ElementType type : {ElementType::kFloat8E4M3, ElementType::kFloat8E5M2}) {
      DecodeFloat8(type);
    }
    for (const int32_t queries : {5, 16, 64}) Chunk(queries);
    for (const uint32_t threads : {1u, 2u}) {
      for (const uint32_t heads : {16u, 128u}) DecodeLatent(heads, threads);
    }
    ReadBlocks();
    const Isa fastest = kernels::cpu::FastestIsa();
    for (const int32_t tokens : {512, 1024, 2048, 4096}) {
      Prefill(absl::StrCat("cpu_prefill_bf16_", tokens), tokens, tokens, fastest, true);
    }
    Prefill("cpu_append_bf16_512_4096", 512, 4096 + 512, fastest, true);
    for (const Isa isa : NamedIsas(options_.smoke)) {
      const bool dots = isa == Isa::kAvx512Bf16;
      const std::string tail = absl::StrCat("_", std::string(IsaName(isa)));
      Prefill(absl::StrCat("cpu_prefill_bf16_2048", tail), 2048, 2048, isa, dots);
      Prefill(absl::StrCat("cpu_append_bf16_512_4096", tail), 512, 4096 + 512, isa, dots);
    }
  }

 private:
  static std::string Name(int32_t kv, int32_t batch) {
    return absl::StrCat("cpu_decode_bf16_kv", kv, "_b", batch);
  }

  void Decode(const std::string& id, int32_t kv, int32_t batch, uint32_t page, const How& how) {
    if (options_.wanted(id)) DecodeFrom(rotation_, id, kv, batch, page, how);
  }

  void DecodeFloat16() {
    std::optional<Rotation> rotation;
    for (const uint32_t threads : {1u, 2u}) {
      const std::string id = absl::StrCat("cpu_decode_f16_kv4096_b16_t", threads);
      if (!options_.wanted(id)) continue;
      if (!rotation.has_value()) {
        rotation.emplace(options_.smoke ? 64 << 20 : 1 << 30, ElementType::kFloat16);
      }
      DecodeFrom(*rotation, id, 4096, 16, kTokensPerBlock, {.threads = threads});
    }
  }

  void DecodeFrom(Rotation& rotation, const std::string& id, int32_t kv, int32_t batch,
                  uint32_t page, const How& how) {
    Call call(rotation.Layer(page), batch, 1, options_.smoke ? 128 : kv, how);
    const uint32_t threads = how.threads;
    const auto bytes = static_cast<double>(call.kv_bytes());
    // Runs a short call several times, as the reads do, because the machine's other work comes in
    // bursts of milliseconds.
    const int calls =
        options_.smoke ? 1 : std::max(1, static_cast<int>(kMeasuredBytes / call.kv_bytes()));
    call.TakeSeconds();
    const auto [value, yardstick] = InterleavedMedians(
        [&] {
          double seconds = 0;
          for (int i = 0; i < calls; ++i) seconds += call.TakeSeconds();
          return calls * bytes / seconds;
        },
        [&] {
          double seconds = 0;
          for (int i = 0; i < calls; ++i) {
            seconds += bytes / ReadBytesPerSecond(rotation.Piece(call.kv_bytes()), threads);
          }
          return calls * bytes / seconds;
        });
    Print({.id = id,
           .value = value / 1e9,
           .unit = "GB/s",
           .yardstick = absl::StrCat("a read of as many bytes by ", threads, " threads"),
           .yardstick_value = yardstick / 1e9});
  }

  // A short chunk of one sequence: what a second thread brings.
  void Chunk(int32_t queries) {
    const std::string id = absl::StrCat("cpu_chunk_", queries, "_kv4096_b1_t2");
    if (!options_.wanted(id)) return;
    const int32_t context = options_.smoke ? 128 : 4096;
    Call two(rotation_.Layer(kTokensPerBlock), 1, queries, context, {.threads = 2});
    Call one(rotation_.Layer(kTokensPerBlock), 1, queries, context, {.threads = 1});
    two.TakeSeconds();
    one.TakeSeconds();
    const auto tokens_per_second = [&](Call& call) {
      constexpr int kCalls = 8;
      double seconds = 0;
      for (int i = 0; i < kCalls; ++i) seconds += call.TakeSeconds();
      return kCalls * queries / seconds;
    };
    const auto [value, yardstick] = InterleavedMedians([&] { return tokens_per_second(two); },
                                                       [&] { return tokens_per_second(one); });
    Print({.id = id,
           .value = value / 1e3,
           .unit = "thousand query tokens/s",
           .yardstick = "the same by one thread",
           .yardstick_value = yardstick / 1e3});
  }

  // Pools of 8 bits compared with bf16, for the same tokens.
  void DecodeFloat8(ElementType type) {
    std::optional<Rotation> rotation;
    const auto measure = [&](const std::string& id, int32_t kv, int32_t batch, const How& how) {
      if (!options_.wanted(id)) return;
      if (!rotation.has_value()) rotation.emplace(options_.smoke ? 64 << 20 : 1 << 30, type);
      const int32_t context = options_.smoke ? 128 : kv;
      Call call(rotation->Layer(kTokensPerBlock), batch, 1, context, how);
      How bf16_how;
      bf16_how.threads = how.threads;
      Call bf16(rotation_.Layer(kTokensPerBlock), batch, 1, context, bf16_how);
      const int calls =
          options_.smoke ? 1 : std::max(1, static_cast<int>(kMeasuredBytes / bf16.kv_bytes()));
      const auto tokens_per_second = [&](Call& measured) {
        double seconds = 0;
        for (int i = 0; i < calls; ++i) seconds += measured.TakeSeconds();
        return static_cast<double>(calls) * batch * context / seconds;
      };
      call.TakeSeconds();
      bf16.TakeSeconds();
      const auto [value, yardstick] = InterleavedMedians([&] { return tokens_per_second(call); },
                                                         [&] { return tokens_per_second(bf16); });
      Print({.id = id,
             .value = value / 1e6,
             .unit = "million tokens of context/s",
             .yardstick = "the same in bf16",
             .yardstick_value = yardstick / 1e6});
    };
    const std::string name =
        type == ElementType::kFloat8E4M3 ? "cpu_decode_e4m3_kv" : "cpu_decode_e5m2_kv";
    for (const uint32_t threads : {1u, 2u}) {
      const std::string tail = absl::StrCat("_t", threads);
      const How fastest = {.threads = threads};
      measure(absl::StrCat(name, "16384_b1", tail), 16384, 1, fastest);
      measure(absl::StrCat(name, "16384_b16", tail), 16384, 16, fastest);
      for (const Isa isa : NamedIsas(options_.smoke)) {
        measure(absl::StrCat(name, "16384_b1", tail, "_", std::string(IsaName(isa))), 16384, 1,
                {.threads = threads, .isa = isa, .decode_isa = isa});
      }
    }
  }

  // Latent attention does the arithmetic of all heads on each byte, so it has two yardsticks: what
  // the same threads read, and how fast they multiply pairs of bf16.
  void DecodeLatent(uint32_t heads, uint32_t threads) {
    const std::string id = absl::StrCat("cpu_decode_latent_h", heads, "_kv4096_b16_t", threads);
    const std::string dots_id = absl::StrCat(id, "_dots");
    if (!options_.wanted(id) && !options_.wanted(dots_id)) return;
    const int32_t context = options_.smoke ? 128 : 4096;
    Call call(rotation_.LatentLayer(), 16, 1, context, {.threads = threads, .heads = heads});
    const auto bytes = static_cast<double>(call.kv_bytes());
    const double operations =
        2.0 * 16 * context * heads * static_cast<double>(kLatentDim + kLatentValueDim);
    call.TakeSeconds();
    if (options_.wanted(id)) {
      const auto [value, yardstick] = InterleavedMedians(
          [&] { return bytes / call.TakeSeconds(); },
          [&] { return ReadBytesPerSecond(rotation_.Piece(call.kv_bytes()), threads); });
      Print({.id = id,
             .value = value / 1e9,
             .unit = "GB/s",
             .yardstick = absl::StrCat("a read of as many bytes by ", threads, " threads"),
             .yardstick_value = yardstick / 1e9});
    }
    const bool dots = kernels::cpu::BestIsa() == Isa::kAvx512Bf16;
    if (!options_.wanted(dots_id)) return;
    const auto [value, yardstick] =
        InterleavedMedians([&] { return operations / call.TakeSeconds(); },
                           [&] {
                             return dots ? Bf16DotFlops(threads)
                                         : Float32Flops(kernels::cpu::FastestDecodeIsa(), threads);
                           });
    Print({.id = dots_id,
           .value = value / 1e9,
           .unit = "GFLOP/s",
           .yardstick = dots ? "dot products of bf16 pairs" : "fused multiplications of fp32",
           .yardstick_value = yardstick / 1e9});
  }

  // Not attention: the rate at which one thread reads the blocks of one head after another.
  void ReadBlocks() {
    const std::string id = "cpu_read_blocks_t1";
    if (!options_.wanted(id)) return;
    const kernels::KvLayer kv = rotation_.Layer(kTokensPerBlock);
    const uint64_t piece_bytes = kv.head_stride_bytes;
    const uint64_t count = (options_.smoke ? uint64_t{1} << 20 : kMeasuredBytes) / piece_bytes;
    std::mt19937 random(1);
    std::vector<const std::byte*> pieces(count);
    const auto [value, yardstick] = InterleavedMedians(
        [&] {
          for (const std::byte*& piece : pieces) {
            const uint32_t slot = random() % kv.num_slots;
            piece = (random() % 2 == 0 ? kv.keys : kv.values) +
                    kv.offset_bytes(slot, random() % kKvHeads, 0);
          }
          return ReadPiecesBytesPerSecond(pieces, piece_bytes);
        },
        [&] { return ReadBytesPerSecond(rotation_.Piece(count * piece_bytes), 1); });
    Print({.id = id,
           .value = value / 1e9,
           .unit = "GB/s",
           .yardstick = "a read of as many bytes by 1 threads",
           .yardstick_value = yardstick / 1e9});
  }

  // dots: the yardstick is the dot product of bf16 pairs, if the machine has it and it is faster
  // than the arithmetic of `isa`.
  void Prefill(const std::string& id, int32_t queries, int32_t context, Isa isa, bool dots) {
    if (!options_.wanted(id)) return;
    if (options_.smoke) queries = context = 32;
    Call call(rotation_.Layer(kTokensPerBlock), 1, queries, context, {.isa = isa});
    const double pairs = double{0.5} * queries * (2.0 * context - queries + 1);
    const double operations = 4 * pairs * kHeads * kHeadDim;
    dots = dots && kernels::cpu::BestIsa() == Isa::kAvx512Bf16 &&
           Bf16DotFlops(1) > Float32Flops(isa, 1);
    call.TakeSeconds();
    const auto [value, yardstick] =
        InterleavedMedians([&] { return operations / call.TakeSeconds(); },
                           [&] { return dots ? Bf16DotFlops(1) : Float32Flops(isa, 1); });
    Print({.id = id,
           .value = value / 1e9,
           .unit = "GFLOP/s",
           .yardstick = dots ? "dot products of bf16 pairs" : "fused multiplications of fp32",
           .yardstick_value = yardstick / 1e9});
  }

  const AttentionBenchOptions options_;
  Rotation rotation_;
};

}  // namespace

void PrintAttentionFigures(const AttentionBenchOptions& options) { AttentionBench(options).Run(); }

}  // namespace pagoda::bench
