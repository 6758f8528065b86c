// Namespaces with client keys: blocks are named by opaque keys, as whole blocks only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const NamespaceKey kKeyed{.keyed = true};

std::vector<ClientKey> Keys(const std::vector<std::string>& names) {
  std::vector<ClientKey> keys;
  for (const std::string& name : names) keys.push_back(*ClientKey::Make(name));
  return keys;
}

class KeyedTest : public ConformanceTest {
 protected:
  uint32_t AddKeys(uint64_t id, const std::vector<std::string>& names, uint32_t reserved_tokens = 0,
                   const NamespaceKey& name_space = kKeyed) {
    return Add({.sequence = SequenceId{id},
                .name_space = name_space,
                .tokens = {},
                .reserved_tokens = reserved_tokens,
                .keys = Keys(names)});
  }
  // Adds, computes all, frees.
  uint32_t ServeKeys(uint64_t id, const std::vector<std::string>& names,
                     const NamespaceKey& name_space = kKeyed) {
    const uint32_t matched = AddKeys(id, names, 0, name_space);
    Compute(id, static_cast<uint32_t>(names.size()) * core_->info().tokens_per_block);
    Free(id);
    return matched;
  }
  uint32_t MatchKeys(const std::vector<std::string>& names,
                     const NamespaceKey& name_space = kKeyed) {
    return Run(MatchPrefix{.name_space = name_space, .keys = Keys(names)})->matched_tokens;
  }
};

TEST_F(KeyedTest, ASequenceMayMatchItsLastBlockToo) {
  Make(4, 8);
  EXPECT_EQ(ServeKeys(1, {"a", "b", "c"}), 0u);
  EXPECT_EQ(CachedBlocks(), 3u);
  EXPECT_EQ(MatchKeys({"a", "b", "c"}), 12u);
  EXPECT_EQ(AddKeys(2, {"a", "b", "c"}), 12u);
  const DescribedSequence described = Describe(2);
  EXPECT_EQ(described.token_count, 12u);
  EXPECT_EQ(described.computed_tokens, 12u);
  EXPECT_EQ(described.reserved_tokens, 12u);
  EXPECT_EQ(AddKeys(3, {"a", "b", "d"}), 8u);
}

TEST_F(KeyedTest, KeysThatBeginAlikeShareNothing) {
  Make(4, 16);
  const std::string longest(64, 'x');
  std::string other = longest;
  other.back() = 'y';
  ServeKeys(1, {"abcd"});
  ServeKeys(2, {longest});
  for (const std::string& name :
       {std::string("abcde"), std::string("abc"), std::string("abcd\0", 5), std::string("\0", 1),
        other, longest.substr(0, 63)}) {
    EXPECT_EQ(ServeKeys(3, {name}), 0u);
    EXPECT_EQ(MatchKeys({name}), 4u);
  }
  EXPECT_EQ(CachedBlocks(), 8u);
  EXPECT_EQ(MatchKeys({"abcd"}), 4u);
  EXPECT_EQ(MatchKeys({longest}), 4u);
}

TEST_F(KeyedTest, AKeyNamesABlockBelowThoseBeforeIt) {
  Make(4, 16);
  ServeKeys(1, {"a", "b"});
  EXPECT_EQ(MatchKeys({"b"}), 0u);
  EXPECT_EQ(MatchKeys({"a"}), 4u);
  EXPECT_EQ(ServeKeys(2, {"c", "b"}), 0u);
  EXPECT_EQ(CachedBlocks(), 4u);
}

// This also holds if a block of tokens has exactly the words of a key.
TEST_F(KeyedTest, KeysAndTokensShareNoBlock) {
  Make(32, 8);
  const ClientKey key = Keys({std::string(64, 'k')}).front();
  Tokens tokens(key.words().begin(), key.words().end());
  tokens.resize(32);
  Serve(1, tokens);
  EXPECT_EQ(MatchKeys({std::string(64, 'k')}), 0u);
  ServeKeys(2, {std::string(64, 'k')});
  EXPECT_EQ(CachedBlocks(), 2u);
  EXPECT_EQ(Match(tokens + Tokens{1}), 32u);
  EXPECT_EQ(MatchKeys({std::string(64, 'k')}), 32u);
  EXPECT_EQ(MatchKeys({std::string(64, 'k')}, {.cache_salt = "s", .keyed = true}), 0u);
}

