// Sums are in the order of the host's loops (engine/sampling/sampling_loops_body.h), which the
// kernels follow element by element.
#include "engine/model/cuda/kernels/sampling_kernels.h"

#include "engine/model/cuda/kernels/row_access.h"
#include "kernels/exp_of_negative.h"

namespace pagoda::cuda {
namespace {

using kernels::cuda::LoadShared;
using kernels::cuda::SharedBase;
using kernels::cuda::Shuffle;
using kernels::cuda::Shuffle64;
using kernels::cuda::StoreShared;
using kernels::cuda::SyncThreads;

constexpr uint32_t kNone = ~uint32_t{0};
constexpr uint32_t kPerLane = kDrawBlock / kWarpThreads;

PAGODA_DEVICE bool IsNan(float x) { return x != x; }
// Whether the row's token is drawn: with a temperature, and from more than one token.
PAGODA_DEVICE bool IsRandom(const TokenDraw& draw) {
  return draw.kind == TokenDraw::Kind::kToken && draw.temperature != 0.0f && draw.top_k != 1;
}
PAGODA_DEVICE bool NeedsAllWeights(const TokenDraw& draw) {
  return IsRandom(draw) && draw.top_k == 0;
}

PAGODA_DEVICE uint64_t BlocksOf(const DrawArgs& args) {
  return (args.logits.cols + kDrawBlock - 1) / kDrawBlock;
}
PAGODA_DEVICE const float* ScoresOf(const DrawArgs& args, uint64_t row) {
  return args.logits.data + row * args.logits.stride;
}

PAGODA_DEVICE uint32_t SmallestOfWarp(uint32_t value) {
  for (uint32_t mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    const uint32_t other = Shuffle(value, LaneIndex() ^ mask);
    value = other < value ? other : value;
  }
  return value;
}

// A warp has a block of scores.
struct BlockMaximaKernel {
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kMinBlocks = 1;
  using Args = DrawArgs;

  static PAGODA_DEVICE void Run(const DrawArgs& args) {
    const uint64_t blocks = BlocksOf(args);
    const uint64_t step = uint64_t{GridBlocks()} * (kThreads / kWarpThreads);
    for (uint64_t i = uint64_t{BlockIndex()} * (kThreads / kWarpThreads) + WarpIndex();
         i < args.logits.rows * blocks; i += step) {
      const uint64_t row = i / blocks;
      if (args.draws[row].kind == TokenDraw::Kind::kLogits) continue;
      const float* const scores = ScoresOf(args, row);
      float most = kernels::cuda::NegativeInfinity();
      bool nan = false;
#pragma unroll
      for (uint32_t k = 0; k < kPerLane; ++k) {
        const uint64_t at = i % blocks * kDrawBlock + k * kWarpThreads + LaneIndex();
        if (at >= args.logits.cols) continue;
        const float score = scores[at];
        nan = nan || IsNan(score);
        most = score > most ? score : most;
      }
      for (uint32_t mask = kWarpThreads / 2; mask > 0; mask /= 2) {
        const float other = kernels::cuda::ShuffleXor(most, mask);
        most = other > most ? other : most;
      }
      if (kernels::cuda::AnyOfWarp(nan)) most = std::bit_cast<float>(0x7fc00000u);
      if (LaneIndex() == 0) args.maxima[i] = most;
    }
  }
};

// A warp has a row.
struct MostLikelyKernel {
  static constexpr uint32_t kThreads = kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  using Args = DrawArgs;

  static PAGODA_DEVICE void Run(const DrawArgs& args) {
    for (uint64_t row = BlockIndex(); row < args.logits.rows; row += GridBlocks()) {
      const bool drawn = args.draws[row].kind == TokenDraw::Kind::kToken;
      const uint32_t token = drawn ? MostLikely(args, row) : kNotDrawn;
      if (LaneIndex() == 0) args.tokens[row] = token;
    }
  }

