#include "tests/bench/kernels/cache_bench.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/block_copy.h"
#include "kernels/cpu/cache/cache.h"
#include "tests/bench/figure.h"
#include "tests/bench/kernels/machine_peaks.h"

namespace pagoda::bench {
namespace {

using kernels::ElementType;

constexpr uint32_t kHeads = 8;
constexpr uint32_t kHeadDim = 128;
constexpr uint32_t kTokensPerBlock = 16;
constexpr uint64_t kRowElements = uint64_t{kHeads} * kHeadDim;

// A pool and rows, and the calls on them.
class CacheBed {
 public:
  explicit CacheBed(const CacheBenchOptions& options)
      : options_(options), pool_(options.pool_bytes), rows_(options.pool_bytes) {}

  // Seconds of one call that writes `bytes` of pool, or reads them.
  double Fill(ElementType from, ElementType to, uint64_t bytes, const kernels::cpu::Execution& on) {
    const Call call = NextCall(from, to, bytes);
    return Run([&] {
      return kernels::cpu::FillCache({.rows = call.rows,
                                      .starts = call.starts,
                                      .first_positions = call.first_positions,
                                      .block_tables = call.table,
                                      .block_table_stride = call.table.size(),
                                      .kv = call.kv},
                                     on);
    });
  }
  double WriteSlots(uint64_t bytes, const kernels::cpu::Execution& on) {
    const Call call = NextCall(ElementType::kBFloat16, ElementType::kBFloat16, bytes);
    std::vector<int64_t> slots;
    for (uint32_t token = 0; token < kTokensPerBlock; ++token) {
      for (const int32_t slot : call.table) {
        slots.push_back(int64_t{slot} * kTokensPerBlock + token);
      }
    }
    return Run([&] {
      return kernels::cpu::WriteCache({.rows = call.rows, .token_slots = slots, .kv = call.kv}, on);
    });
  }
  double Gather(ElementType from, ElementType to, uint64_t bytes,
                const kernels::cpu::Execution& on) {
    const Call call = NextCall(to, from, bytes);
    return Run([&] {
      return kernels::cpu::GatherCache({.keys = const_cast<void*>(call.rows.keys),
                                        .values = const_cast<void*>(call.rows.values),
                                        .type = to,
                                        .starts = call.starts,
                                        .block_tables = call.table,
                                        .block_table_stride = call.table.size(),
                                        .kv = call.kv},
                                       on);
    });
  }
  // Copies from the rows as if they were another pool.
  double CopyBlocks(uint64_t slot_bytes, uint64_t bytes, const kernels::cpu::Execution& on) {
    const auto slots = static_cast<uint32_t>(options_.pool_bytes / slot_bytes);
    const std::vector<int32_t> targets = NextSlots(slots, bytes / slot_bytes);
    std::vector<kernels::SlotCopy> copies(targets.size());
    std::transform(targets.begin(), targets.end(), copies.begin(), [&](int32_t target) {
      const auto slot = static_cast<uint32_t>(target);
      return kernels::SlotCopy{.source = (slot * 7 + 3) % slots, .target = slot};
    });
    return Run([&] {
      return kernels::cpu::CopyBlocks({.source = rows_.bytes().data(),
                                       .target = pool_.bytes().data(),
                                       .source_slots = slots,
                                       .target_slots = slots,
                                       .slot_bytes = slot_bytes,
                                       .copies = copies},
                                      on);
    });
  }
  double Memcpy(uint64_t bytes, uint32_t num_threads) {
    const uint64_t at = NextBytes(bytes);
    return CopyBytesPerSecond(pool_.bytes().subspan(at, bytes), rows_.bytes().subspan(at, bytes),
                              num_threads);
  }

 private:
  struct Call {
    kernels::KvLayer kv;
    kernels::CacheRows rows;
    std::vector<int32_t> starts;
    std::vector<int32_t> first_positions = {0};
    std::vector<int32_t> table;
  };

  static double Run(const std::function<absl::Status()>& call) {
    absl::Status status;
    const double seconds = Seconds([&] { status = call(); });
    PAGODA_CHECK(status.ok(), "a benchmark's calls succeed");
    return seconds;
  }