TEST_F(KeyedTest, BlocksOfOneTokenHaveKeysOf64Bytes) {
  Make(1, 8);
  const std::string first(64, '1'), second(64, '2');
  EXPECT_EQ(ServeKeys(1, {first, second}), 0u);
  EXPECT_EQ(ServeKeys(2, {first, second}), 2u);
  EXPECT_EQ(ServeKeys(3, {second, first}), 0u);
}

TEST_F(KeyedTest, CommitsAndAppendsNameFurtherKeys) {
  Make(4, 8);
  AddKeys(1, {"a"});
  ASSERT_TRUE(Run(ReserveTokens{.sequence = SequenceId{1}, .count = 4}).ok());
  CommitKeys(1, Keys({"b"}), 8);
  EXPECT_EQ(MatchKeys({"a", "b"}), 8u);
  const auto appended = Run(AppendTokens{.sequence = SequenceId{1}, .keys = Keys({"c", "d"})});
  ASSERT_TRUE(appended.ok()) << appended.status();
  EXPECT_EQ(appended->token_count, 16u);
  EXPECT_THAT(appended->added.front().blocks, SizeIs(2));
  EXPECT_EQ(MatchKeys({"a", "b", "c"}), 8u) << "not computed yet";
}

TEST_F(KeyedTest, KeysWaitForCapacity) {
  Make(4, 8);
  AddKeys(1, {"a", "b", "c"}, 4);
  EXPECT_THAT(Table(1), SizeIs(1));
  Compute(1, 4);
  ASSERT_TRUE(Run(ReserveTokens{.sequence = SequenceId{1}, .count = 8}).ok());
  Compute(1, 12);
  Free(1);
  EXPECT_EQ(MatchKeys({"a", "b", "c"}), 12u);
}

TEST_F(KeyedTest, AForkHasTheKeysThatAreNotComputed) {
  Make(4, 12);
  AddKeys(1, {"a", "b", "c"}, 8);
  Compute(1, 4);
  Fork(1, 2);
  Fork(2, 3);
  ASSERT_TRUE(Run(ReserveTokens{.sequence = SequenceId{2}, .count = 8}).ok());
  Compute(2, 12);
  EXPECT_EQ(MatchKeys({"a", "b", "c"}), 12u);
  ASSERT_TRUE(Run(ReserveTokens{.sequence = SequenceId{3}, .count = 4}).ok());
  Compute(3, 8);
  EXPECT_EQ(CachedBlocks(), 3u) << "the same content is cached once";
  for (const uint64_t id : {1, 2, 3}) Free(id);
  EXPECT_EQ(MatchKeys({"a", "b", "c"}), 12u);
}

TEST_F(KeyedTest, ACutSequenceGoesOnWithOtherKeys) {
  Make(4, 12);
  AddKeys(1, {"a", "b", "c"});
  Compute(1, 12);
  Truncate(1, 4);
  EXPECT_EQ(MatchKeys({"a", "b", "c"}), 12u) << "what was cached stays";
  ASSERT_TRUE(Run(ReserveTokens{.sequence = SequenceId{1}, .count = 4}).ok());
  CommitKeys(1, Keys({"d"}), 8);
  EXPECT_EQ(MatchKeys({"a", "d"}), 8u);
}

TEST_F(KeyedTest, EventsHaveTheKeysInPlaceOfTokens) {
  Make(4, 8);
  TakeEvents();
  ServeKeys(1, {"first", std::string(64, 'x')});
  const std::vector<StoredEvent> stored = OfType<StoredEvent>(TakeEvents());
  ASSERT_THAT(stored, SizeIs(1));
  const StoredEvent& event = stored.front();
  ASSERT_THAT(event.blocks, SizeIs(2));
  EXPECT_TRUE(event.keyed());
  EXPECT_THAT(event.extras, IsEmpty());
  BlockHash hash = HashNamespace(kKeyed);
  size_t begin = 0;
  std::vector<std::string> told;
  for (const StoredBlock& block : event.blocks) {
    EXPECT_EQ(block.token_count, 4u);
    const BlockKey key = event.KeyAt(begin, block);
    begin += event.EntriesOf(block);
    told.emplace_back(ClientKeyBytes(key));
    hash = HashBlock(hash, key);
    EXPECT_EQ(block.hash, hash);
  }
  EXPECT_EQ(begin, event.tokens.size());
  EXPECT_THAT(told, ElementsAre("first", std::string(64, 'x')));
}

