#include "clients/command_line/tokens.h"

#include <fstream>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Lt;

TEST(TokensTest, CommasAndWhitespaceSeparate) {
  EXPECT_THAT(*ParseTokens("1,2, 3\n4\t4294967295"), ElementsAre(1u, 2u, 3u, 4u, 4294967295u));
  EXPECT_THAT(*ParseTokens(" \n"), IsEmpty());
}

TEST(TokensTest, AnIdThatIsMissingBetweenCommasIsNamed) {
  for (const char* text : {"1,,2", "1, ,2", "1,", "1,\n"}) {
    EXPECT_THAT(std::string(ParseTokens(text).status().message()), HasSubstr("at position 1"))
        << text;
    EXPECT_FALSE(ParseExtraIds(text).ok()) << text;
  }
  EXPECT_FALSE(ParseTokens(",1").ok());
}

TEST(TokensTest, AWordThatIsNoIdIsNamed) {
  for (const char* word : {"x", "-1", "4294967296", "1.5"}) {
    const auto tokens = ParseTokens(std::string("7 ") + word);
    EXPECT_EQ(ReasonOf(tokens.status()), Reason::kInvalidArgument);
    EXPECT_THAT(std::string(tokens.status().message()), HasSubstr(word));
  }
}

TEST(TokensTest, ReadsFilesAndNamesBadOnes) {
  const TempDirectory directory;
  const std::string path = directory.File("tokens.txt");
  std::ofstream(path) << "5 6\n7\n";
  EXPECT_THAT(*ReadTokenFile(path), ElementsAre(5u, 6u, 7u));
  std::ofstream(path) << "5 six";
  EXPECT_THAT(std::string(ReadTokenFile(path).status().message()), HasSubstr(path));
  EXPECT_FALSE(ReadTokenFile("/nonexistent").ok());
}

// The figures come from another implementation of the 64-bit Mersenne Twister.
TEST(TokensTest, ASeedGivesTheSameTokensEverywhere) {
  EXPECT_THAT(RandomTokens(1, 1000).Take(3), ElementsAre(528u, 462u, 930u));
}

TEST(TokensTest, TokensStayBelowTheVocabulary) {
  EXPECT_THAT(RandomTokens(3, 7).Take(1000), Each(Lt(7u)));
}

}  // namespace
}  // namespace pagoda
