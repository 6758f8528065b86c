// The speed of the core: single thread, in process, through the public API. deploy/bench.sh manager
// runs it.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "manager/block_manager.h"
#include "manager/cache_lists.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/shared_manager.h"
#include "tests/bench/figure.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/manager/fixtures/prompt_of.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kTokensPerBlock = 16;
constexpr uint32_t kPromptTokens = 4096;
constexpr uint32_t kPromptBlocks = kPromptTokens / kTokensPerBlock;

const absl::Time kNow = absl::UnixEpoch();

std::string Suffix(uint32_t blocks) { return blocks >= 1'000'000 ? "1m" : "10k"; }

// The policy of all figures but those that compare policies, so that they can be compared over the
// years. The default policy is in those.
constexpr std::string_view kPolicy = "lru";

constexpr WindowSize kSlidingWindow{1024};

// A core with a session, and prompts that it has cached.
class Bed {
 public:
  explicit Bed(uint32_t blocks, RecordEvents record = RecordEvents::kYes,
               std::string_view policy = kPolicy, WindowSize window = kFullAttention)
      : core_(*BlockManager::Create(
            {.layout = *CacheLayout::Create(
                 {.tokens_per_block = kTokensPerBlock,
                  .layers = {{.window = window, .num_kv_heads = 1, .head_dim = 1}}}),
             .tiers = HostTiers({blocks}),
             .eviction_policy = std::string(policy),
             .lifecycle_events = LifecycleEvents::kOff,
             .record_events = record})),
        session_(core_->OpenSession("bench", absl::InfiniteDuration(), kNow)->ref.id) {}

  BlockManager& core() { return *core_; }
  SessionId session() const { return session_; }

  std::vector<TokenId> RandomTokens(uint32_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_());
    return tokens;
  }
  uint32_t Pick(size_t n) { return static_cast<uint32_t>(random_() % n); }

  // A whole request that generates nothing: match, reserve, commit, free.
  void Serve(const std::vector<TokenId>& prompt, uint32_t computed_tokens) {
    const SequenceId id{++sequences_};
    Require(core_->sequences().AddSequence(session_, id, PromptOf({}, prompt), kNow).status());
    Require(core_->sequences().CommitTokens(session_, id, {}, computed_tokens, kNow).status());
    Require(core_->sequences().FreeSequence(session_, id, kNow));
    core_->TakeEvents();
  }
  // Fills the pool with cached prompts of `tokens` tokens, and keeps up to `keep` of them.
  void Fill(uint32_t tokens, size_t keep) {
    const uint32_t blocks = core_->info().windows[0].blocks_in(kPrimaryTier);
    for (uint32_t i = 0; i < blocks / (tokens / kTokensPerBlock); ++i) {
      std::vector<TokenId> prompt = RandomTokens(tokens + 1);
      Serve(prompt, tokens);
      if (prompts_.size() < keep) prompts_.push_back(std::move(prompt));
    }
  }
  const std::vector<std::vector<TokenId>>& prompts() const { return prompts_; }

  static void Require(const absl::Status& status) {
    PAGODA_CHECK(status.ok(), "a benchmark's operations succeed");
  }

 private:
  std::unique_ptr<BlockManager> core_;
  SessionId session_;
  std::mt19937_64 random_{1};
  uint64_t sequences_ = 0;
  std::vector<std::vector<TokenId>> prompts_;
};