  // The lowest id of the greatest score.
  static PAGODA_DEVICE uint32_t MostLikely(const DrawArgs& args, uint64_t row) {
    const auto blocks = static_cast<uint32_t>(BlocksOf(args));
    const float* const maxima = args.maxima + row * blocks;
    float most = kernels::cuda::NegativeInfinity();
    uint32_t block = kNone;
    bool nan = false;
    for (uint32_t b = LaneIndex(); b < blocks; b += kWarpThreads) {
      const float score = maxima[b];
      nan = nan || IsNan(score);
      if (block != kNone && !(score > most)) continue;
      most = score;
      block = b;
    }
    if (kernels::cuda::AnyOfWarp(nan)) return kNoNumber;
    float of_warp = most;
    for (uint32_t mask = kWarpThreads / 2; mask > 0; mask /= 2) {
      const float other = kernels::cuda::ShuffleXor(of_warp, mask);
      of_warp = other > of_warp ? other : of_warp;
    }
    block = SmallestOfWarp(most == of_warp ? block : kNone);
    const float* const scores = ScoresOf(args, row);
    uint32_t token = kNone;
    for (uint32_t k = kPerLane; k-- > 0;) {
      const uint64_t at = uint64_t{block} * kDrawBlock + k * kWarpThreads + LaneIndex();
      if (at < args.logits.cols && scores[at] == of_warp) token = static_cast<uint32_t>(at);
    }
    if (LaneIndex() == 0) args.most[row] = of_warp;
    return SmallestOfWarp(token);
  }
};

PAGODA_DEVICE double WeightOf(float score, float most, double inverse_temperature) {
  return ExpOfNegative((static_cast<double>(score) - static_cast<double>(most)) *
                       inverse_temperature);
}
PAGODA_DEVICE double InverseTemperature(const TokenDraw& draw) {
  return 1.0 / static_cast<double>(draw.temperature);
}

PAGODA_DEVICE double ShuffleDouble(double value, uint32_t lane) {
  return std::bit_cast<double>(Shuffle64(std::bit_cast<uint64_t>(value), lane));
}

// A warp has a block of scores. Lane l < 8 adds the weights l, l + 8, ..., as the host does.
struct DrawWeightsKernel {
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kMinBlocks = 1;
  static constexpr uint32_t kSums = 8;
  using Args = DrawArgs;

  static PAGODA_DEVICE void Run(const DrawArgs& args) {
    const uint64_t blocks = BlocksOf(args);
    const uint64_t step = uint64_t{GridBlocks()} * (kThreads / kWarpThreads);
    for (uint64_t i = uint64_t{BlockIndex()} * (kThreads / kWarpThreads) + WarpIndex();
         i < args.logits.rows * blocks; i += step) {
      const uint64_t row = i / blocks;
      if (!NeedsAllWeights(args.draws[row]) || args.tokens[row] == kNoNumber) continue;
      const double inverse_temperature = InverseTemperature(args.draws[row]);
      const float most = args.most[row];
      double weights[kPerLane];
#pragma unroll
      for (uint32_t k = 0; k < kPerLane; ++k) {
        const uint64_t at = i % blocks * kDrawBlock + k * kWarpThreads + LaneIndex();
        weights[k] = at < args.logits.cols
                         ? WeightOf(ScoresOf(args, row)[at], most, inverse_temperature)
                         : 0.0;
      }
      double sum = 0;
#pragma unroll
      for (uint32_t m = 0; m < kDrawBlock / kSums; ++m) {
        constexpr uint32_t kRuns = kWarpThreads / kSums;
        sum += ShuffleDouble(weights[m / kRuns], m % kRuns * kSums + LaneIndex() % kSums);
      }
      for (uint32_t apart = kSums / 2; apart > 0; apart /= 2) {
        sum += ShuffleDouble(sum, LaneIndex() + apart);
      }
      if (LaneIndex() == 0) args.sums[i] = sum;
    }
  }
};

// A block of threads has a row. Shared memory: the running sums of the blocks' weights, or the keys
// of the blocks' maxima and the list of blocks; candidates; their weights; sums of warps.
struct DrawKernel {
  static constexpr uint32_t kWarps = 8;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  static constexpr uint32_t kMostCandidates = 2048;
  static_assert(kThreads >= kMostRankedDraw);
  using Args = DrawArgs;

  static uint32_t SharedBytes(uint64_t blocks) {
    return static_cast<uint32_t>(kCandidates + (kMostCandidates + blocks) * sizeof(uint64_t));
  }

  // Offsets in shared memory.
  static constexpr uint32_t kOfWarps = 0;
  static constexpr uint32_t kWeights = kWarps * sizeof(uint64_t);
  static constexpr uint32_t kCandidates = kWeights + kThreads * sizeof(double);
  static constexpr uint32_t kBlocks = kCandidates + kMostCandidates * sizeof(uint64_t);

  template <class T>
  static PAGODA_DEVICE T Load(uint32_t part, uint64_t i) {
    return LoadShared<T>(SharedBase() + part + static_cast<uint32_t>(i * sizeof(T)));
  }
  template <class T>
  static PAGODA_DEVICE void Store(uint32_t part, uint64_t i, T value) {
    StoreShared(SharedBase() + part + static_cast<uint32_t>(i * sizeof(T)), value);
  }

