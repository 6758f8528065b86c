#include "events/block_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ItemDigest kImage = {1, 2, 3, 4};
constexpr ItemDigest kOther = {1, 2, 3, 5};

TokenExtra Place(const ItemDigest& digest, uint32_t offset) {
  return {.digest = digest, .item_offset = offset, .in_item = true};
}

const std::vector<TokenId> kTokens = {5, 6, 7, 8};

TEST(BlockKeyTest, TokensAreComparedUpToTheFirstThatDiffers) {
  const std::vector<TokenId> other = {5, 6, 9, 8};
  EXPECT_EQ(CommonTokens({kTokens}, {other}), 2u);
  EXPECT_EQ(CommonTokens({kTokens}, BlockKey{kTokens}.First(3)), 3u);
  EXPECT_FALSE(SameKey({kTokens}, BlockKey{kTokens}.First(3)));
  EXPECT_TRUE(SameKey({kTokens}, {kTokens}));
  EXPECT_EQ(CommonTokens({kTokens}, {}), 0u);
}

TEST(BlockKeyTest, ExtrasArePartOfTheKey) {
  std::vector<TokenExtra> extras(4);
  EXPECT_TRUE(SameKey({kTokens, extras}, {kTokens})) << "none, and none that says anything";
  extras[2].extra_id = 1;
  EXPECT_EQ(CommonTokens({kTokens, extras}, {kTokens}), 2u);
  EXPECT_EQ(CommonTokens({kTokens}, {kTokens, extras}), 2u);
  std::vector<TokenExtra> image(4), shifted(4);
  image[1] = Place(kImage, 0);
  shifted[1] = Place(kImage, 1);
  EXPECT_EQ(CommonTokens({kTokens, image}, {kTokens, shifted}), 1u) << "another place of the image";
  shifted[1] = Place(kOther, 0);
  EXPECT_EQ(CommonTokens({kTokens, image}, {kTokens, shifted}), 1u) << "another image";
}

TEST(BlockKeyTest, PartsTakeTheirExtrasAlong) {
  std::vector<TokenExtra> extras(4);
  extras[3].extra_id = 9;
  const BlockKey key{kTokens, extras};
  EXPECT_EQ(key.Sub(3, 8).tokens, absl::MakeConstSpan(kTokens).subspan(3));
  EXPECT_EQ(key.Sub(3, 8).extras.front().extra_id, 9u);
  EXPECT_TRUE(SameKey(key.First(3), BlockKey{kTokens}.First(3)));
}

TEST(BlockKeyTest, RunsOfItemPlacesAreItems) {
  EXPECT_THAT(ItemsOf({}), IsEmpty());
  EXPECT_THAT(ItemsOf(std::vector<TokenExtra>(3)), IsEmpty());
  const std::vector<TokenExtra> extras = {{},
                                          Place(kImage, 4),
                                          Place(kImage, 5),
                                          Place(kOther, 6),
                                          Place(kOther, 6),
                                          {.extra_id = 1},
                                          Place(kOther, 7)};
  EXPECT_THAT(ItemsOf(extras),
              ElementsAre(MultimodalItem{kImage, 1, 2, 4},  //
                          MultimodalItem{kOther, 3, 1, 6}, MultimodalItem{kOther, 4, 1, 6},
                          MultimodalItem{kOther, 6, 1, 7}));
}

}  // namespace
}  // namespace pagoda