// Seconds of one random find in a hash map with as many entries as there are blocks.
double HashFindSeconds(uint32_t entries) {
  absl::flat_hash_map<uint64_t, uint64_t> map;
  std::mt19937_64 random(2);
  std::vector<uint64_t> keys(entries);
  for (uint64_t& key : keys) {
    key = random();
    map[key] = key;
  }
  std::shuffle(keys.begin(), keys.end(), random);
  const size_t finds = std::min<size_t>(keys.size(), 100'000);
  uint64_t sum = 0;
  size_t next = 0;
  const double seconds = MedianSeconds([&] {
    return Seconds([&] {
      for (size_t i = 0; i < finds; ++i) sum += map.find(keys[next++ % keys.size()])->second;
    });
  });
  PAGODA_CHECK(sum != 0, "the finds are not optimised away");
  return seconds / static_cast<double>(finds);
}

double AllocateAndFree(uint32_t blocks) {
  constexpr int kCalls = 400;
  Bed bed(blocks);
  std::vector<BlockHandle> handles(256);
  std::vector<BlockRef> refs(handles.size());
  const double seconds = MedianSeconds([&] {
    return Seconds([&] {
      for (int i = 0; i < kCalls; ++i) {
        Bed::Require(
            bed.core()
                .raw_blocks()
                .AllocateBlocks(bed.session(), kFullAttention, absl::MakeSpan(handles), kNow)
                .status());
        std::transform(handles.begin(), handles.end(), refs.begin(),
                       [](const BlockHandle& handle) { return handle.ref(); });
        Bed::Require(bed.core().raw_blocks().FreeBlocks(bed.session(), kFullAttention, refs, kNow));
      }
    });
  });
  return seconds / (kCalls * static_cast<double>(handles.size()));
}

double MatchHit(uint32_t blocks) {
  constexpr int kCalls = 200;
  Bed bed(blocks);
  bed.Fill(kPromptTokens, blocks / kPromptBlocks);
  uint64_t matched = 0;
  const double seconds = MedianSeconds([&] {
    return Seconds([&] {
      for (int i = 0; i < kCalls; ++i) {
        matched += bed.core().prefixes().Match(
            PromptOf({}, bed.prompts()[bed.Pick(bed.prompts().size())]));
      }
    });
  });
  PAGODA_CHECK(matched == uint64_t{kCalls} * kRepetitions * kPromptTokens,
               "every prompt is cached");
  return seconds / kCalls;
}

// A whole request whose prompt is cached.
double ServeHitIn(WindowSize window, uint32_t blocks) {
  constexpr int kCalls = 100;
  Bed bed(blocks, RecordEvents::kYes, kPolicy, window);
  bed.Fill(kPromptTokens, blocks / kPromptBlocks);
  const double seconds = MedianSeconds([&] {
    return Seconds([&] {
      for (int i = 0; i < kCalls; ++i) {
        bed.Serve(bed.prompts()[bed.Pick(bed.prompts().size())], kPromptTokens);
      }
    });
  });
  PAGODA_CHECK(bed.core().Stats().windows[0].counters.prefix_hit_tokens ==
                   uint64_t{kCalls} * kRepetitions * kPromptTokens,
               "every prompt is cached");
  return seconds / kCalls;
}

double ServeHit(uint32_t blocks) { return ServeHitIn(kFullAttention, blocks); }
double ServeSlidingHit(uint32_t blocks) { return ServeHitIn(kSlidingWindow, blocks); }

// How long the scans behind the status page hold the core's lock at once: the p99 of a chunk of
// `scan`, and the median.
template <class Scan>
std::pair<double, double> ScanPieces(uint32_t blocks, const Scan& scan) {
  Bed bed(blocks);
  bed.Fill(64, 0);  // With short prompts, neighbouring blocks belong to many prompts.
  std::vector<double> pieces;
  const uint32_t count = blocks / SharedManager::kScanPiece;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    for (uint32_t i = 0; i < count; ++i) {
      pieces.push_back(Seconds([&] { scan(bed.core(), i * SharedManager::kScanPiece); }));
    }
  }
  return {Percentile(pieces, 0.99), Percentile(pieces, 0.5)};
}

