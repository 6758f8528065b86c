#include "tests/manager/largest_operations.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "manager/sequences/pin_table.h"
#include "manager/shared_manager.h"

namespace pagoda {
namespace {

std::vector<MultimodalItem> OneImage() {
  return {{.digest = {1, 2, 3, 4}, .token_start = 0, .token_count = 1, .item_offset = 0}};
}

// One range for each block. Neighbours differ, and each has a duration.
SequenceRetention Ranges(uint32_t count) {
  SequenceRetention retention;
  for (uint32_t i = 0; i < count; ++i) {
    const Priority priority{static_cast<uint8_t>(50 + i % 2)};
    retention.ranges.push_back({.token_start = i * kTokensPerBlock,
                                .token_end = (i + 1) * kTokensPerBlock,
                                .retention = {.priority = priority, .duration = absl::Hours(1)}});
  }
  return retention;
}

// The whole cache as one sequence, named and computed.
void AddWhole(Cache& cache) {
  cache.Run(AddSequence{.sequence = kFirst, .tokens = Tokens(kCacheTokens)});
}
void ComputeWhole(Cache& cache) {
  AddWhole(cache);
  cache.Run(CommitTokens{.sequence = kFirst, .computed_tokens = kCacheTokens});
}
void CacheWhole(Cache& cache) {
  ComputeWhole(cache);
  cache.Run(FreeSequence{.sequence = kFirst});
}
void CacheOneBlock(Cache& cache) {
  cache.Run(AddSequence{.sequence = kFirst, .tokens = Tokens(kTokensPerBlock)});
  cache.Run(CommitTokens{.sequence = kFirst, .computed_tokens = kTokensPerBlock});
  cache.Run(FreeSequence{.sequence = kFirst});
}

// Caches a prompt of the whole cache with an image at the first token.
void CacheWholeWithImage(Cache& cache) {
  cache.Run(AddSequence{
      .sequence = kFirst, .tokens = Tokens(kCacheTokens), .multimodal_items = OneImage()});
  cache.Run(CommitTokens{.sequence = kFirst, .computed_tokens = kCacheTokens});
  cache.Run(FreeSequence{.sequence = kFirst});
}
// Pins one prefix of this many tokens as often as possible.
void PinAll(Cache& cache, uint32_t tokens, absl::Duration lease) {
  const Operation pin = PinPrefix{.tokens = Tokens(tokens), .lease = lease};
  const std::vector<Operation> pins(kMaxBatchOperations, pin);
  // Until one is refused.
  while (cache.manager().Execute(cache.session(), pins)->results.back().ok()) {
  }
}

// The cache in equal parts, one for each of as many tenants as possible.
constexpr uint32_t kTenants = kMaxTenants;
BlockManager::Options ManyTenants() {
  BlockManager::Options options = TwoTiers();
  options.tiers.resize(1);
  for (uint32_t i = 0; i < kTenants; ++i) {
    options.tenants.push_back({.name = absl::StrCat("tenant ", i)});
  }
  return options;
}
void CacheOfMany(Cache& cache) {
  constexpr uint32_t kPart = kCacheTokens / kTenants;
  for (uint16_t i = 1; i <= kTenants; ++i) {
    cache.OpenSession(TenantId{i});
    cache.Run(AddSequence{.sequence = kFirst, .tokens = Tokens(kPart)});
    cache.Run(CommitTokens{.sequence = kFirst, .computed_tokens = kPart});
    cache.Run(FreeSequence{.sequence = kFirst});
  }
  cache.OpenSession(kDefaultTenant);
}

// A path in a sliding window. Every eighth block is a hole beside a block that shares all but one
// of its tokens. A match could end at each of them, if there were a whole tail.
constexpr uint32_t kHoles = kBlocks / 9, kFromHoleToHole = 8;
constexpr WindowSize kWindow{kFromHoleToHole * kTokensPerBlock};
BlockManager::Options SlidingWindow() {
  BlockManager::Options options = TwoTiers();
  options.layout =
      *CacheLayout::Create({.name = "test",
                            .tokens_per_block = kTokensPerBlock,
                            .layers = {{.window = kWindow, .num_kv_heads = 1, .head_dim = 1}}});
  options.tiers.resize(1);
  return options;
}
std::vector<TokenId> PathWithHoles() { return Tokens(kHoles * kWindow.value()); }
void CachePathWithHoles(Cache& cache) {
  const std::vector<TokenId> path = PathWithHoles();
  const auto end = static_cast<uint32_t>(path.size());
  SequenceRetention first;
  for (uint32_t hole = 1; hole <= kHoles; ++hole) {
    first.ranges.push_back({.token_start = hole * kWindow.value() - kTokensPerBlock,
                            .token_end = hole * kWindow.value(),
                            .retention = {.priority = Priority{0}}});
  }
  cache.Run(AddSequence{.sequence = kFirst, .tokens = path});
  for (uint32_t hole = kWindow.value(); hole <= end; hole += kWindow.value()) {
    cache.Run(CommitTokens{.sequence = kFirst, .computed_tokens = hole - 1});
    cache.Run(ForkSequence{.sequence = kFirst, .new_sequence = kSecond});
    cache.Run(TruncateSequence{.sequence = kSecond, .token_count = hole - 1});
    cache.Run(AppendTokens{.sequence = kSecond, .tokens = {1'000'000}, .computed_tokens = hole});
    cache.Run(FreeSequence{.sequence = kSecond});
  }
  cache.Run(CommitTokens{.sequence = kFirst, .computed_tokens = end});
  cache.Run(FreeSequence{.sequence = kFirst});
  cache.Run(SetRetention{.tokens = path, .retention = first});
  const uint32_t free = kBlocks - kHoles * (kFromHoleToHole + 1);
  cache.Run(AllocateBlocks{.window = kWindow, .count = free + kHoles});
  EXPECT_EQ(cache.manager().Read(&BlockManager::Stats).windows[0].holes, kHoles - 1);
}

// A step of as many sequences as possible, which have this many tokens before it. No two are alike.
AppendStep StepOf(Cache& cache, uint32_t tokens, AppendStep step) {
  for (uint32_t i = 0; i < kMaxStepSequences; ++i) {
    std::vector<TokenId> prompt = Tokens(tokens);
    prompt[0] = 1'000'000 + i;
    step.sequences.emplace_back(i + 1);
    cache.Run(AddSequence{.sequence = step.sequences.back(), .tokens = std::move(prompt)});
  }
  return step;
}

// The rows of each operation. An operation without them does not compile.
template <class T>
struct Largest;

#define LARGEST(Op, ...)                                       \
  template <>                                                  \
  struct Largest<Op> {                                         \
    static constexpr char kName[] = #Op;                       \
    static std::vector<Case> Cases() { return {__VA_ARGS__}; } \
  }

LARGEST(AllocateBlocks, {"all blocks", [](Cache&) { return AllocateBlocks{.count = kBlocks}; }},
        {"all blocks, of 256 tenants",
         [](Cache& cache) {
           CacheOfMany(cache);
           return AllocateBlocks{.count = kBlocks};
         },
         ManyTenants},
        {"one, when all pins expire",
         [](Cache& cache) {
           constexpr uint32_t kPinned = PinTable::kMaxReferences / PinTable::kMaxPins;
           CacheWhole(cache);
           PinAll(cache, kPinned * kTokensPerBlock, absl::Hours(1));
           cache.Advance(absl::Hours(1));
           return AllocateBlocks{.count = 1};
         }},
        {"one, when all priorities expire",
         [](Cache& cache) {
           CacheWhole(cache);
           cache.Run(SetRetention{.tokens = Tokens(kCacheTokens), .retention = Ranges(kMaxRanges)});
           cache.Advance(absl::Hours(1));
           return AllocateBlocks{.count = 1};
         }},
        {"one, when a step of all tokens is completed", [](Cache& cache) {
           ComputeWhole(cache);
           cache.EnterStep({.step = 1});
           cache.Run(FreeSequence{.sequence = kFirst});
           cache.EnterStep({.step = 2, .completed_step = 1});
           return AllocateBlocks{.count = 1};
         }});
LARGEST(FreeBlocks, {"all blocks", [](Cache& cache) {
                       FreeBlocks op;
                       const auto got =
                           cache.Run<AllocatedBlocks>(AllocateBlocks{.count = kBlocks});
                       for (const BlockHandle& block : got.blocks) op.blocks.push_back(block.ref());
                       return op;
                     }});
LARGEST(FillBlocks,
        {"all blocks", [](Cache& cache) {
           FillBlocks op;
           const auto got = cache.Run<AllocatedBlocks>(AllocateBlocks{.count = kBlocks});
           for (const BlockHandle& block : got.blocks) {
             op.blocks.push_back({block.ref(), kTokensPerBlock, BlockFill::End::kFinal});
           }
           return op;
         }});
LARGEST(DescribeBlocks,
        {"all blocks, of a sequence and 16 forks",
         [](Cache& cache) {
           DescribeBlocks op;
           ComputeWhole(cache);
           for (uint64_t i = 0; i < 16; ++i) {
             cache.Run(ForkSequence{.sequence = kFirst, .new_sequence = SequenceId{100 + i}});
           }
           const auto told = cache.Run<DescribedSequence>(DescribeSequence{.sequence = kFirst});
           for (const BlockHandle& block : told.tables[0].blocks) op.blocks.push_back(block.ref());
           return op;
         }},
        {"1,048,576 blocks, all raw", [](Cache& cache) {
           DescribeBlocks op;
           const auto got = cache.Run<AllocatedBlocks>(AllocateBlocks{.count = kBlocks});
           for (size_t i = 0; i < kMaxBatchHandles; ++i) {
             op.blocks.push_back(got.blocks[i % kBlocks].ref());
           }
           return op;
         }});
LARGEST(AddSequence,
        {"all tokens",
         [](Cache&) { return AddSequence{.sequence = kFirst, .tokens = Tokens(kCacheTokens)}; }},
        {"all tokens, with an image",
         [](Cache&) {
           return AddSequence{
               .sequence = kFirst, .tokens = Tokens(kCacheTokens), .multimodal_items = OneImage()};
         }},
        {"all tokens, with an extra id each",
         [](Cache&) {
           return AddSequence{.sequence = kFirst,
                              .tokens = Tokens(kCacheTokens),
                              .extra_token_ids = std::vector<uint64_t>(kCacheTokens, 7)};
         }},
        {"all tokens, for blocks of 256 tenants",
         [](Cache& cache) {
           CacheOfMany(cache);
           return AddSequence{.sequence = kFirst, .tokens = Tokens(kCacheTokens)};
         },
         ManyTenants},
        {"all tokens, cached in a lower tier",
         [](Cache& cache) {
           CacheWhole(cache);
           cache.Run(OffloadPrefix{.tokens = Tokens(kCacheTokens)});
           return AddSequence{.sequence = kFirst, .tokens = Tokens(kCacheTokens)};
         }},
        {"all tokens, cached, with 65,536 retention ranges",
         [](Cache& cache) {
           CacheWhole(cache);
           return AddSequence{
               .sequence = kFirst, .tokens = Tokens(kCacheTokens), .retention = Ranges(kMaxRanges)};
         }},
        {"a message of tokens, with an image, refused",
         [](Cache&) {
           return AddSequence{
               .sequence = kFirst, .tokens = Tokens(kMessageBytes), .multimodal_items = OneImage()};
         }},
        {"65,537 retention ranges, refused", [](Cache&) {
           return AddSequence{
               .sequence = kFirst, .tokens = {1, 2, 3}, .retention = Ranges(kMaxRanges + 1)};
         }});
LARGEST(ReserveTokens, {"all tokens", [](Cache& cache) {
                          cache.Run(AddSequence{.sequence = kFirst, .tokens = Tokens(1)});
                          return ReserveTokens{.sequence = kFirst, .count = kCacheTokens - 1};
                        }});
LARGEST(CommitTokens, {"all tokens", [](Cache& cache) {
                         AddWhole(cache);
                         return CommitTokens{.sequence = kFirst, .computed_tokens = kCacheTokens};
                       }});
LARGEST(AppendTokens, {"all tokens", [](Cache& cache) {
                         cache.Run(AddSequence{.sequence = kFirst, .tokens = Tokens(1)});
                         return AppendTokens{.sequence = kFirst,
                                             .tokens = Tokens(kCacheTokens - 1),
                                             .computed_tokens = kCacheTokens};
                       }});
LARGEST(AppendStep,
        {"1,024 sequences, a token each",
         [](Cache& cache) { return StepOf(cache, 1, {.tokens = Tokens(kMaxStepSequences)}); }},
        {"1,024 sequences, a block each",
         [](Cache& cache) {
           return StepOf(
               cache, kTokensPerBlock,
               {.computed_tokens = std::vector<uint32_t>(kMaxStepSequences, kTokensPerBlock),
                .tokens = Tokens(kMaxStepSequences)});
         }},
        {"1,024 sequences, all tokens",
         [](Cache& cache) {
           const uint32_t each = kCacheTokens / kMaxStepSequences;
           return StepOf(cache, 1,
                         {.token_counts = std::vector<uint32_t>(kMaxStepSequences, each - 1),
                          .computed_tokens = std::vector<uint32_t>(kMaxStepSequences, each),
                          .tokens = Tokens((each - 1) * kMaxStepSequences)});
         }},
        {"1,024 sequences that are not there", [](Cache&) {
           AppendStep step{.tokens = Tokens(kMaxStepSequences)};
           for (uint32_t i = 0; i < kMaxStepSequences; ++i) step.sequences.emplace_back(i + 1);
           return step;
         }});
LARGEST(FreeSequence,
        {"all tokens",
         [](Cache& cache) {
           ComputeWhole(cache);
           return FreeSequence{.sequence = kFirst};
         }},
        {"all tokens, in a step", [](Cache& cache) {
           ComputeWhole(cache);
           cache.EnterStep({.step = 1});
           return FreeSequence{.sequence = kFirst};
         }});
LARGEST(MatchPrefix,
        {"all tokens, cached",
         [](Cache& cache) {
           CacheWhole(cache);
           return MatchPrefix{.tokens = Tokens(kCacheTokens)};
         }},
        {"a message of tokens, all blocks cached",
         [](Cache& cache) {
           CacheWhole(cache);
           return MatchPrefix{.tokens = Tokens(kMessageBytes)};
         }},
        {"a message of tokens, with an image, all blocks cached",
         [](Cache& cache) {
           CacheWholeWithImage(cache);
           return MatchPrefix{.tokens = Tokens(kMessageBytes), .multimodal_items = OneImage()};
         }},
        {"a path with holes in a sliding window",
         [](Cache& cache) {
           CachePathWithHoles(cache);
           return MatchPrefix{.tokens = PathWithHoles()};
         },
         SlidingWindow});
LARGEST(DescribePools, {"one pool a tier", [](Cache&) { return DescribePools{}; }});
LARGEST(DescribeSequence, {"all tokens", [](Cache& cache) {
                             AddWhole(cache);
                             return DescribeSequence{.sequence = kFirst};
                           }});
LARGEST(ForkSequence,
        {"all tokens, computed",
         [](Cache& cache) {
           ComputeWhole(cache);
           return ForkSequence{.sequence = kFirst, .new_sequence = kSecond};
         }},
        {"all tokens, not computed", [](Cache& cache) {
           cache.Run(AddSequence{
               .sequence = kFirst, .tokens = Tokens(kCacheTokens), .reserved_tokens = 1});
           return ForkSequence{.sequence = kFirst, .new_sequence = kSecond};
         }});
// The block that is cut is cached, with others below it, so the sequence takes a free one.
LARGEST(TruncateSequence,
        {"all tokens but a block's, to one", [](Cache& cache) {
           constexpr uint32_t kTokens = kCacheTokens - kTokensPerBlock;
           cache.Run(AddSequence{.sequence = kFirst, .tokens = Tokens(kTokens)});
           cache.Run(CommitTokens{.sequence = kFirst, .computed_tokens = kTokens});
           return TruncateSequence{.sequence = kFirst, .token_count = 1};
         }});
LARGEST(QueryCapacity, {"a message of tokens, all blocks cached", [](Cache& cache) {
                          CacheWhole(cache);
                          return QueryCapacity{.tokens = Tokens(kMessageBytes)};
                        }});
LARGEST(OffloadPrefix, {"all tokens", [](Cache& cache) {
                          CacheWhole(cache);
                          return OffloadPrefix{.tokens = Tokens(kCacheTokens)};
                        }});
LARGEST(PrefetchPrefix, {"all tokens", [](Cache& cache) {
                           CacheWhole(cache);
                           cache.Run(OffloadPrefix{.tokens = Tokens(kCacheTokens)});
                           return PrefetchPrefix{.tokens = Tokens(kCacheTokens)};
                         }});
LARGEST(PinPrefix,
        {"all tokens",
         [](Cache& cache) {
           CacheWhole(cache);
           return PinPrefix{.tokens = Tokens(kCacheTokens)};
         }},
        {"a path with holes in a sliding window",
         [](Cache& cache) {
           CachePathWithHoles(cache);
           return PinPrefix{.tokens = PathWithHoles()};
         },
         SlidingWindow});
LARGEST(UnpinPrefix, {"all tokens", [](Cache& cache) {
                        CacheWhole(cache);
                        const auto pinned =
                            cache.Run<PinnedPrefix>(PinPrefix{.tokens = Tokens(kCacheTokens)});
                        return UnpinPrefix{.pin = pinned.pin};
                      }});
LARGEST(ListPins, {"all pins", [](Cache& cache) {
                     CacheOneBlock(cache);
                     PinAll(cache, kTokensPerBlock, absl::InfiniteDuration());
                     return ListPins{};
                   }});
LARGEST(InvalidatePrefix, {"all tokens", [](Cache& cache) {
                             CacheWhole(cache);
                             return InvalidatePrefix{};
                           }});
LARGEST(SetRetention,
        {"all tokens, 65,536 retention ranges",
         [](Cache& cache) {
           CacheWhole(cache);
           return SetRetention{.tokens = Tokens(kCacheTokens), .retention = Ranges(kMaxRanges)};
         }},
        {"a path with holes in a sliding window",
         [](Cache& cache) {
           CachePathWithHoles(cache);
           return SetRetention{.tokens = PathWithHoles(), .retention = Ranges(kMaxRanges)};
         },
         SlidingWindow},
        {"65,537 retention ranges, refused", [](Cache& cache) {
           CacheWhole(cache);
           return SetRetention{.tokens = Tokens(kCacheTokens), .retention = Ranges(kMaxRanges + 1)};
         }});
LARGEST(WaitForTicket, {"a copy that is done", [](Cache&) { return WaitForTicket{}; }});

template <size_t... kIndex>
std::vector<Row> RowsOf(std::index_sequence<kIndex...>) {
  std::vector<Row> rows;
  const auto add = [&rows](const char* name, std::vector<Case> cases) {
    for (Case& one : cases) rows.push_back({name, std::move(one)});
  };
  (add(Largest<std::variant_alternative_t<kIndex, OperationVariant>>::kName,
       Largest<std::variant_alternative_t<kIndex, OperationVariant>>::Cases()),
   ...);
  return rows;
}

}  // namespace

std::vector<Row> AllRows() {
  return RowsOf(std::make_index_sequence<std::variant_size_v<OperationVariant>>());
}

}  // namespace pagoda
