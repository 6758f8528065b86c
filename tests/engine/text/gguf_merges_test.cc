// Both kinds of merging of GGUF vocabularies, compared with plain ones; and patterns in ranges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/text/encoding/visible_spaces.h"
#include "engine/text/split/pattern.h"
#include "engine/text/vocabulary/bpe.h"
#include "engine/text/vocabulary/score_bpe.h"

namespace pagoda {
namespace {

using Symbols = std::vector<std::string>;

std::string Draw(std::mt19937& random, size_t size, const std::string& letters) {
  std::string text;
  for (; size > 0; --size) text += letters[random() % letters.size()];
  return text;
}

// Merges the best pair of neighbours, the leftmost of equal ones, until none has a value.
template <class Value>
Symbols PlainMerge(const std::string& word, Value value) {
  Symbols pieces;
  for (const char letter : word) pieces.emplace_back(1, letter);
  while (true) {
    std::optional<std::pair<double, size_t>> best;
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      const std::optional<double> here = value(pieces[i], pieces[i + 1]);
      if (here.has_value() && (!best.has_value() || *here > best->first)) best = {*here, i};
    }
    if (!best.has_value()) return pieces;
    pieces[best->second] += pieces[best->second + 1];
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(best->second) + 1);
  }
}

struct Vocabulary {
  TokenTable tokens{0, 0};
  std::map<std::string, TokenId> ids;
};

// The letters, and some other texts.
Vocabulary DrawVocabulary(std::mt19937& random) {
  std::vector<std::string> texts = {"a", "b", "c"};
  for (int i = 0; i < 12; ++i) texts.push_back(Draw(random, 2 + random() % 3, "abc"));
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  Vocabulary vocabulary{.tokens = TokenTable(texts.size(), texts.size()), .ids = {}};
  for (size_t id = 0; id < texts.size(); ++id) {
    vocabulary.ids[texts[id]] = static_cast<TokenId>(id);
    vocabulary.tokens.Add(static_cast<TokenId>(id), texts[id]);
  }
  return vocabulary;
}

TEST(ScoreBpeTest, MergesAsAPlainLoopDoes) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    Vocabulary vocabulary = DrawVocabulary(random);
    std::vector<float> scores(vocabulary.ids.size());
    for (float& score : scores) score = -static_cast<float>(random() % 8);  // Some are equal.
    const ScoreBpe bpe(std::move(vocabulary.tokens), scores, std::nullopt);
    for (int i = 0; i < 20; ++i) {
      const std::string word = Draw(random, random() % 16, "abc");
      std::vector<TokenId> wanted;
      for (const std::string& piece :
           PlainMerge(word, [&](const std::string&left, const std::string&right) {
             const auto both = vocabulary.ids.find(left + right);
             return both == vocabulary.ids.end() ? std::nullopt
                                                 : std::optional<double>(scores[both->second]);
           })) {
        wanted.push_back(vocabulary.ids.at(piece));
      }
      std::vector<TokenId> ids;
      ASSERT_TRUE(bpe.Encode(word, absl::InfiniteFuture(), ids).ok());
      ASSERT_EQ(ids, wanted) << word;
    }
  }
}

TEST(ScoreBpeTest, OneLongWordTakesSeconds) {
  TokenTable tokens(4, 4);
  std::vector<float> scores;
  for (const char* const text : {"a", "aa", "aaaa", "aaaaaaaa"}) {
    tokens.Add(static_cast<TokenId>(scores.size()), text);
    scores.push_back(static_cast<float>(scores.size()));
  }
  const ScoreBpe bpe(std::move(tokens), scores, std::nullopt);
  const absl::Time begin = absl::Now();
  std::vector<TokenId> ids;
  const std::string word(1 << 20, 'a');
  ASSERT_TRUE(bpe.Encode(word, absl::InfiniteFuture(), ids).ok());
  EXPECT_EQ(ids.size(), (1 << 20) / 8);
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
  // Words and whole texts end at their deadline.
  EXPECT_EQ(ReasonOf(bpe.Encode(word, absl::InfinitePast(), ids)), Reason::kInvalidPrompt);
  std::string words;
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&words, kVisibleSpace, "a");
  EXPECT_EQ(ReasonOf(bpe.Encode(words, absl::InfinitePast(), ids)), Reason::kInvalidPrompt);
  // A late text leaves nothing wrong in the cache.
  ids.clear();
  ASSERT_TRUE(bpe.Encode("aaaaaaaa", absl::InfiniteFuture(), ids).ok());
  EXPECT_THAT(ids, ::testing::ElementsAre(3));
}

