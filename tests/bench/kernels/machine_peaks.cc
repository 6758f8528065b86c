#include "tests/bench/kernels/machine_peaks.h"

#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/check.h"

namespace pagoda::bench {
namespace {

using kernels::cpu::Isa;

constexpr uint64_t kStreams = 4;
// The bytes read from one stream before the next stream's turn.
constexpr uint64_t kStepBytes = 256;

// Keeps the compiler from dropping the computed value.
template <class T>
void Use(const T& value) {
  asm volatile("" : : "m"(value) : "memory");
}

using Streams = std::array<const std::byte*, kStreams>;

// Each of these reads the streams in turn, step by step.
__attribute__((target("avx512f"))) void ReadAvx512(const Streams& data, uint64_t stream_bytes) {
  __m512i sum[4] = {};
  for (uint64_t i = 0; i < stream_bytes; i += kStepBytes) {
    for (uint64_t stream = 0; stream < kStreams; ++stream) {
      const std::byte* step = data[stream] + i;
      for (int k = 0; k < 4; ++k) {
        sum[k] = _mm512_xor_si512(sum[k], _mm512_loadu_si512(step + 64 * k));
      }
    }
  }
  Use(sum);
}

__attribute__((target("avx2"))) void ReadAvx2(const Streams& data, uint64_t stream_bytes) {
  __m256i sum[8] = {};
  for (uint64_t i = 0; i < stream_bytes; i += kStepBytes) {
    for (uint64_t stream = 0; stream < kStreams; ++stream) {
      const auto* step = reinterpret_cast<const __m256i*>(data[stream] + i);
      for (int k = 0; k < 8; ++k) {
        sum[k] = _mm256_xor_si256(sum[k], _mm256_loadu_si256(step + k));
      }
    }
  }
  Use(sum);
}

void ReadPortable(const Streams& data, uint64_t stream_bytes) {
  uint64_t sum[kStepBytes / sizeof(uint64_t)] = {};
  for (uint64_t i = 0; i < stream_bytes; i += kStepBytes) {
    for (uint64_t stream = 0; stream < kStreams; ++stream) {
      uint64_t step[kStepBytes / sizeof(uint64_t)];
      std::memcpy(step, data[stream] + i, kStepBytes);
      for (uint64_t k = 0; k < kStepBytes / sizeof(uint64_t); ++k) sum[k] ^= step[k];
    }
  }
  Use(sum);
}

void Read(const Streams& data, uint64_t stream_bytes) {
  const Isa isa = kernels::cpu::BestIsa();
  if (isa >= Isa::kAvx512) return ReadAvx512(data, stream_bytes);
  if (isa >= Isa::kAvx2) return ReadAvx2(data, stream_bytes);
  ReadPortable(data, stream_bytes);
}

constexpr uint64_t kFlopRounds = 1'000'000;
// The number of independent sums. It is larger than an instruction's latency times the number of
// instructions that start in a cycle, and smaller than the number of registers. Each sum begins
// with another number, so that the compiler does not merge them.
constexpr int kSums512 = 24;
constexpr int kSums256 = 12;

// What one thread computed.
using FlopLoop = double (*)();

__attribute__((target("avx512f,avx512bf16"))) double Bf16Dots() {
  __m512 sums[kSums512];
  for (int k = 0; k < kSums512; ++k) sums[k] = _mm512_set1_ps(static_cast<float>(k));
  __m512 left = _mm512_set1_ps(1.0f), right = _mm512_set1_ps(0.5f);
  for (uint64_t round = 0; round < kFlopRounds; ++round) {
    // New unknown values: the compiler cannot derive one round from another.
    asm volatile("" : "+v"(left), "+v"(right));
#pragma GCC unroll 24
    for (int k = 0; k < kSums512; ++k) {
      sums[k] = _mm512_dpbf16_ps(sums[k], reinterpret_cast<__m512bh>(left),
                                 reinterpret_cast<__m512bh>(right));
    }
  }
  Use(sums);
  return double{kFlopRounds} * kSums512 * 32 * 2;
}

__attribute__((target("avx512f"))) double FusedAvx512() {
  __m512 sums[kSums512];
  for (int k = 0; k < kSums512; ++k) sums[k] = _mm512_set1_ps(static_cast<float>(k));
  __m512 left = _mm512_set1_ps(1.0f), right = _mm512_set1_ps(0.5f);
  for (uint64_t round = 0; round < kFlopRounds; ++round) {
    asm volatile("" : "+v"(left), "+v"(right));
#pragma GCC unroll 24
    for (int k = 0; k < kSums512; ++k) sums[k] = _mm512_fmadd_ps(left, right, sums[k]);
  }
  Use(sums);
  return double{kFlopRounds} * kSums512 * 16 * 2;
}

__attribute__((target("avx2,fma"))) double FusedAvx2() {
  __m256 sums[kSums256];
  for (int k = 0; k < kSums256; ++k) sums[k] = _mm256_set1_ps(static_cast<float>(k));
  __m256 left = _mm256_set1_ps(1.0f), right = _mm256_set1_ps(0.5f);
  for (uint64_t round = 0; round < kFlopRounds; ++round) {
    asm volatile("" : "+x"(left), "+x"(right));
#pragma GCC unroll 12
    for (int k = 0; k < kSums256; ++k) sums[k] = _mm256_fmadd_ps(left, right, sums[k]);
  }
  Use(sums);
  return double{kFlopRounds} * kSums256 * 8 * 2;
}

double FusedPortable() {
  __m128 sums[kSums256];
  for (int k = 0; k < kSums256; ++k) sums[k] = _mm_set1_ps(static_cast<float>(k));
  const __m128 left = _mm_set1_ps(1.0f), right = _mm_set1_ps(0.5f);
  for (uint64_t round = 0; round < kFlopRounds; ++round) {
#pragma GCC unroll 12
    for (int k = 0; k < kSums256; ++k) {
      __m128 factor = left;
      asm volatile("" : "+x"(factor));  // Makes each sum do its own multiplication.
      sums[k] = _mm_add_ps(sums[k], _mm_mul_ps(factor, right));
    }
  }
  Use(sums);
  return double{kFlopRounds} * kSums256 * 4 * 2;
}

double Flops(FlopLoop loop, uint32_t num_threads) {
  std::vector<double> operations(num_threads);
  const double seconds =
      SecondsOnThreads(num_threads, [&](uint32_t thread) { operations[thread] = loop(); });
  return operations[0] * num_threads / seconds;
}

// The size of a thread's piece of `bytes`: a multiple of one step of all streams.
uint64_t PieceBytes(uint64_t bytes, uint32_t num_threads) {
  constexpr uint64_t kUnit = kStreams * kStepBytes;
  return bytes / num_threads / kUnit * kUnit;
}

}  // namespace

ColdMemory::ColdMemory(uint64_t bytes) : size_(bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  PAGODA_CHECK(memory != MAP_FAILED, "a benchmark gets its memory");
  data_ = static_cast<std::byte*>(memory);
  madvise(data_, size_, MADV_HUGEPAGE);  // If it fails, the figures are lower but still right.
  std::memset(data_, 0x3f, size_);
}

ColdMemory::~ColdMemory() { munmap(data_, size_); }

double SecondsOnThreads(uint32_t num_threads, const std::function<void(uint32_t)>& body) {
  using Clock = std::chrono::steady_clock;
  std::barrier start(num_threads);
  std::vector<Clock::time_point> begins(num_threads), ends(num_threads);
  const auto run = [&](uint32_t thread) {
    start.arrive_and_wait();
    begins[thread] = Clock::now();
    body(thread);
    ends[thread] = Clock::now();
  };
  std::vector<std::thread> threads;
  for (uint32_t thread = 1; thread < num_threads; ++thread) threads.emplace_back(run, thread);
  run(0);
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) -
                                       *std::min_element(begins.begin(), begins.end()))
      .count();
}

