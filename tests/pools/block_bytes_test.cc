// What copies and mappings do with the elements of a block.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/block_copy.h"
#include "kernels/numeric.h"
#include "pools/pool.h"
#include "pools/transfers.h"
#include "tests/pools/block_view.h"

namespace pagoda {
namespace {

using kernels::BFloat16;
using kernels::Half;

constexpr uint32_t kLayers = 3;
constexpr uint32_t kHeads = 2;
constexpr uint32_t kTokens = 8;
constexpr uint32_t kHeadDim = 4;

std::unique_ptr<PoolSet> MakePools(DType dtype) {
  static int count = 0;
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = kTokens,
       .layers = std::vector(
           kLayers, LayerSpec{.num_kv_heads = kHeads, .head_dim = kHeadDim, .dtype = dtype})});
  auto pools = PoolSet::Create(*layout, {.tiers = {{4}, {2}}},
                               absl::StrCat("view-test-", getpid(), "-", ++count));
  if (!pools.ok()) ADD_FAILURE() << pools.status();
  return *std::move(pools);
}

template <class T>
BlockView<T> Writable(PoolSet& pools, SlotRef ref) {
  SharedMemoryPool& pool = pools.pool(0, 0, ref.tier);
  return {pool.layout(), pool.slot(ref.slot)};
}
template <class T>
BlockView<const T> Readable(PoolSet& pools, SlotRef ref) {
  SharedMemoryPool& pool = pools.pool(0, 0, ref.tier);
  return {pool.layout(), pool.slot(ref.slot)};
}

// A value for each element: below 256, thus exact in every type, and different for neighbours.
float Value(int seed, uint32_t layer, KvPart part, uint32_t head, uint32_t token, uint32_t i) {
  const uint32_t kv = static_cast<uint32_t>(part);
  return static_cast<float>(
      ((((layer * 2 + kv) * kHeads + head) * kTokens + token) * kHeadDim + i + 97 * seed) % 251);
}

template <class Visitor>
void ForEachRun(Visitor visit) {
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
      for (uint32_t head = 0; head < kHeads; ++head) visit(layer, part, head);
    }
  }
}

template <class T>
void FillWithValues(const BlockView<T>& view, int seed) {
  ForEachRun([&](uint32_t layer, KvPart part, uint32_t head) {
    for (uint32_t token = 0; token < kTokens; ++token) {
      const absl::Span<T> elements = view.at(layer, part, head, token);
      for (uint32_t i = 0; i < kHeadDim; ++i) {
        elements[i] = kernels::FromFloat<T>(Value(seed, layer, part, head, token, i));
      }
    }
  });
}

// Tokens below `split` hold the values of seed `before`; the other tokens those of `after`.
template <class T>
void ExpectValues(const BlockView<const T>& view, int before, uint32_t split, int after) {
  ForEachRun([&](uint32_t layer, KvPart part, uint32_t head) {
    for (uint32_t token = 0; token < kTokens; ++token) {
      const int seed = token < split ? before : after;
      const absl::Span<const T> elements = view.at(layer, part, head, token);
      ASSERT_EQ(elements.size(), kHeadDim);
      for (uint32_t i = 0; i < kHeadDim; ++i) {
        ASSERT_EQ(kernels::ToFloat(elements[i]), Value(seed, layer, part, head, token, i))
            << "layer " << layer << ", head " << head << ", token " << token << ", element " << i;
      }
    }
  });
}

template <class T>
class BlockBytesTest : public testing::Test {};
using ElementTypes = testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(BlockBytesTest, ElementTypes);

TYPED_TEST(BlockBytesTest, WhatIsWrittenIsReadAndLiesWhereTheLayoutSays) {
  const auto pools = MakePools(kDTypeOf<TypeParam>);
  const SlotRef ref{kPrimaryTier, SlotIndex(2)};
  FillWithValues(Writable<TypeParam>(*pools, ref), 1);
  ExpectValues(Readable<TypeParam>(*pools, ref), 1, kTokens, 1);

  SharedMemoryPool& pool = pools->pool(0, 0);
  const PoolLayout& layout = pool.layout();
  const std::byte* const bytes = pool.bytes().data();
  ForEachRun([&](uint32_t layer, KvPart part, uint32_t head) {
    for (uint32_t token = 0; token < kTokens; ++token) {
      TypeParam element;
      std::memcpy(&element,
                  bytes + 2 * layout.slot_stride_bytes() + layer * layout.layer_stride_bytes() +
                      static_cast<uint64_t>(part) * layout.kv_stride_bytes() +
                      head * layout.head_stride_bytes() + token * layout.token_stride_bytes() +
                      (kHeadDim - 1) * sizeof(TypeParam),
                  sizeof element);
      EXPECT_EQ(kernels::ToFloat(element), Value(1, layer, part, head, token, kHeadDim - 1));
    }
  });
  for (const std::byte byte : pool.slot(SlotIndex(1))) ASSERT_EQ(byte, std::byte{0});
  for (const std::byte byte : pool.slot(SlotIndex(3))) ASSERT_EQ(byte, std::byte{0});
}