  static PAGODA_DEVICE void Run(const DrawArgs& args) {
    for (uint64_t row = BlockIndex(); row < args.logits.rows; row += GridBlocks()) {
      const TokenDraw& draw = args.draws[row];
      const uint32_t most_likely = args.tokens[row];
      SyncThreads();  // All threads have the token, and the previous row is done.
      if (!IsRandom(draw) || most_likely == kNoNumber || IsInfinite(args.most[row])) continue;
      const double all = draw.top_k == 0 ? AddBlocks(args, row) : 0.0;
      const uint32_t token = draw.top_k == 0 && draw.top_p == 1.0f ? DrawFromAll(args, row, all)
                                                                   : DrawFromFew(args, row, all);
      if (ThreadIndex() == 0) args.tokens[row] = token;
    }
  }

  static PAGODA_DEVICE bool IsInfinite(float x) {
    return (std::bit_cast<uint32_t>(x) & 0x7fffffffu) == 0x7f800000u;
  }

  // Leaves the running sums in shared memory, and returns the last one.
  static PAGODA_DEVICE double AddBlocks(const DrawArgs& args, uint64_t row) {
    const uint64_t blocks = BlocksOf(args);
    const double* const sums = args.sums + row * blocks;
    for (uint64_t b = ThreadIndex(); b < blocks; b += kThreads) Store(kBlocks, b, sums[b]);
    SyncThreads();
    if (ThreadIndex() == 0) {
      // Loads some at a time, so that additions do not wait for each load.
      constexpr uint32_t kAtATime = 8;
      double sum = 0;
      for (uint64_t first = 0; first < blocks; first += kAtATime) {
        double parts[kAtATime];
#pragma unroll
        for (uint32_t k = 0; k < kAtATime; ++k) {
          parts[k] = first + k < blocks ? Load<double>(kBlocks, first + k) : 0.0;
        }
#pragma unroll
        for (uint32_t k = 0; k < kAtATime; ++k) {
          sum += parts[k];
          if (first + k < blocks) Store(kBlocks, first + k, sum);
        }
      }
    }
    SyncThreads();
    return Load<double>(kBlocks, blocks - 1);
  }

  // The smallest value of all threads.
  static PAGODA_DEVICE uint32_t SmallestOfBlock(uint32_t value) {
    const uint32_t of_warp = SmallestOfWarp(value);
    SyncThreads();
    if (LaneIndex() == 0) Store(kOfWarps, WarpIndex(), of_warp);
    SyncThreads();
    uint32_t smallest = kNone;
    for (uint32_t w = 0; w < kWarps; ++w) {
      const uint32_t other = Load<uint32_t>(kOfWarps, w);
      smallest = other < smallest ? other : smallest;
    }
    return smallest;
  }
  static PAGODA_DEVICE uint32_t GreatestOfBlock(uint32_t value) { return ~SmallestOfBlock(~value); }

  // How many threads before this one have `keep`; `all`: how many of the block.
  static PAGODA_DEVICE uint32_t CountBefore(uint32_t keep, uint32_t& all) {
    uint32_t count = keep;
    for (uint32_t apart = 1; apart < kWarpThreads; apart *= 2) {
      const uint32_t other = Shuffle(count, LaneIndex() - apart);
      if (LaneIndex() >= apart) count += other;
    }
    SyncThreads();
    if (LaneIndex() == kWarpThreads - 1) Store(kOfWarps, WarpIndex(), count);
    SyncThreads();
    uint32_t before = count - keep;
    all = 0;
    for (uint32_t w = 0; w < kWarps; ++w) {
      const uint32_t of_warp = Load<uint32_t>(kOfWarps, w);
      if (w < WarpIndex()) before += of_warp;
      all += of_warp;
    }
    return before;
  }