double ReadBytesPerSecond(absl::Span<const std::byte> memory, uint32_t num_threads) {
  const uint64_t piece = PieceBytes(memory.size(), num_threads);
  const double seconds = SecondsOnThreads(num_threads, [&](uint32_t thread) {
    const std::byte* data = memory.data() + thread * piece;
    const uint64_t bytes = piece / kStreams;
    Read({data, data + bytes, data + 2 * bytes, data + 3 * bytes}, bytes);
  });
  return static_cast<double>(piece * num_threads) / seconds;
}

double ReadPiecesBytesPerSecond(absl::Span<const std::byte* const> pieces, uint64_t piece_bytes) {
  PAGODA_CHECK(pieces.size() % kStreams == 0 && piece_bytes % kStepBytes == 0,
               "pieces are read in whole steps of all streams");
  const double seconds = SecondsOnThreads(1, [&](uint32_t) {
    for (size_t i = 0; i < pieces.size(); i += kStreams) {
      Read({pieces[i], pieces[i + 1], pieces[i + 2], pieces[i + 3]}, piece_bytes);
    }
  });
  return static_cast<double>(pieces.size() * piece_bytes) / seconds;
}

double CopyBytesPerSecond(absl::Span<std::byte> target, absl::Span<const std::byte> source,
                          uint32_t num_threads) {
  const uint64_t piece = PieceBytes(target.size(), num_threads);
  const double seconds = SecondsOnThreads(num_threads, [&](uint32_t thread) {
    std::memcpy(target.data() + thread * piece, source.data() + thread * piece, piece);
  });
  return static_cast<double>(piece * num_threads) / seconds;
}

double Bf16DotFlops(uint32_t num_threads) { return Flops(Bf16Dots, num_threads); }

double Float32Flops(Isa isa, uint32_t num_threads) {
  if (isa >= Isa::kAvx512) return Flops(FusedAvx512, num_threads);
  return Flops(isa == Isa::kAvx2 ? FusedAvx2 : FusedPortable, num_threads);
}

}  // namespace pagoda::bench
