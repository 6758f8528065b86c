#include "engine/schedule/ngram_proposer.h"

#include <gtest/gtest.h>

#include <vector>

namespace pagoda {
namespace {

using Tokens = std::vector<TokenId>;

TEST(NgramProposerTest, ProposesWhatFollowedTheLastTime) {
  EXPECT_EQ(ProposeByNgram({1, 2, 3, 4, 9, 2, 3}, 2), Tokens({4, 9}));
  EXPECT_EQ(ProposeByNgram({1, 2, 3, 4, 9, 2, 3}, 10), Tokens({4, 9, 2, 3}));
}

TEST(NgramProposerTest, TheLongestMatchAndThenTheLatestPlaceCount) {
  // The last token after "2 3" was 7, but after "1 2 3" it was 4.
  EXPECT_EQ(ProposeByNgram({1, 2, 3, 4, 2, 3, 7, 1, 2, 3}, 1), Tokens({4}));
  EXPECT_EQ(ProposeByNgram({2, 3, 4, 2, 3, 7, 2, 3}, 1), Tokens({7}));
}

TEST(NgramProposerTest, ARunGoesOn) { EXPECT_EQ(ProposeByNgram({5, 5, 5, 5}, 3), Tokens({5})); }

TEST(NgramProposerTest, ProposesNothingWithoutAPlace) {
  EXPECT_EQ(ProposeByNgram({1, 2, 3, 4}, 3), Tokens());
  EXPECT_EQ(ProposeByNgram({}, 3), Tokens());
  EXPECT_EQ(ProposeByNgram({1}, 3), Tokens());
  EXPECT_EQ(ProposeByNgram({1, 2, 1}, 3, {.min_ngram = 2}), Tokens());
  EXPECT_EQ(ProposeByNgram({1, 2, 1}, 3, {.min_ngram = 1}), Tokens({2, 1}));
}

}  // namespace
}  // namespace pagoda