  // The element at which the running sum passes `point`, and not one without weight: the last one
  // with weight up to there.
  static PAGODA_DEVICE uint32_t DrawFromAll(const DrawArgs& args, uint64_t row, double all) {
    const auto blocks = static_cast<uint32_t>(BlocksOf(args));
    const double point = args.draws[row].uniform * all;
    uint32_t first = kNone;
    for (uint32_t b = ThreadIndex(); b < blocks && first == kNone; b += kThreads) {
      if (point < Load<double>(kBlocks, b)) first = b;
    }
    const uint32_t end = SmallestOfBlock(first);
    uint32_t last = 0;
    for (uint32_t b = ThreadIndex(); b < blocks && b <= end; b += kThreads) {
      if (args.sums[row * blocks + b] > 0) last = b;
    }
    const uint32_t block = GreatestOfBlock(last);
    const double before = block == 0 ? 0.0 : Load<double>(kBlocks, block - 1);
    const uint64_t begin = uint64_t{block} * kDrawBlock;
    const uint64_t left = args.logits.cols - begin;
    const auto count = static_cast<uint32_t>(left < kDrawBlock ? left : kDrawBlock);
    if (ThreadIndex() < count) {
      Store(kWeights, ThreadIndex(),
            WeightOf(ScoresOf(args, row)[begin + ThreadIndex()], args.most[row],
                     InverseTemperature(args.draws[row])));
    }
    SyncThreads();
    return static_cast<uint32_t>(begin) + Pick(count, before, point);
  }

  // Picks one of the first `count` weights. Every thread gets the same.
  static PAGODA_DEVICE uint32_t Pick(uint32_t count, double sum, double point) {
    uint32_t picked = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const double weight = Load<double>(kWeights, i);
      if (weight > 0) picked = i;
      sum += weight;
      if (point < sum) break;
    }
    return picked;
  }

