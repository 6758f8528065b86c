// Copies blocks from slot to slot. A block of threads copies a piece of a run. A thread loads four
// vectors before it stores the first.
#include "kernels/cuda/cache/cache_args.h"
#include "kernels/cuda/device/launch.h"

namespace pagoda::kernels::cuda {
namespace {

template <class Word>
struct BlockCopyKernel {
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kMinBlocks = 1;
  static constexpr uint32_t kInFlight = 4;
  static constexpr uint64_t kPieceBytes = uint64_t{kThreads} * kInFlight * sizeof(Word);
  using Args = BlockCopyArgs;

  static uint64_t PiecesOfRun(const BlockCopyArgs& args) {
    return (args.copied_bytes + kPieceBytes - 1) / kPieceBytes;
  }

  static PAGODA_DEVICE void Run(const BlockCopyArgs& args) {
    const uint64_t pieces = (args.copied_bytes + kPieceBytes - 1) / kPieceBytes;
    const uint64_t all = args.num_copies * args.num_runs * pieces;
    for (uint64_t i = BlockIndex(); i < all; i += GridBlocks()) {
      const SlotCopy copy = args.copies[i / pieces / args.num_runs];
      if (copy.source >= args.source_slots || copy.target >= args.target_slots) continue;
      const uint64_t first = i / pieces % args.num_runs * args.run_bytes + i % pieces * kPieceBytes;
      const uint64_t left = args.copied_bytes - i % pieces * kPieceBytes;
      CopyPiece(args.source + copy.source * args.slot_bytes + first,
                args.target + copy.target * args.slot_bytes + first,
                (left < kPieceBytes ? left : kPieceBytes) / sizeof(Word));
    }
  }

  static PAGODA_DEVICE void CopyPiece(const std::byte* source, std::byte* target, uint64_t words) {
    const Word* from = reinterpret_cast<const Word*>(source);
    Word* to = reinterpret_cast<Word*>(target);
    Word held[kInFlight];
#pragma unroll
    for (uint32_t k = 0; k < kInFlight; ++k) {
      const uint32_t at = ThreadIndex() + k * kThreads;
      if (at < words) held[k] = from[at];
    }
#pragma unroll
    for (uint32_t k = 0; k < kInFlight; ++k) {
      const uint32_t at = ThreadIndex() + k * kThreads;
      if (at < words) to[at] = held[k];
    }
  }
};

template <class Word>
int LaunchWords(const BlockCopyArgs& args, Stream stream) {
  using Kernel = BlockCopyKernel<Word>;
  return Launch<Kernel>({.blocks = args.num_copies * args.num_runs * Kernel::PiecesOfRun(args)},
                        stream, args);
}

}  // namespace

int LaunchBlockCopy(const BlockCopyArgs& args, Stream stream) {
  const uint64_t low_bits = reinterpret_cast<uintptr_t>(args.source) |
                            reinterpret_cast<uintptr_t>(args.target) | args.slot_bytes |
                            args.run_bytes | args.copied_bytes;
  if (low_bits % 16 == 0) return LaunchWords<Vector16>(args, stream);
  if (low_bits % 4 == 0) return LaunchWords<uint32_t>(args, stream);
  return LaunchWords<uint8_t>(args, stream);
}

}  // namespace pagoda::kernels::cuda
