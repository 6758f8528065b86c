// The special tokens in a text, compared with a plain copy of llama.cpp's rule.
#include "engine/text/vocabulary/special_token_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "base/error.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using Spaces = SpecialTokenFinder::SpacesBehind;
constexpr int64_t kText = -1;
using Parts = std::vector<std::pair<std::string, int64_t>>;

struct Special {
  std::string text;
  Spaces spaces;
};

Parts Find(const SpecialTokenFinder& finder, const std::string& text) {
  const auto found = finder.Split(text, absl::InfiniteFuture());
  EXPECT_TRUE(found.ok()) << found.status();
  Parts parts;
  for (const SpecialTokenFinder::Part& part : *found) {
    parts.emplace_back(part.text, part.token.has_value() ? int64_t{*part.token} : kText);
  }
  return parts;
}

SpecialTokenFinder FinderOf(const std::vector<Special>& tokens) {
  SpecialTokenFinder finder;
  for (size_t id = 0; id < tokens.size(); ++id) {
    finder.Add(tokens[id].text, static_cast<TokenId>(id), tokens[id].spaces);
  }
  return finder;
}

// Each token in turn, the longest first, in all of the text that is left.
Parts PlainFind(const std::vector<Special>& tokens, const std::string& text) {
  std::vector<size_t> order(tokens.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tokens[a].text.size() > tokens[b].text.size();
  });
  Parts parts = {{text, kText}};
  for (const size_t id : order) {
    const Special& token = tokens[id];
    Parts next;
    for (const auto& [part, known] : parts) {
      size_t done = 0;
      for (size_t at; known == kText && (at = part.find(token.text, done)) != std::string::npos;) {
        next.emplace_back(part.substr(done, at - done), kText);
        next.emplace_back(token.text, id);
        done = at + token.text.size();
        while (token.spaces == Spaces::kDropped && done < part.size() &&
               absl::ascii_isspace(static_cast<unsigned char>(part[done]))) {
          ++done;
        }
      }
      next.emplace_back(part.substr(done), known);
    }
    parts = std::move(next);
  }
  std::erase_if(parts, [](const auto& part) { return part.first.empty(); });
  return parts;
}

TEST(SpecialTokenFinderTest, TheLongestTokenComesFirstWhereverItIs) {
  const auto finder = FinderOf({{"ab", Spaces::kKept}, {"bcd", Spaces::kKept}});
  EXPECT_THAT(Find(finder, "xabcdab"),
              ElementsAre(Pair("xa", kText), Pair("bcd", 1), Pair("ab", 0)));
}

TEST(SpecialTokenFinderTest, DropsTheSpacesBehindSomeTokens) {
  const auto finder = FinderOf({{"<a>", Spaces::kDropped}, {"<b>", Spaces::kKept}});
  EXPECT_THAT(Find(finder, " <a> \n x<b> <a>"),
              ElementsAre(Pair(" ", kText), Pair("<a>", 0), Pair("x", kText), Pair("<b>", 1),
                          Pair(" ", kText), Pair("<a>", 0)));
}

TEST(SpecialTokenFinderTest, IgnoresTextsThatAreNone) {
  const auto finder = FinderOf({{"", Spaces::kKept}, {"\xC3", Spaces::kKept}});
  EXPECT_THAT(Find(finder, "\u00E9"), ElementsAre(Pair("\u00E9", kText)));
  EXPECT_THAT(Find(finder, ""), IsEmpty());
}

TEST(SpecialTokenFinderTest, FindsWhatThePlainRuleFinds) {
  std::mt19937 random(7);
  const auto draw = [&](size_t size) {
    std::string text;
    for (; size > 0; --size) text += "ab "[random() % 3];
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<Special> tokens;
    for (size_t count = 1 + random() % 5; count > 0; --count) {
      const Special token = {draw(1 + random() % 4),
                             random() % 4 == 0 ? Spaces::kDropped : Spaces::kKept};
      const bool is_known = std::any_of(tokens.begin(), tokens.end(), [&](const Special& other) {
        return other.text == token.text;
      });
      if (!is_known) tokens.push_back(token);
    }
    const std::string text = draw(random() % 24);
    std::string shown;
    for (const Special& token : tokens) shown += "'" + token.text + "' ";
    ASSERT_EQ(Find(FinderOf(tokens), text), PlainFind(tokens, text)) << shown << "in " << text;
  }
}

TEST(SpecialTokenFinderTest, AnOverlappingMegabyteTakesSeconds) {
  std::vector<Special> tokens;
  for (size_t size = 2; size < 40; ++size)
    tokens.push_back({std::string(size, 'a'), Spaces::kKept});
  const absl::Time begin = absl::Now();
  const Parts parts = Find(FinderOf(tokens), std::string(1 << 20, 'a'));
  EXPECT_EQ(parts.front().second, 37);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

TEST(SpecialTokenFinderTest, EndsAtTheDeadline) {
  const auto finder = FinderOf({{"ab", Spaces::kKept}});
  const auto found = finder.Split("xxabxx", absl::InfinitePast());
  EXPECT_EQ(ReasonOf(found.status()), Reason::kInvalidPrompt) << found.status();
}

}  // namespace
}  // namespace pagoda
