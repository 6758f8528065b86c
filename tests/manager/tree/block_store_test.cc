#include "manager/tree/block_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <vector>

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

SlotRef Primary(uint32_t slot) { return {kPrimaryTier, SlotIndex{slot}}; }
SlotRef Lower(uint32_t slot) { return {Tier(1), SlotIndex{slot}}; }

BlockStore SmallStore() {
  return BlockStore({.tokens_per_block = TokensPerBlock(4), .num_ids = 7});
}

TEST(BlockStoreTest, FreshStoreHasItsIdsFree) {
  const BlockStore store = SmallStore();
  EXPECT_EQ(store.num_ids(), 7);
  EXPECT_EQ(store.free_ids(), 7);
  EXPECT_EQ(store.tokens_per_block(), 4);
}

TEST(BlockStoreTest, FreshStoreHandsOutIdsInAscendingOrder) {
  BlockStore store = SmallStore();
  for (uint32_t i = 0; i < 7; ++i) EXPECT_EQ(store.TakeId(BlockState::kPrivate), BlockId{i});
  EXPECT_EQ(store.free_ids(), 0);
}

TEST(BlockStoreTest, BehindTheLastGenerationComesTheFirst) {
  BlockStore store = SmallStore();
  const BlockId id = store.TakeId(BlockState::kPrivate);
  EXPECT_EQ(store[id].generation, Generation{1});
  store[id].generation = Generation{std::numeric_limits<uint32_t>::max()};
  store[id].refs = 0;
  store.ReleaseId(id);
  ASSERT_EQ(store.TakeId(BlockState::kPrivate), id);
  EXPECT_EQ(store[id].generation, Generation{1}) << "0 names no life";
}

TEST(BlockStoreTest, LastFreedGoesFirst) {
  BlockStore store = SmallStore();
  for (int i = 0; i < 3; ++i) store[store.TakeId(BlockState::kRaw)].refs = 0;
  for (const uint32_t i : {1, 2, 0}) store.ReleaseId(BlockId{i});
  for (const uint32_t i : {0, 2, 1}) EXPECT_EQ(store.TakeId(BlockState::kRaw), BlockId{i});
  EXPECT_EQ(store.TakeId(BlockState::kRaw), BlockId{3});
}

TEST(BlockStoreTest, EachLifeHasTheNextGeneration) {
  BlockStore store = SmallStore();
  for (uint32_t life = 1; life <= 3; ++life) {
    const BlockId id = store.TakeId(BlockState::kPrivate);
    EXPECT_EQ(store.handle(id), (BlockHandle{id, Generation{life}, kNoSlot}));
    store[id].refs = 0;
    store.ReleaseId(id);
    EXPECT_EQ(store[id].generation, Generation{life}) << "until the next one begins";
  }
}

TEST(BlockStoreTest, LifeBeginsWithNothingOfTheOneBefore) {
  BlockStore store = SmallStore();
  const BlockId id = store.TakeId(BlockState::kCached);
  Block& block = store[id];
  store.SetSlot(id, Lower(2));
  const std::vector<TokenExtra> extras(4, {.extra_id = 7});
  store.SetExtras(id, extras);
  block.token_count = 4;
  block.set_priority(Priority{100});
  block.timed = block.deferred = block.pinned = 1;
  block.refs = 0;
  store.ReleaseId(id);
  EXPECT_EQ(block.state(), BlockState::kFree);

  ASSERT_EQ(store.TakeId(BlockState::kAlias), id);
  EXPECT_EQ(block.state(), BlockState::kAlias);
  EXPECT_EQ(block.slot, kNoSlot);
  EXPECT_EQ(block.refs, 1);
  EXPECT_EQ(block.token_count, 0);
  EXPECT_EQ(block.priority(), kDefaultPriority);
  EXPECT_EQ(block.tier(), kPrimaryTier);
  EXPECT_FALSE(block.timed || block.beside || block.deferred || block.pinned);
  EXPECT_THAT(store.extras(id), IsEmpty());
}