// TensorRT-LLM's partial reuse: the new block holds exactly n tokens of each head and layer, for K
// and V, and the rest is untouched. Also between tiers.
TYPED_TEST(BlockBytesTest, APartialCopyTakesTheFirstTokensOfEveryHeadAndLayer) {
  for (const Tier tier : {kPrimaryTier, Tier(1)}) {
    const auto pools = MakePools(kDTypeOf<TypeParam>);
    const SlotRef source{kPrimaryTier, SlotIndex(3)};
    const SlotRef target{tier, SlotIndex(1)};
    absl::Status result = absl::UnknownError("no completion");
    InstantTransfers transfers(pools.get(),
                               [&](Lane, Ticket, absl::Status status) { result = status; });
    for (uint32_t num_tokens = 1; num_tokens <= kTokens; ++num_tokens) {
      FillWithValues(Writable<TypeParam>(*pools, source), 1);
      FillWithValues(Writable<TypeParam>(*pools, target), 2);
      transfers.Submit({Order{.ticket = Ticket(num_tokens),
                              .source = source,
                              .target = target,
                              .num_tokens = num_tokens}});
      ASSERT_TRUE(result.ok()) << result;
      ExpectValues(Readable<TypeParam>(*pools, target), 1, num_tokens, 2);
      ExpectValues(Readable<TypeParam>(*pools, source), 1, kTokens, 1);
    }
  }
}

// The block copy kernel, also for element sizes that no dtype has yet.
template <class T>
class PartialCopyTest : public testing::Test {};
using ElementSizes = testing::Types<uint8_t, uint16_t, uint32_t, uint64_t>;
TYPED_TEST_SUITE(PartialCopyTest, ElementSizes);

TYPED_TEST(PartialCopyTest, TakesTheFirstTokensOfEveryRun) {
  constexpr uint64_t kRuns = kLayers * 2 * kHeads;
  constexpr uint64_t kElements = kRuns * kTokens * kHeadDim;
  for (uint32_t num_tokens = 0; num_tokens <= kTokens; ++num_tokens) {
    std::vector<TypeParam> elements(2 * kElements);
    for (uint64_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<TypeParam>(i % 251);
    std::vector<TypeParam> expected = elements;
    for (uint64_t i = 0; i < kElements; ++i) {
      if (i / kHeadDim % kTokens < num_tokens) expected[kElements + i] = elements[i];
    }
    auto* const bytes = reinterpret_cast<std::byte*>(elements.data());
    const kernels::SlotCopy copy{.source = 0, .target = 1};
    const absl::Status status =
        kernels::cpu::CopyBlockTokens({.source = bytes,
                                       .target = bytes,
                                       .source_slots = 2,
                                       .target_slots = 2,
                                       .slot_bytes = kElements * sizeof(TypeParam),
                                       .copies = {&copy, 1}},
                                      {.num_runs = kRuns,
                                       .run_bytes = kTokens * kHeadDim * sizeof(TypeParam),
                                       .token_bytes = kHeadDim * sizeof(TypeParam)},
                                      num_tokens);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(elements, expected) << num_tokens << " tokens";
  }
}

TEST(BlockBytesOfAClientTest, AClientsMappingSeesTheElements) {
  const auto pools = MakePools(DType::kFloat32);
  FillWithValues(Writable<float>(*pools, {Tier(1), SlotIndex(1)}), 5);
  const auto mapped = MappedPool::Open(pools->Mappings()[1]);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const BlockView<const float> view((*mapped)->mapping().layout, (*mapped)->slot(SlotIndex(1)));
  ExpectValues(view, 5, kTokens, 5);
}

}  // namespace
}  // namespace pagoda