  // Greater scores have greater keys. Both zeros have the same.
  static PAGODA_DEVICE uint32_t KeyOf(float score) {
    const auto bits = std::bit_cast<uint32_t>(score + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  }
  static PAGODA_DEVICE float ScoreOf(uint32_t key) {
    return std::bit_cast<float>(key & 0x80000000u ? key & 0x7fffffffu : ~key);
  }

  static PAGODA_DEVICE uint32_t DrawFromFew(const DrawArgs& args, uint64_t row, double all) {
    const TokenDraw& draw = args.draws[row];
    const uint64_t few = draw.top_k == 0 ? kMostRankedDraw : draw.top_k;
    const auto count = static_cast<uint32_t>(few < args.logits.cols ? few : args.logits.cols);
    SyncThreads();  // The running sums have been read.
    const uint32_t candidates = Gather(args, row, LeastKey(args, row, count));
    if (candidates > kMostCandidates) return kNotDrawn;
    Sort(candidates);
    if (ThreadIndex() < count) {
      const auto key = static_cast<uint32_t>(Load<uint64_t>(kCandidates, ThreadIndex()) >> 32);
      Store(kWeights, ThreadIndex(),
            WeightOf(ScoreOf(key), args.most[row], InverseTemperature(draw)));
    }
    SyncThreads();
    if (draw.top_k != 0) {
      for (uint32_t i = 0; i < count; ++i) all += Load<double>(kWeights, i);
    }
    const double enough = static_cast<double>(draw.top_p) * all;
    double kept = 0;
    uint32_t size = 0;
    while (size < count && (size == 0 || kept < enough)) kept += Load<double>(kWeights, size++);
    if (draw.top_k == 0 && kept < enough && count < args.logits.cols) return kNotDrawn;
    const uint64_t picked = Load<uint64_t>(kCandidates, Pick(size, 0.0, draw.uniform * kept));
    return ~static_cast<uint32_t>(picked);
  }

  // A lower bound of the keys of the best `count` scores: the `count`-th greatest block maximum, or
  // score if there are fewer blocks.
  static PAGODA_DEVICE uint32_t LeastKey(const DrawArgs& args, uint64_t row, uint32_t count) {
    const auto blocks = static_cast<uint32_t>(BlocksOf(args));
    for (uint32_t b = ThreadIndex(); b < blocks; b += kThreads) {
      Store(kBlocks, b, KeyOf(args.maxima[row * blocks + b]));
    }
    SyncThreads();
    const bool by_blocks = count <= blocks;
    if (!by_blocks && args.logits.cols <= kMostCandidates) return 0;
    const float* const scores = ScoresOf(args, row);
    const uint64_t size = by_blocks ? blocks : args.logits.cols;
    uint32_t least = 0;
    for (uint32_t bit = 0x80000000u; bit != 0; bit /= 2) {
      uint32_t above = 0;
      for (uint64_t i = ThreadIndex(); i < size; i += kThreads) {
        const uint32_t key = by_blocks ? Load<uint32_t>(kBlocks, i) : KeyOf(scores[i]);
        if (key >= (least | bit)) ++above;
      }
      uint32_t all = 0;
      CountBefore(above, all);
      if (all >= count) least |= bit;
    }
    return least;
  }

  // Gathers the scores whose keys are at least `least`, with their tokens. Returns their number;
  // more than kMostCandidates: there are too many.
  static PAGODA_DEVICE uint32_t Gather(const DrawArgs& args, uint64_t row, uint32_t least) {
    const auto blocks = static_cast<uint32_t>(BlocksOf(args));
    const uint32_t list = kBlocks + blocks * sizeof(uint32_t);
    uint32_t listed = 0;
    for (uint32_t first = 0; first < blocks; first += kThreads) {
      const uint32_t b = first + ThreadIndex();
      const bool keep = b < blocks && Load<uint32_t>(kBlocks, b) >= least;
      uint32_t all = 0;
      const uint32_t before = CountBefore(keep ? 1 : 0, all);
      if (keep) Store(list, listed + before, b);
      listed += all;
    }
    SyncThreads();
    constexpr uint32_t kAtATime = 4;
    const float* const scores = ScoresOf(args, row);
    uint32_t gathered = 0;
    for (uint32_t first = 0; first < listed * kDrawBlock; first += kThreads * kAtATime) {
      uint32_t keys[kAtATime];
      uint32_t tokens[kAtATime];
      uint32_t kept = 0;
#pragma unroll
      for (uint32_t k = 0; k < kAtATime; ++k) {
        const uint32_t i = first + k * kThreads + ThreadIndex();
        tokens[k] = kNone;
        if (i >= listed * kDrawBlock) continue;
        const uint32_t token =
            Load<uint32_t>(list, i / kDrawBlock) * static_cast<uint32_t>(kDrawBlock) +
            i % static_cast<uint32_t>(kDrawBlock);
        if (token >= args.logits.cols) continue;
        keys[k] = KeyOf(scores[token]);
        if (keys[k] < least) continue;
        tokens[k] = token;
        ++kept;
      }
      uint32_t all = 0;
      uint32_t at = gathered + CountBefore(kept, all);
      gathered += all;
      if (gathered > kMostCandidates) return gathered;
#pragma unroll
      for (uint32_t k = 0; k < kAtATime; ++k) {
        if (tokens[k] == kNone) continue;
        // Among equal scores, the lower token has the greater key.
        Store(kCandidates, at++, uint64_t{keys[k]} << 32 | ~tokens[k]);
      }
    }
    SyncThreads();
    return gathered;
  }

  // Sorts the candidates in descending order (Batcher's bitonic sort).
  static PAGODA_DEVICE void Sort(uint32_t candidates) {
    uint32_t size = 2;
    while (size < candidates) size *= 2;
    for (uint32_t i = candidates + ThreadIndex(); i < size; i += kThreads) {
      Store(kCandidates, i, uint64_t{0});
    }
    SyncThreads();
    for (uint32_t run = 2; run <= size; run *= 2) {
      for (uint32_t apart = run / 2; apart > 0; apart /= 2) {
        for (uint32_t i = ThreadIndex(); i < size / 2; i += kThreads) {
          const uint32_t low = i / apart * 2 * apart + i % apart;
          const uint64_t a = Load<uint64_t>(kCandidates, low);
          const uint64_t b = Load<uint64_t>(kCandidates, low + apart);
          const bool descends = (low & run) == 0;
          if ((a < b) != descends) continue;
          Store(kCandidates, low, b);
          Store(kCandidates, low + apart, a);
        }
        SyncThreads();
      }
    }
  }
};

// Launches one warp for each block of scores.
template <class Kernel>
int LaunchByBlocks(const DrawArgs& args, kernels::cuda::Stream stream) {
  constexpr uint64_t kWarps = Kernel::kThreads / kWarpThreads;
  return kernels::cuda::Launch<Kernel>(
      {.blocks = (args.logits.rows * args.blocks() + kWarps - 1) / kWarps}, stream, args);
}

}  // namespace

int LaunchMostLikely(const DrawArgs& args, kernels::cuda::Stream stream) {
  const int error = LaunchByBlocks<BlockMaximaKernel>(args, stream);
  if (error != 0) return error;
  return kernels::cuda::Launch<MostLikelyKernel>({.blocks = args.logits.rows}, stream, args);
}

int LaunchDrawWeights(const DrawArgs& args, kernels::cuda::Stream stream) {
  return LaunchByBlocks<DrawWeightsKernel>(args, stream);
}

int LaunchDraw(const DrawArgs& args, kernels::cuda::Stream stream) {
  return kernels::cuda::Launch<DrawKernel>(
      {.blocks = args.logits.rows, .shared_bytes = DrawKernel::SharedBytes(args.blocks())}, stream,
      args);
}

}  // namespace pagoda::cuda