TEST(BlockStoreTest, ARenewedBlockKeepsItsSlotAndItsTokens) {
  BlockStore store = SmallStore();
  store.TakeId(BlockState::kCached);
  const BlockId id = store.TakeId(BlockState::kCached);
  store.SetSlot(id, Lower(1));
  Block& block = store[id];
  const std::vector<TokenExtra> extras(4, {.extra_id = 7});
  store.tokens(id)[3] = 9;
  store.SetExtras(id, extras);
  block.token_count = 4;
  block.set_priority(Priority{100});
  block.timed = 1;
  block.refs = 0;

  store.Renew(id, BlockState::kPrivate);
  EXPECT_EQ(store.handle(id), (BlockHandle{id, Generation{2}, SlotIndex{1}}));
  EXPECT_EQ(block.state(), BlockState::kPrivate);
  EXPECT_EQ(store.slot(id), Lower(1));
  EXPECT_EQ(store.tokens(id)[3], 9);
  EXPECT_EQ(block.refs, 1);
  EXPECT_EQ(block.token_count, 0);
  EXPECT_EQ(block.priority(), kDefaultPriority);
  EXPECT_FALSE(block.timed || block.beside);
  EXPECT_THAT(store.extras(id), IsEmpty());
  EXPECT_EQ(store.TakeId(BlockState::kPrivate), BlockId{2}) << "no id was free in between";
}

TEST(BlockStoreTest, BlockLiesInTheSlotThatWasSetLast) {
  BlockStore store = SmallStore();
  const BlockId id = store.TakeId(BlockState::kCached);
  store.SetSlot(id, Lower(5));
  EXPECT_EQ(store.slot(id), Lower(5));
  EXPECT_EQ(store.handle(id), (BlockHandle{id, Generation{1}, SlotIndex{5}}));
  store.SetSlot(id, Primary(0));
  EXPECT_EQ(store.slot(id), Primary(0));
}

TEST(BlockStoreTest, KeyIsTheFirstTokensWithTheirExtras) {
  BlockStore store = SmallStore();
  const BlockId plain = store.TakeId(BlockState::kPrivate);
  const BlockId rich = store.TakeId(BlockState::kPrivate);
  const std::vector<TokenId> tokens = {5, 6, 7, 8};
  for (const BlockId id : {plain, rich}) {
    std::copy(tokens.begin(), tokens.end(), store.tokens(id).begin());
  }
  const std::vector<TokenExtra> extras = {{}, {.extra_id = 3}, {.in_item = true}, {}};
  store.SetExtras(rich, extras);
  store[plain].token_count = 4;
  store[rich].token_count = 2;
  EXPECT_THAT(store.key(plain).tokens, ElementsAre(5, 6, 7, 8));
  EXPECT_FALSE(store.key(plain).has_extras());
  EXPECT_THAT(store.key(rich).tokens, ElementsAre(5, 6));
  EXPECT_THAT(store.key(rich).extras, ElementsAre(extras[0], extras[1]));
  EXPECT_THAT(store.extras(rich), ElementsAreArray(extras));
}

TEST(BlockStoreTest, ExtrasWithoutAnyContentAreNone) {
  BlockStore store = SmallStore();
  const BlockId id = store.TakeId(BlockState::kPrivate);
  const std::vector<TokenExtra> nothing(4);
  const std::vector<TokenExtra> last = {{}, {}, {}, {.item_offset = 1}};
  store.SetExtras(id, nothing);
  EXPECT_THAT(store.extras(id), IsEmpty());
  store.SetExtras(id, last);
  EXPECT_THAT(store.extras(id), ElementsAreArray(last));
  store.SetExtras(id, nothing);
  EXPECT_THAT(store.extras(id), IsEmpty());
  store.SetExtras(id, last);
  store.SetExtras(id, {});
  EXPECT_THAT(store.extras(id), IsEmpty());
  EXPECT_FALSE(store[id].beside);
}

TEST(BlockStoreDeathTest, RefusesWhatItsContractForbids) {
  BlockStore store = SmallStore();
  const BlockId id = store.TakeId(BlockState::kPrivate);
  EXPECT_DEATH(store.ReleaseId(id), "after its last holder");
  EXPECT_DEATH(store.ReleaseId(BlockId{1}), "ends once");
  EXPECT_DEATH(store.TakeId(BlockState::kFree), "a free block id");
  EXPECT_DEATH(store.Renew(id, BlockState::kPrivate), "after its last holder");
  for (int i = 0; i < 6; ++i) store.TakeId(BlockState::kRaw);
  EXPECT_DEATH(store.TakeId(BlockState::kRaw), "a free block id");
  EXPECT_DEATH(BlockStore({.tokens_per_block = TokensPerBlock(2048)}), "1,024");
}