TEST_F(KeyedTest, OperationsOnPrefixesTakeKeys) {
  Make(4, 8, 8);
  ServeKeys(1, {"a", "b"});
  const std::vector<ClientKey> both = Keys({"a", "b"});
  const auto pinned = Run(PinPrefix{.name_space = kKeyed, .tokens = {}, .keys = both});
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_EQ(pinned->pinned_tokens, 8u);
  ASSERT_TRUE(Run(UnpinPrefix{pinned->pin}).ok());
  EXPECT_EQ(Run(OffloadPrefix{.name_space = kKeyed, .tokens = {}, .keys = both})->blocks, 2u);
  EXPECT_EQ(Lower().cached, 2u);
  const auto prefetched = Run(PrefetchPrefix{.name_space = kKeyed, .tokens = {}, .keys = both});
  EXPECT_EQ(prefetched->blocks, 2u);
  EXPECT_EQ(prefetched->matched_tokens, 8u);
  SequenceRetention retention;
  retention.ranges = {{.token_start = 0, .retention = {.priority = Priority{80}}}};
  EXPECT_EQ(Run(SetRetention{.name_space = kKeyed,
                             .tokens = {},
                             .retention = retention,
                             .keys = Keys({"a", "b", "c"})})
                ->blocks,
            2u);
  const auto capacity = Run(QueryCapacity{
      .name_space = kKeyed, .tokens = {}, .max_new_tokens = 4, .keys = Keys({"a", "b", "c"})});
  ASSERT_TRUE(capacity.ok()) << capacity.status();
  EXPECT_EQ(capacity->matched_tokens, 8u);
  EXPECT_EQ(capacity->windows.front().blocks_to_completion, 4u);
  EXPECT_EQ(Run(InvalidatePrefix{.name_space = kKeyed, .tokens = {}, .keys = both})->removed_blocks,
            1u);
  EXPECT_EQ(MatchKeys({"a", "b"}), 4u);
}

TEST_F(KeyedTest, TheWholeNamespaceIsForgottenWithoutTheOneOfTokens) {
  Make(4, 8);
  ServeKeys(1, {"a", "b"});
  Serve(2, Range(0, 3));
  EXPECT_EQ(Run(InvalidatePrefix{.name_space = kKeyed, .tokens = {}})->removed_blocks, 2u);
  EXPECT_EQ(CachedBlocks(), 1u);
  EXPECT_EQ(Match(Range(0, 4)), 4u);
}

TEST_F(KeyedTest, ASlidingWindowMatchesWholeBlocks) {
  const WindowSize window{6};
  Make({.tokens_per_block = 4, .windows = {{.window = window, .primary = 8}, {.primary = 16}}});
  EXPECT_EQ(ServeKeys(1, {"a", "b", "c", "d"}), 0u);
  EXPECT_EQ(ServeKeys(2, {"a", "b", "c", "d", "e"}), 16u);
  EXPECT_EQ(AddKeys(3, {"a", "b", "c", "x"}), 12u);
}