void PrintScans(uint32_t blocks) {
  const auto print = [](std::string id, std::pair<double, double> pieces) {
    Print({.id = std::move(id),
           .value = pieces.first * 1e6,
           .unit = "us",
           .yardstick = "the median piece",
           .yardstick_value = pieces.second * 1e6});
  };
  std::vector<SlotState> states(SharedManager::kScanPiece);
  print("scan_slots_piece_p99", ScanPieces(blocks, [&](const BlockManager& core, uint32_t from) {
          core.lists().SlotStates(0, kPrimaryTier, from, absl::MakeSpan(states));
        }));
  std::vector<PrefixNode> nodes(SharedManager::kScanPiece);
  print("scan_prefixes_piece_p99", ScanPieces(blocks, [&](const BlockManager& core, uint32_t from) {
          core.lists().PrefixNodes(from, absl::MakeSpan(nodes));
        }));
}

// One repetition with prompts that a full pool does not have cached.
class MissBed {
 public:
  MissBed(uint32_t blocks, RecordEvents record, std::string_view policy = kPolicy,
          WindowSize window = kFullAttention)
      : bed_(blocks, record, policy, window) {
    bed_.Fill(kPromptTokens, 0);
    evicted_before_ = Evicted();
  }
  double SecondsOfOne() {
    std::vector<std::vector<TokenId>> prompts(kCalls);
    for (auto& prompt : prompts) prompt = bed_.RandomTokens(kPromptTokens);
    ++repetitions_;
    return Seconds([&] {
             for (const auto& prompt : prompts) bed_.Serve(prompt, kPromptTokens);
           }) /
           kCalls;
  }
  void Check() const {
    PAGODA_CHECK(
        Evicted() - evicted_before_ >= uint64_t{kCalls} * (repetitions_ - 1) * kPromptBlocks,
        "a miss on a full pool evicts");
  }

 private:
  static constexpr int kCalls = 100;
  uint64_t Evicted() const { return bed_.core().Stats().windows[0].counters.evicted_blocks; }

  mutable Bed bed_;
  uint64_t evicted_before_ = 0;
  uint64_t repetitions_ = 0;
};

double MissIn(WindowSize window, uint32_t blocks) {
  MissBed bed(blocks, RecordEvents::kYes, kPolicy, window);
  const double seconds = MedianSeconds([&] { return bed.SecondsOfOne(); });
  bed.Check();
  return seconds;
}
double MissWithEvents(uint32_t blocks) { return MissIn(kFullAttention, blocks); }
double SlidingMiss(uint32_t blocks) { return MissIn(kSlidingWindow, blocks); }

// The two alternate, so that a disturbance affects both. Returns the median of each.
std::pair<double, double> MissWithAndWithoutEvents(uint32_t blocks) {
  MissBed loud(blocks, RecordEvents::kYes), silent(blocks, RecordEvents::kNo);
  std::vector<double> without;
  const double with = MedianSeconds([&] {
    without.push_back(silent.SecondsOfOne());
    return loud.SecondsOfOne();
  });
  loud.Check();
  silent.Check();
  std::sort(without.begin(), without.end());
  return {with, without[without.size() / 2]};
}

// Evicts requests of 64 tokens from a pool full of such requests. Freeing the blocks that this took
// is not measured.
class EvictionBed {
 public:
  explicit EvictionBed(uint32_t blocks, std::string_view policy = kPolicy)
      : bed_(blocks, RecordEvents::kYes, policy), handles_(kRequestTokens / kTokensPerBlock) {
    bed_.Fill(kRequestTokens, 0);
  }

  // The seconds of one request.
  double SecondsOfOne() {
    for (uint32_t i = 0; i * handles_.size() < taken_.size(); ++i) {  // Fill up again.
      Bed::Require(bed_.core().raw_blocks().FreeBlocks(
          bed_.session(), kFullAttention,
          absl::MakeSpan(taken_).subspan(i * handles_.size(), handles_.size()), kNow));
      bed_.Serve(bed_.RandomTokens(kRequestTokens), kRequestTokens);
    }
    taken_.clear();
    const double seconds = Seconds([&] {
      for (int i = 0; i < kCalls; ++i) {
        Bed::Require(
            bed_.core()
                .raw_blocks()
                .AllocateBlocks(bed_.session(), kFullAttention, absl::MakeSpan(handles_), kNow)
                .status());
        bed_.core().TakeEvents();
        for (const BlockHandle& handle : handles_) taken_.push_back(handle.ref());
      }
    });
    return seconds / kCalls;
  }