  // Where the next call on `bytes` of the rows begins.
  uint64_t NextBytes(uint64_t bytes) {
    if (next_byte_ + bytes > options_.pool_bytes) next_byte_ = 0;
    return std::exchange(next_byte_, next_byte_ + bytes);
  }
  // The next `count` of a random order of all slots.
  std::vector<int32_t> NextSlots(uint32_t slots, uint64_t count) {
    std::vector<int32_t>& order = orders_[slots];
    if (order.empty()) {
      order.resize(slots);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random_);
    }
    if (next_slot_ + count > slots) next_slot_ = 0;
    const auto begin = order.begin() + static_cast<ptrdiff_t>(next_slot_);
    next_slot_ += count;
    return {begin, begin + static_cast<ptrdiff_t>(count)};
  }
  Call NextCall(ElementType row_type, ElementType pool_type, uint64_t pool_bytes) {
    const uint64_t part_bytes = kTokensPerBlock * kRowElements * ElementBytes(pool_type);
    const uint64_t blocks = pool_bytes / (2 * part_bytes);
    const uint64_t tokens = blocks * kTokensPerBlock;
    Call call;
    call.kv = {.keys = pool_.bytes().data(),
               .values = pool_.bytes().data() + part_bytes,
               .type = pool_type,
               .num_slots = static_cast<uint32_t>(options_.pool_bytes / (2 * part_bytes)),
               .num_kv_heads = kHeads,
               .tokens_per_block = kTokensPerBlock,
               .head_dim = kHeadDim,
               .slot_stride_bytes = 2 * part_bytes,
               .head_stride_bytes = part_bytes / kHeads,
               .token_stride_bytes = part_bytes / kHeads / kTokensPerBlock};
    const uint64_t rows_bytes = tokens * kRowElements * ElementBytes(row_type);
    const std::byte* rows = rows_.bytes().data() + NextBytes(2 * rows_bytes);
    call.rows = {.keys = rows,
                 .values = rows + rows_bytes,
                 .type = row_type,
                 .key_token_stride = kRowElements,
                 .value_token_stride = kRowElements};
    call.starts = {0, static_cast<int32_t>(tokens)};
    call.table = NextSlots(call.kv.num_slots, blocks);
    return call;
  }

  CacheBenchOptions options_;
  ColdMemory pool_;
  ColdMemory rows_;
  std::mt19937 random_{1};
  std::map<uint32_t, std::vector<int32_t>> orders_;
  uint64_t next_slot_ = 0;
  uint64_t next_byte_ = 0;
};

}  // namespace

void PrintCacheFigures(const CacheBenchOptions& options) {
  constexpr auto kBf16 = ElementType::kBFloat16, kFp32 = ElementType::kFloat32,
                 kFp8 = ElementType::kFloat8E4M3;
  const uint64_t large = options.call_bytes;
  const uint64_t small = std::min(large, uint64_t{4} << 20);
  CacheBed bed(options);
  for (const uint32_t threads : {1u, 2u}) {
    kernels::cpu::ThreadPool pool(threads);
    const kernels::cpu::Execution on{.threads = &pool};
    // `bytes`: half of the bytes that a call reads and writes.
    const auto print = [&](std::string id, uint64_t bytes, const std::function<double()>& call) {
      id += threads == 1 ? "_t1" : "_t2";
      if (!options.wanted(id)) return;
      const auto amount = static_cast<double>(bytes);
      const auto [rate, copy] = InterleavedMedians([&] { return amount / call(); },
                                                   [&] { return bed.Memcpy(bytes, threads); });
      Print({.id = id,
             .value = rate / 1e9,
             .unit = "GB/s",
             .yardstick = "memcpy",
             .yardstick_value = copy / 1e9});
    };
    print("cpu_cache_write", large, [&] { return bed.Fill(kBf16, kBf16, large, on); });
    print("cpu_cache_write_slots", large, [&] { return bed.WriteSlots(large, on); });
    print("cpu_cache_write_fp32", large / 4 * 3,
          [&] { return bed.Fill(kFp32, kBf16, large / 2, on); });
    print("cpu_cache_write_fp8", large / 4 * 3,
          [&] { return bed.Fill(kBf16, kFp8, large / 2, on); });
    print("cpu_cache_write_4m", small, [&] { return bed.Fill(kBf16, kBf16, small, on); });
    print("cpu_gather", large, [&] { return bed.Gather(kBf16, kBf16, large, on); });
    print("cpu_gather_fp8", large / 4 * 3, [&] { return bed.Gather(kFp8, kBf16, large / 2, on); });
    print("cpu_block_copy_64k", large, [&] { return bed.CopyBlocks(64 << 10, large, on); });
    print("cpu_block_copy_2m", large, [&] { return bed.CopyBlocks(2 << 20, large, on); });
    print("cpu_block_copy_4m", small, [&] { return bed.CopyBlocks(64 << 10, small, on); });
  }
}

}  // namespace pagoda::bench