TEST_F(KeyedTest, KeysAndTokensDoNotMix) {
  Make(4, 8);
  const std::vector<ClientKey> key = Keys({"a"});
  const SequenceId one{1}, two{2};
  ExpectRefused(
      Reason::kKeysAndTokens,
      AddSequence{.sequence = one, .name_space = kKeyed, .tokens = {1, 2, 3, 4}, .keys = key});
  ExpectRefused(Reason::kKeysAndTokens,
                AddSequence{.sequence = one, .name_space = kKeyed, .tokens = {1, 2, 3, 4}});
  ExpectRefused(Reason::kKeysAndTokens,
                AddSequence{.sequence = one, .name_space = {}, .tokens = {}, .keys = key});
  ExpectRefused(Reason::kKeysAndTokens, AddSequence{.sequence = one,
                                                    .name_space = kKeyed,
                                                    .tokens = {},
                                                    .extra_token_ids = {1},
                                                    .keys = key});
  ExpectRefused(Reason::kInvalidCount,
                AddSequence{.sequence = one, .name_space = kKeyed, .tokens = {}});
  ExpectRefused(Reason::kKeysAndTokens, MatchPrefix{.tokens = {1}, .keys = key});
  ExpectRefused(Reason::kKeysAndTokens, PinPrefix{.name_space = kKeyed, .tokens = {1}});
  ExpectRefused(Reason::kKeysAndTokens,
                InvalidatePrefix{.name_space = {}, .tokens = {}, .keys = key});
  ExpectRefused(Reason::kInvalidCount, PrefetchPrefix{.name_space = kKeyed, .tokens = {}});

  AddKeys(1, {"a"}, 8);
  Add(2, Range(0, 2));
  ExpectRefused(Reason::kKeysAndTokens, CommitTokens{.sequence = one, .tokens = {1, 2, 3, 4}});
  ExpectRefused(Reason::kKeysAndTokens,
                CommitTokens{.sequence = one, .tokens = {1}, .keys = Keys({"b"})});
  ExpectRefused(Reason::kKeysAndTokens, CommitTokens{.sequence = two, .tokens = {}, .keys = key});
  ExpectRefused(Reason::kKeysAndTokens, AppendTokens{.sequence = one, .tokens = {1}});
  ExpectRefused(Reason::kKeysAndTokens, AppendTokens{.sequence = two, .tokens = {}, .keys = key});
}

TEST_F(KeyedTest, AStepTakesNoTokensOfAKeyedSequence) {
  Make(4, 8);
  AddKeys(1, {"a"}, 8);
  Add(2, Range(0, 1));
  const auto step = Run(AppendStep{.sequences = {SequenceId{1}, SequenceId{2}}, .tokens = {7, 7}});
  ASSERT_TRUE(step.ok()) << step.status();
  ASSERT_THAT(step->failed, SizeIs(1));
  EXPECT_EQ(step->failed.front().index, 0u);
  EXPECT_EQ(ReasonOf(step->failed.front().status), Reason::kKeysAndTokens);
  EXPECT_EQ(Describe(1).token_count, 4u);
  EXPECT_EQ(Describe(2).token_count, 3u);
}

TEST_F(KeyedTest, LengthsAreWholeBlocks) {
  Make(4, 8);
  const SequenceId one{1};
  ExpectRefused(Reason::kWholeBlocksOnly, AddSequence{.sequence = one,
                                                      .name_space = kKeyed,
                                                      .tokens = {},
                                                      .reserved_tokens = 6,
                                                      .keys = Keys({"a"})});
  AddKeys(1, {"a", "b"});
  ExpectRefused(Reason::kWholeBlocksOnly, CommitTokens{.sequence = one, .computed_tokens = 3});
  ExpectRefused(Reason::kWholeBlocksOnly, AppendTokens{.sequence = one, .computed_tokens = 6});
  ExpectRefused(Reason::kWholeBlocksOnly, ReserveTokens{.sequence = one, .count = 1});
  ExpectRefused(Reason::kWholeBlocksOnly, TruncateSequence{.sequence = one, .token_count = 5});
  ExpectRefused(Reason::kInvalidCount, TruncateSequence{.sequence = one, .token_count = 9});
  ExpectRefused(Reason::kReservationExceeded, CommitTokens{.sequence = one, .keys = Keys({"c"})});
}

TEST(ClientKeyTest, HasOneTo64Bytes) {
  EXPECT_EQ(ReasonOf(ClientKey::Make("").status()), Reason::kInvalidKey);
  EXPECT_EQ(ReasonOf(ClientKey::Make(std::string(65, 'x')).status()), Reason::kInvalidKey);
  EXPECT_EQ(ClientKey::Make(std::string(64, 'x'))->bytes(), std::string(64, 'x'));
}

}  // namespace
}  // namespace pagoda