// The same store in sets and lists.
class NaiveStore {
 public:
  explicit NaiveStore(const BlockStore& store) {
    for (uint32_t i = store.num_ids(); i-- > 0;) free_ids.push_back(BlockId{i});
  }

  struct Life {
    Generation generation;
    std::vector<TokenId> tokens;
    std::vector<TokenExtra> extras;
    SlotRef slot = {kPrimaryTier, kNoSlot};
  };
  std::vector<BlockId> free_ids;  // The next one last.
  std::map<BlockId, Life> lives;
  std::map<BlockId, uint32_t> generations;
};

class RandomBlockStoreTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  uint32_t Pick(size_t n) { return static_cast<uint32_t>(random_() % n); }
  template <class Container>
  auto PickOf(Container& container) {
    return std::next(container.begin(), Pick(container.size()));
  }

  void Take() {
    if (naive_.free_ids.empty()) return;
    const BlockId id = store_.TakeId(BlockState::kPrivate);
    ASSERT_EQ(id, naive_.free_ids.back());
    naive_.free_ids.pop_back();
    NaiveStore::Life& life = naive_.lives[id];
    life.generation = Generation{++naive_.generations[id]};
    life.tokens.resize(store_.tokens_per_block());
    for (size_t i = 0; i < life.tokens.size(); ++i) {
      store_.tokens(id)[i] = life.tokens[i] = Pick(1000);
    }
  }
  void SetSlot() {
    if (naive_.lives.empty()) return;
    auto& [id, life] = *PickOf(naive_.lives);
    life.slot = {Tier(Pick(kMaxTiers)), SlotIndex{Pick(100)}};
    store_.SetSlot(id, life.slot);
  }
  void Release() {
    if (naive_.lives.empty()) return;
    const auto it = PickOf(naive_.lives);
    const BlockId id = it->first;
    store_[id].refs = 0;
    store_.ReleaseId(id);
    naive_.free_ids.push_back(id);
    naive_.lives.erase(it);
  }
  void SetExtras() {
    if (naive_.lives.empty()) return;
    auto& [id, life] = *PickOf(naive_.lives);
    std::vector<TokenExtra> extras(Pick(2) * store_.tokens_per_block());
    if (!extras.empty() && Pick(2) == 1) extras[Pick(extras.size())].extra_id = 1 + Pick(9);
    store_.SetExtras(id, extras);
    life.extras =
        std::find_if(extras.begin(), extras.end(),
                     [](const TokenExtra& extra) { return extra != TokenExtra{}; }) == extras.end()
            ? std::vector<TokenExtra>()
            : extras;
  }

  void Check() const {
    ASSERT_EQ(store_.free_ids(), naive_.free_ids.size());
    for (const auto& [id, life] : naive_.lives) {
      ASSERT_EQ(store_[id].state(), BlockState::kPrivate);
      ASSERT_EQ(store_.handle(id), (BlockHandle{id, life.generation, life.slot.slot}));
      ASSERT_EQ(store_.slot(id), life.slot);
      ASSERT_THAT(store_.tokens(id), ElementsAreArray(life.tokens));
      ASSERT_THAT(store_.extras(id), ElementsAreArray(life.extras));
    }
    for (const BlockId id : naive_.free_ids) ASSERT_EQ(store_[id].state(), BlockState::kFree);
  }

  BlockStore store_{{.tokens_per_block = TokensPerBlock(2), .num_ids = 12}};
  NaiveStore naive_{store_};
  std::mt19937_64 random_{GetParam()};
};

TEST_P(RandomBlockStoreTest, AgreesWithANaiveModel) {
  for (int i = 0; i < 3000; ++i) {
    switch (Pick(5)) {
      case 0:
      case 1:
        Take();
        break;
      case 2:
        SetSlot();
        break;
      case 3:
        Release();
        break;
      case 4:
        SetExtras();
        break;
    }
    Check();
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomBlockStoreTest, ::testing::Range(uint32_t{0}, uint32_t{8}));

}  // namespace
}  // namespace pagoda
