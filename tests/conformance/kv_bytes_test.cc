// Conformance on real memory: what copies do to the bytes of pools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "kernels/numeric.h"
#include "pools/pool.h"
#include "pools/transfers.h"
#include "tests/conformance/conformance.h"
#include "tests/pools/block_view.h"

namespace pagoda {
namespace {

constexpr uint32_t kTokensPerBlock = 8;
constexpr float kUntouched = -1;

// A cache of 4 + 4 blocks. Its copies are also carried out on pools of elements of type T.
template <class T>
class KvBytesTest : public ConformanceTest {
 protected:
  void SetUp() override {
    const auto layout = CacheLayout::Create(
        {.tokens_per_block = kTokensPerBlock,
         .layers =
             std::vector(2, LayerSpec{.num_kv_heads = 2, .head_dim = 4, .dtype = kDTypeOf<T>})});
    ASSERT_TRUE(layout.ok());
    auto pools = PoolSet::Create(*layout, {.tiers = {{4}, {SlotsFor(Tier(1), 4)}}},
                                 absl::StrCat("kv-bytes-test-", getpid()));
    ASSERT_TRUE(pools.ok()) << pools.status();
    pools_ = *std::move(pools);
    transfers_ = std::make_unique<InstantTransfers>(
        pools_.get(), [](Lane, Ticket, const absl::Status& status) { EXPECT_TRUE(status.ok()); });
    Make(kTokensPerBlock, 4, 4);
    for (uint32_t slot = 0; slot < 4; ++slot) Fill(slot);
  }
  void TearDown() override {
    ConformanceTest::TearDown();
    transfers_.reset();
  }
  void CarryOut(const Order& order) override {
    ConformanceTest::CarryOut(order);
    transfers_->Submit({&order, 1});
  }

  BlockView<T> Block(uint32_t slot) {
    SharedMemoryPool& pool = pools_->pool(0, 0);
    return {pool.layout(), pool.slot(SlotIndex{slot})};
  }
  // Calls visit(element, expected) for each element of a token. `expected` is the value of the
  // sequence's token, which differs for each layer, part, head and dimension.
  template <class Visit>
  void ForEachElement(uint32_t slot, uint32_t offset, uint32_t token, Visit visit) {
    const BlockView<T> block = Block(slot);
    uint32_t place = 0;
    for (uint32_t layer = 0; layer < block.num_layers(); ++layer) {
      for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
        for (uint32_t head = 0; head < block.num_kv_heads(); ++head) {
          for (T& element : block.at(layer, part, head, offset)) {
            visit(element, static_cast<float>((token * 32 + place++) % 251));
          }
        }
      }
    }
    EXPECT_EQ(place, 32u);
  }
  void WriteTokens(const std::vector<BlockHandle>& table, uint32_t end) {
    for (uint32_t token = 0; token < end; ++token) {
      ForEachElement(table[token / kTokensPerBlock].slot.value(), token % kTokensPerBlock, token,
                     [](T& element, float expected) { element = kernels::FromFloat<T>(expected); });
    }
  }
  void ExpectTokens(const std::vector<BlockHandle>& table, uint32_t begin, uint32_t end) {
    for (uint32_t token = begin; token < end; ++token) {
      ForEachElement(table[token / kTokensPerBlock].slot.value(), token % kTokensPerBlock, token,
                     [&](const T& element, float expected) {
                       EXPECT_EQ(kernels::ToFloat(element), expected) << "token " << token;
                     });
    }
  }
  void Fill(uint32_t slot) {
    for (uint32_t offset = 0; offset < kTokensPerBlock; ++offset) {
      ForEachElement(slot, offset, 0,
                     [](T& element, float) { element = kernels::FromFloat<T>(kUntouched); });
    }
  }

  std::unique_ptr<PoolSet> pools_;
  std::unique_ptr<Transfers> transfers_;
};

// The dtypes of pools.
using Elements = ::testing::Types<float, kernels::Half, kernels::BFloat16>;
TYPED_TEST_SUITE(KvBytesTest, Elements);

// Scenario 35.
TYPED_TEST(KvBytesTest, APartialCopyHasTheMatchedTokensAndNoOthers) {
  this->Add(1, Range(0, 15));
  this->WriteTokens(this->Table(1), 16);
  this->Compute(1, 16);
  this->Free(1);
  ASSERT_EQ(this->Add(2, Range(0, 16)), 16u);  // Holds both blocks.
  EXPECT_EQ(this->Add(3, Range(0, 10) + Tokens{99}), 11u);
  const std::vector<BlockHandle> table = this->Table(3);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0], this->Table(2).at(0));
  this->ExpectTokens(table, 0, 11);
  for (uint32_t offset = 3; offset < kTokensPerBlock; ++offset) {
    this->ForEachElement(table[1].slot.value(), offset, 0, [](const TypeParam& element, float) {
      EXPECT_EQ(kernels::ToFloat(element), kUntouched);
    });
  }
}

// Scenario 35, its second half.
TYPED_TEST(KvBytesTest, WhatWentDownComesUpAsItWas) {
  this->Add(1, Range(0, 15));
  this->WriteTokens(this->Table(1), 16);
  this->Compute(1, 16);
  this->Free(1);
  ASSERT_EQ(this->Run(OffloadPrefix{.tokens = Range(0, 15)})->blocks, 2u);
  for (uint32_t slot = 0; slot < 4; ++slot) this->Fill(slot);
  ASSERT_EQ(this->Add(2, Range(0, 16)), 16u);
  this->ExpectTokens(this->Table(2), 0, 16);
}

}  // namespace
}  // namespace pagoda