 private:
  static constexpr int kCalls = 500;
  static constexpr uint32_t kRequestTokens = 64;

  Bed bed_;
  std::vector<BlockHandle> handles_;
  std::vector<BlockRef> taken_;
};

double EvictRequest(uint32_t blocks) {
  EvictionBed bed(blocks);
  return MedianSeconds([&] { return bed.SecondsOfOne(); });
}

// The two alternate, so that a disturbance affects both.
template <class Bed>
void PrintLearnedBesideLru(const std::string& id, Bed& learned, Bed& lru) {
  std::vector<double> of_lru;
  const double seconds = MedianSeconds([&] {
    of_lru.push_back(lru.SecondsOfOne());
    return learned.SecondsOfOne();
  });
  std::sort(of_lru.begin(), of_lru.end());
  Print({.id = id,
         .value = seconds * 1e6,
         .unit = "us",
         .yardstick = "policy lru",
         .yardstick_value = of_lru[of_lru.size() / 2] * 1e6});
}

// The time of a decode step of 256 sequences, for each of them. step(bed, first, computed) appends
// a token to the sequences from `first` on.
constexpr uint64_t kStepSequences = 256;
template <class Step>
double DecodeSeconds(Step step) {
  constexpr int kSteps = 64;
  // Enough blocks for all repetitions: the figure measures appending, not evicting.
  Bed bed(65'536);
  uint64_t next = 0;
  const double seconds = MedianSeconds([&] {
    const uint64_t first = next;
    next += kStepSequences;
    for (uint64_t i = 0; i < kStepSequences; ++i) {
      Bed::Require(bed.core()
                       .sequences()
                       .AddSequence(bed.session(), SequenceId{first + i},
                                    PromptOf({}, bed.RandomTokens(100)), kNow)
                       .status());
    }
    uint32_t computed = 100;
    const double step_seconds = Seconds([&] {
      for (int i = 0; i < kSteps; ++i, ++computed) {
        step(bed, first, computed);
        bed.core().TakeEvents();
      }
    });
    for (uint64_t i = 0; i < kStepSequences; ++i) {
      Bed::Require(bed.core().sequences().FreeSequence(bed.session(), SequenceId{first + i}, kNow));
    }
    bed.core().TakeEvents();
    return step_seconds;
  });
  return seconds / (kStepSequences * kSteps);
}

double AppendDecode(uint32_t) {
  return DecodeSeconds([](Bed& bed, uint64_t first, uint32_t computed) {
    for (uint64_t i = 0; i < kStepSequences; ++i) {
      const TokenId token = static_cast<TokenId>(i);
      Bed::Require(
          bed.core()
              .sequences()
              .AppendTokens(bed.session(), SequenceId{first + i}, {&token, 1}, computed, kNow)
              .status());
    }
  });
}

double AppendOneStep(uint32_t) {
  AppendStep step{.sequences = std::vector<SequenceId>(kStepSequences),
                  .computed_tokens = std::vector<uint32_t>(kStepSequences),
                  .tokens = std::vector<TokenId>(kStepSequences)};
  std::iota(step.tokens.begin(), step.tokens.end(), 0);
  return DecodeSeconds([&](Bed& bed, uint64_t first, uint32_t computed) {
    for (uint64_t i = 0; i < kStepSequences; ++i) {
      step.sequences[i] = SequenceId{first + i};
      step.computed_tokens[i] = computed;
    }
    const auto appended = bed.core().sequences().AppendStep(bed.session(), step, kNow);
    Bed::Require(appended.status());
    PAGODA_CHECK(appended->failed.empty(), "there is room for all");
  });
}

// The bytes of memory that a core full of cached blocks takes for each block, tokens included: the
// resident bytes with the core, less those without it.
double MetadataBytes(uint32_t blocks) {
  const auto in_use = [] {
    malloc_trim(0);
    uint64_t size = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> size >> resident;
    return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
  };
  const double before = in_use();
  Bed bed(blocks);
  bed.Fill(kPromptTokens, 0);
  return (in_use() - before) / blocks;
}

// Measures the figures whose ids begin with `prefix`.
void Run(std::string_view prefix) {
  const auto wanted = [&](const std::string& id) { return id.starts_with(prefix); };
  for (const uint32_t blocks : {10'000u, 1'000'000u}) {
    std::optional<double> find;  // Measured only if a figure needs it.
    const auto beside = [&](const std::string& id, double (*seconds)(uint32_t), std::string unit,
                            double units_per_second) {
      if (!wanted(id)) return;
      if (!find.has_value()) find = HashFindSeconds(blocks);
      Print({.id = id,
             .value = seconds(blocks) * units_per_second,
             .unit = std::move(unit),
             .yardstick = "flat_hash_map_find",
             .yardstick_value = *find * units_per_second});
    };
    const std::string suffix = Suffix(blocks);
    beside("alloc_free_256_" + suffix, AllocateAndFree, "ns", 1e9);
    beside("match_4096_hit_" + suffix, MatchHit, "us", 1e6);
    beside("serve_4096_hit_" + suffix, ServeHit, "us", 1e6);
    beside("miss_4096_full_" + suffix, MissWithEvents, "us", 1e6);
    beside("sliding_serve_4096_hit_" + suffix, ServeSlidingHit, "us", 1e6);
    beside("sliding_miss_4096_" + suffix, SlidingMiss, "us", 1e6);
    const std::string events_cost = blocks == 10'000u ? "events_cost_10k" : "events_cost";
    if (wanted(events_cost)) {
      const auto [miss, silent] = MissWithAndWithoutEvents(blocks);
      Print({.id = events_cost,
             .value = (miss - silent) * 1e6,
             .unit = "us",
             .yardstick = "the miss without events",
             .yardstick_value = silent * 1e6});
    }
    beside("evict_request_" + suffix, EvictRequest, "us", 1e6);
    if (const std::string id = "policy_miss_4096_" + suffix; wanted(id)) {
      MissBed learned(blocks, RecordEvents::kYes, "learned"),
          lru(blocks, RecordEvents::kYes, "lru");
      PrintLearnedBesideLru(id, learned, lru);
    }
    if (const std::string id = "policy_evict_request_" + suffix; wanted(id)) {
      EvictionBed learned(blocks, "learned"), lru(blocks, "lru");
      PrintLearnedBesideLru(id, learned, lru);
    }
    if (blocks == 10'000u) {
      beside("append_decode_256", AppendDecode, "ns", 1e9);
      beside("append_step_256", AppendOneStep, "ns", 1e9);
    } else if (wanted("metadata_bytes")) {
      Print({.id = "metadata_bytes",
             .value = MetadataBytes(blocks),
             .unit = "bytes",
             .yardstick = "token ids of a block",
             .yardstick_value = kTokensPerBlock * sizeof(TokenId)});
    }
  }
  if (wanted("scan_")) PrintScans(1'000'000);
}

}  // namespace
}  // namespace pagoda::bench

int main(int argc, char** argv) {
  if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
    std::fprintf(stderr, "usage: %s [FIGURE]: all figures, or those whose ids begin so\n", argv[0]);
    return 2;
  }
  pagoda::bench::Run(argc == 2 ? argv[1] : "");
}
