#include "tests/gpu/yardsticks.h"

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/launch.h"

namespace pagoda::kernels::cuda {
namespace {

struct ReadArgs {
  const Vector16* memory;
  uint64_t vectors;
  uint32_t* sink;
};

struct ReadKernel {
  static constexpr uint32_t kThreads = 512;
  static constexpr uint32_t kMinBlocks = 2;
  static constexpr uint32_t kInFlight = 8;
  using Args = ReadArgs;

  static PAGODA_DEVICE void Run(const ReadArgs& args) {
    uint32_t any = 0;
    const uint64_t step = uint64_t{GridBlocks()} * kThreads * kInFlight;
    for (uint64_t i = uint64_t{BlockIndex()} * kThreads * kInFlight + ThreadIndex();
         i < args.vectors; i += step) {
      Vector16 held[kInFlight];
#pragma unroll
      for (uint32_t k = 0; k < kInFlight; ++k) {
        const uint64_t at = i + uint64_t{k} * kThreads;
        held[k] = at < args.vectors ? LoadGlobal16(args.memory + at) : Vector16{};
      }
#pragma unroll
      for (uint32_t k = 0; k < kInFlight; ++k) {
        any |= held[k].words[0] | held[k].words[1] | held[k].words[2] | held[k].words[3];
      }
    }
    if (any == 0) *args.sink = 1;
  }
};

struct ProductArgs {
  float* sink;
};

struct ProductKernel {
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kMinBlocks = 2;
  static constexpr uint32_t kChains = 8;  // Sums that are independent of each other.
  static constexpr uint32_t kRounds = 4096;
  using Args = ProductArgs;

  static PAGODA_DEVICE void Run(const ProductArgs& args) {
    float sums[kChains][4];
    for (uint32_t c = 0; c < kChains; ++c) {
      for (uint32_t r = 0; r < 4; ++r) sums[c][r] = 0;
    }
    // Numbers with varied bits, so that the tensor cores work as with real data.
    uint32_t a[4];
    uint32_t seed = ThreadIndex() * 2654435761u + BlockIndex();
    for (uint32_t r = 0; r < 4; ++r) {
      seed = seed * 1664525u + 1013904223u;
      a[r] = (seed & 0x807f807fu) | 0x3f003f00u;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < kRounds; ++i) {
#pragma unroll
      for (uint32_t c = 0; c < kChains; ++c) MultiplyMatrices<BFloat16>(sums[c], a, a[1], a[c % 4]);
    }
    float all = 0;
    for (uint32_t c = 0; c < kChains; ++c) {
      for (uint32_t r = 0; r < 4; ++r) all += sums[c][r];
    }
    if (all == 1.0f) *args.sink = all;
  }
};

constexpr uint32_t kBlocksEach = 2;

}  // namespace

int LaunchRead(const void* memory, uint64_t bytes, uint32_t* sink, Stream stream) {
  return Launch<ReadKernel>(
      {.blocks = bytes / (16 * ReadKernel::kThreads * ReadKernel::kInFlight)}, stream,
      {.memory = static_cast<const Vector16*>(memory), .vectors = bytes / 16, .sink = sink});
}

uint64_t ProductOperations(uint32_t multiprocessors) {
  constexpr uint64_t kWarps = ProductKernel::kThreads / kWarpThreads;
  return uint64_t{multiprocessors} * kBlocksEach * kWarps * ProductKernel::kChains *
         ProductKernel::kRounds * 2 * 16 * 8 * 16;
}

int LaunchProducts(uint32_t multiprocessors, float* sink, Stream stream) {
  return Launch<ProductKernel>({.blocks = uint64_t{multiprocessors} * kBlocksEach}, stream,
                               {.sink = sink});
}

}  // namespace pagoda::kernels::cuda