TEST(GgufBpeTest, MergesAsAPlainLoopDoesAlsoThroughTextsThatAreNoTokens) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    Vocabulary vocabulary = DrawVocabulary(random);
    std::vector<std::string> merges;
    std::map<std::pair<std::string, std::string>, double> ranks;
    std::vector<std::string> parts = {"a", "b", "c"};
    for (int i = 0; i < 14; ++i) {
      const std::string left = parts[random() % parts.size()];
      const std::string right = parts[random() % parts.size()];
      merges.push_back(absl::StrCat(left, " ", right));
      ranks.try_emplace({left, right}, -i);
      parts.push_back(left + right);
    }
    const auto bpe =
        Bpe::FromGguf(std::move(vocabulary.tokens),
                      {.merges = std::vector<absl::string_view>(merges.begin(), merges.end())});
    for (int i = 0; i < 20; ++i) {
      const std::string word = Draw(random, random() % 16, "abc");
      std::vector<TokenId> wanted;
      for (const std::string& piece :
           PlainMerge(word, [&](const std::string&left, const std::string&right) {
             const auto rank = ranks.find({left, right});
             return rank == ranks.end() ? std::nullopt : std::optional<double>(rank->second);
           })) {
        if (const auto id = vocabulary.ids.find(piece); id != vocabulary.ids.end()) {
          wanted.push_back(id->second);
          continue;
        }
        for (const char letter : piece) wanted.push_back(vocabulary.ids.at(std::string(1, letter)));
      }
      std::vector<TokenId> ids;
      bpe->Encode(word, ids);
      ASSERT_EQ(ids, wanted) << word;
    }
  }
}

// A pattern and the words between its matches, in one range as if it were the whole text.
std::vector<TextRange> PlainSplit(const Pattern& pattern, const std::string& text,
                                  const TextRange& range) {
  std::vector<TextRange> parts;
  const auto add = [&](size_t begin, size_t end) {
    if (begin < end) parts.push_back({range.begin + begin, range.begin + end});
  };
  size_t done = 0;
  const std::string part = text.substr(range.begin, range.end - range.begin);
  const auto matches = pattern.FindAll(part, absl::InfiniteFuture());
  EXPECT_TRUE(matches.ok()) << matches.status();
  for (const TextRange& match : *matches) {
    add(done, match.begin);
    add(match.begin, match.end);
    done = match.end;
  }
  add(done, part.size());
  return parts;
}

TEST(PatternTest, SplitsEachRangeAsIfItWereTheText) {
  std::mt19937 random(9);
  const std::vector<std::string> letters = {"a", "1", " ", "é", "\U0001F600", "\n"};
  for (const char* const expression :
       {R"(\s+(?!\S)|\s+)", R"(1(?!a))", R"(\s+\z)", "^a|é$", "(?=1)", R"(\p{N}{1,3})"}) {
    const Pattern pattern = *Pattern::Regex(expression);
    for (int round = 0; round < 200; ++round) {
      std::string text;
      std::vector<TextRange> ranges;
      for (size_t i = random() % 6; i > 0; --i) {
        if (random() % 3 == 0) text += "1";  // Between ranges.
        const size_t begin = text.size();
        for (size_t size = 1 + random() % 6; size > 0; --size) text += letters[random() % 6];
        ranges.push_back({begin, text.size()});
      }
      std::vector<std::pair<size_t, size_t>> wanted;
      for (const TextRange& range : ranges) {
        for (const TextRange& part : PlainSplit(pattern, text, range)) {
          wanted.emplace_back(part.begin, part.end);
        }
      }
      const auto split = pattern.SplitEach(text, ranges, absl::InfiniteFuture());
      ASSERT_TRUE(split.ok()) << split.status();
      std::vector<std::pair<size_t, size_t>> parts;
      for (const TextRange& part : *split) parts.emplace_back(part.begin, part.end);
      ASSERT_EQ(parts, wanted) << expression << " in " << text;
    }
  }
}

}  // namespace
}  // namespace pagoda
