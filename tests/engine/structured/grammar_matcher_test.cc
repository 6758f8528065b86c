// Grammars over a small vocabulary, held against a plain search of all texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/structured/grammar_compiler.h"
#include "engine/structured/grammar_library.h"
#include "engine/structured/work_budget.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;
using Kind = StructuredOutput::Kind;

// The last two are no text: padding, and an end token.
const std::vector<std::string> kTokens = {
    "a", "b", "ab", "ba",  "bb",  "(",     ")", "()", "((", "1",    "12",   "2", "true", "false",
    "{", "}", "\"", "\":", "\"a", "\"a\"", ":", ",",  " ",  "\xc3", "\xa9", "é", "",     ""};
constexpr TokenId kEnd = 27;

GrammarCompiler CompilerOf(std::vector<TokenId> not_first = {}) {
  return GrammarCompiler(
      [not_first] { return AnswerVocabulary{.bytes = kTokens, .not_first = not_first}; });
}

class GrammarMatcherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasStructuredOutput()) GTEST_SKIP() << "this build has no structured output";
  }

  absl::Status Compile(Kind kind, const std::string& text) {
    return compiler_.Compile({kind, text}).status();
  }

  GrammarCompiler compiler_ = CompilerOf();
};

// The texts of a language, and what begins one of them.
struct Language {
  std::set<std::string> members;
  std::set<std::string> beginnings;
  size_t longest = 0;  // Longer beginnings are not known.

  void Add(const std::string& text) {
    members.insert(text);
    for (size_t n = 0; n <= text.size(); ++n) beginnings.insert(text.substr(0, n));
  }
};

// Tries all texts of at most `length` characters of the alphabet. Longer ones have other
// beginnings too, so only those of half the length are known.
Language Search(const std::function<bool(const std::string&)>& is_member,
                const std::string& alphabet, size_t length) {
  Language language{.longest = length / 2};
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i];
    if (is_member(text)) language.Add(text);
    if (text.size() == length) continue;
    for (const char c : alphabet) texts.push_back(text + c);
  }
  return language;
}

// Follows all sequences of tokens.
void ExpectExactMasks(const StructuredOutput& wanted, const Language& language) {
  GrammarCompiler compiler = CompilerOf();
  const auto grammar = compiler.Compile(wanted);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const std::vector<TokenId> ends = {kEnd};
  size_t compared = 0;
  std::vector<std::vector<TokenId>> paths = {{}};
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::vector<TokenId> path = paths[i];
    auto matcher = (*grammar)->NewMatcher(ends);
    std::string text;
    for (const TokenId token : path) {
      ASSERT_TRUE(matcher->Accept(token).ok()) << text << "|" << kTokens[token];
      text += kTokens[token];
    }
    const auto mask = matcher->Mask();
    ASSERT_TRUE(mask.ok()) << text << ": " << mask.status();
    for (TokenId token = 0; token < kTokens.size(); ++token) {
      const std::string after = text + kTokens[token];
      if (after.size() > language.longest) continue;
      const bool expected = token == kEnd
                                ? language.members.contains(text)
                                : !kTokens[token].empty() && language.beginnings.contains(after);
      EXPECT_EQ(Allows(**mask, token), expected) << "'" << text << "' | '" << kTokens[token] << "'";
      ++compared;
      if (expected && token != kEnd) paths.push_back({path});
      if (expected && token != kEnd) paths.back().push_back(token);
    }
  }
  EXPECT_GT(compared, 10 * kTokens.size());
}

TEST_F(GrammarMatcherTest, ARegularExpressionAllowsExactlyItsTexts) {
  const std::regex expression("(ab|b)*a{0,2}(1|12)?b");
  const auto matches = [&](const std::string& text) { return std::regex_match(text, expression); };
  ExpectExactMasks({Kind::kRegex, "(ab|b)*a{0,2}(1|12)?b"}, Search(matches, "ab12", 8));
}

TEST_F(GrammarMatcherTest, AGrammarAllowsExactlyItsTexts) {
  const auto is_balanced = [](const std::string& text) {
    int depth = 0;
    for (const char c : text) {
      depth += c == '(' ? 1 : -1;
      if (depth < 0) return false;
    }
    return depth == 0;
  };
  ExpectExactMasks({Kind::kGrammar, "root ::= (\"(\" root \")\")*"}, Search(is_balanced, "()", 12));
}

TEST_F(GrammarMatcherTest, ASchemaAllowsExactlyItsTexts) {
  Language language{.longest = 100};
  for (const char* value : {"true", "12", "1221", "\"a\"", "\"abab\"", "\"a:,(){}\"", "false"}) {
    language.Add(value);
  }
  ExpectExactMasks(
      {Kind::kJsonSchema, R"({"enum": [true, 12, 1221, "a", "abab", "a:,(){}", false]})"},
      language);
}

TEST_F(GrammarMatcherTest, ACharacterCanBeSpreadOverTokens) {
  const auto grammar = compiler_.Compile({Kind::kRegex, "[é-ü]a"});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const std::vector<TokenId> ends = {kEnd};
  auto matcher = (*grammar)->NewMatcher(ends);
  EXPECT_TRUE(Allows(**matcher->Mask(), 23));
  EXPECT_TRUE(Allows(**matcher->Mask(), 25));
  ASSERT_TRUE(matcher->Accept(23).ok());
  EXPECT_TRUE(Allows(**matcher->Mask(), 24));
  EXPECT_FALSE(Allows(**matcher->Mask(), 0));
  EXPECT_FALSE(Allows(**matcher->Mask(), kEnd));
}

TEST_F(GrammarMatcherTest, TheEndIsAllowedOnlyWhereTheTextIsComplete) {
  const auto grammar = compiler_.Compile({Kind::kRegex, "ab?"});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const std::vector<TokenId> ends = {1, kEnd};  // "b" ends an answer too, where it may.
  auto matcher = (*grammar)->NewMatcher(ends);
  EXPECT_FALSE(Allows(**matcher->Mask(), kEnd));
  EXPECT_FALSE(Allows(**matcher->Mask(), 1));
  ASSERT_TRUE(matcher->Accept(0).ok());
  EXPECT_TRUE(Allows(**matcher->Mask(), kEnd));
  EXPECT_TRUE(Allows(**matcher->Mask(), 1));
  EXPECT_FALSE(matcher->has_ended());
  ASSERT_TRUE(matcher->Accept(kEnd).ok());
  EXPECT_TRUE(matcher->has_ended());
}

TEST_F(GrammarMatcherTest, WithoutEndTokensItEndsWhereNothingCanFollow) {
  const auto grammar = compiler_.Compile({Kind::kRegex, "ab?"});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  auto matcher = (*grammar)->NewMatcher({});
  ASSERT_TRUE(matcher->Accept(0).ok());
  EXPECT_FALSE(matcher->has_ended());
  ASSERT_TRUE(matcher->Accept(1).ok());
  EXPECT_TRUE(matcher->has_ended());
}

TEST_F(GrammarMatcherTest, ATokenThatChangesAtTheBeginningIsNotFirst) {
  GrammarCompiler compiler = CompilerOf({0});
  const auto grammar = compiler.Compile({Kind::kRegex, "a*b"});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  auto matcher = (*grammar)->NewMatcher({});
  EXPECT_FALSE(Allows(**matcher->Mask(), 0));
  EXPECT_TRUE(Allows(**matcher->Mask(), 2));  // "ab"
  EXPECT_TRUE(Allows(**matcher->Mask(), 1));
}

TEST_F(GrammarMatcherTest, ATextThatNoTokenContinuesIsAnError) {
  const auto grammar = compiler_.Compile({Kind::kRegex, "az"});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  auto matcher = (*grammar)->NewMatcher({});
  ASSERT_TRUE(matcher->Accept(0).ok());
  EXPECT_EQ(ReasonOf(matcher->Mask().status()), Reason::kInvalidArgument);
  EXPECT_THAT(matcher->Mask().status().message(), HasSubstr("no token"));
}

TEST_F(GrammarMatcherTest, BadGrammarsAreRefusedWithTheLibrarysWords) {
  const struct {
    Kind kind;
    std::string text;
    const char* says;
  } cases[] = {{Kind::kJsonSchema, "{", "not JSON"},
               {Kind::kJsonSchema, "12", "neither an object"},
               {Kind::kJsonSchema, R"({"type": "nonsense"})", "nonsense"},
               {Kind::kJsonSchema, R"({"properties": {"a": {"not": {}}}})", "'not'"},
               {Kind::kJsonSchema, R"({"items": {"uniqueItems": true}})", "'uniqueItems'"},
               {Kind::kJsonSchema, R"({"$ref": "http://nowhere"})", "URI"},
               {Kind::kJsonSchema, R"({"type": "number", "multipleOf": 3})", "multipleOf"},
               {Kind::kJsonSchema, R"({"type": "string", "pattern": "é+"})", "pattern"},
               {Kind::kRegex, "(a", "grammar: "},
               {Kind::kRegex, "a(?=b)", "grammar: "},
               {Kind::kGrammar, "root ::= missing", "missing"},
               {Kind::kGrammar, "no rule", "grammar: "},
               {Kind::kGrammar, std::string("root ::= \"a\0\"", 13), "zero"}};
  for (const auto& [kind, text, says] : cases) {
    const absl::Status status = Compile(kind, text);
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument) << text << ": " << status;
    EXPECT_THAT(status.message(), HasSubstr(says)) << text;
    EXPECT_THAT(status.message(), Not(HasSubstr(".cc"))) << text;
  }
  // A property may have a keyword's name.
  EXPECT_TRUE(Compile(Kind::kJsonSchema, R"({"properties": {"not": {"type": "null"}}})").ok());
}

// JSON's strings have no raw control characters, quotes and backslashes.
TEST_F(GrammarMatcherTest, AStringOfASchemaIsAlwaysAStringOfJson) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 128; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.insert(bytes.end(), {"é", "\xef\xbf", "\xbd"});
  const auto end = static_cast<TokenId>(bytes.size());
  const std::vector<TokenId> ends = {end};
  GrammarCompiler compiler([&] { return AnswerVocabulary{.bytes = bytes, .not_first = {}}; });
  for (const char* schema :
       {R"({"type": "string"})", R"({"type": "string", "maxLength": 9})",
        R"({"type": "string", "minLength": 2})", R"({"type": "string", "pattern": "^.{1,5}$"})",
        R"({"type": "string", "pattern": "^[^a]+$"})", R"({"type": "string", "format": "email"})",
        R"({"type": "string", "format": "uri"})", R"({"type": "string", "format": "uuid"})",
        R"({"type": "string", "format": "date-time"})",
        R"({"type": "string", "format": "json-pointer"})",
        R"({"type": "string", "format": "relative-json-pointer"})",
        R"({"type": "object", "additionalProperties": {"type": "string", "maxLength": 3}})",
        R"({"type": "object", "patternProperties": {"^.b*$": {"type": "null"}}})",
        R"({"type": "object", "propertyNames": {"pattern": "^\\S*$"},
            "additionalProperties": {"type": "integer"}})"}) {
    const auto grammar = compiler.Compile({Kind::kJsonSchema, schema});
    ASSERT_TRUE(grammar.ok()) << schema << ": " << grammar.status();
    std::mt19937 random(1);
    int whole = 0;
    for (int answer = 0; answer < 200; ++answer) {
      auto matcher = (*grammar)->NewMatcher(ends);
      std::string text;
      while (!matcher->has_ended() && text.size() < 200) {
        const auto mask = matcher->Mask();
        ASSERT_TRUE(mask.ok()) << mask.status();
        std::vector<TokenId> allowed;
        for (TokenId token = 0; token <= end; ++token) {
          if (Allows(**mask, token)) allowed.push_back(token);
        }
        // Ends, closes and control characters more often than by chance.
        TokenId token = allowed[random() % allowed.size()];
        if (random() % 4 == 0) token = random() % 2 == 0 ? allowed.front() : allowed.back();
        if (token != end) text += bytes[token];
        ASSERT_TRUE(matcher->Accept(token).ok());
      }
      if (!matcher->has_ended()) continue;
      ++whole;
      ASSERT_TRUE(nlohmann::json::accept(text)) << schema << ": " << text;
    }
    EXPECT_GT(whole, 0) << schema;
  }
}

TEST_F(GrammarMatcherTest, LargeAndDeepGrammarsAreRefused) {
  const auto repeated = [](const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  const std::pair<Kind, std::string> refused[] = {
      {Kind::kRegex, std::string(GrammarCompiler::kMaxTextBytes + 1, 'a')},
      {Kind::kRegex, repeated("(", 20'000) + "a" + repeated(")", 20'000)},
      {Kind::kJsonSchema, repeated(R"({"items":)", 5'000) + "{}" + repeated("}", 5'000)},
      {Kind::kGrammar, "root ::= " + repeated("(", 20'000) + "\"a\"" + repeated(")", 20'000)}};
  for (const auto& [kind, text] : refused) {
    EXPECT_EQ(ReasonOf(Compile(kind, text)), Reason::kInvalidArgument) << text.substr(0, 20);
  }
  // Brackets in a class of characters do not nest.
  EXPECT_TRUE(Compile(Kind::kRegex, "[" + std::string(1'000, '(') + "]").ok());
}

// Each ends, with a grammar or an error, and does not stop the process.
TEST_F(GrammarMatcherTest, CostlyGrammarsEnd) {
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 3'000; ++i) {
    chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  }
  chain += "r3000 ::= \"a\"\n";
  const std::pair<Kind, std::string> costly[] = {
      {Kind::kRegex, "a{1000000}"},
      {Kind::kRegex, "((((a{1,99}){1,99}){1,99}){1,99}){1,99}"},
      {Kind::kRegex, "(a|b)*a(a|b){18}"},
      {Kind::kGrammar, chain},
      {Kind::kGrammar, "root ::= \"a\"{0,2000000000}"},
      {Kind::kJsonSchema, R"({"type": "string", "maxLength": 100000000})"},
      {Kind::kJsonSchema,
       R"({"type": "array", "minItems": 1000000, "items": {"type": "integer"}})"}};
  for (const auto& [kind, text] : costly) {
    const auto grammar = compiler_.Compile({kind, text});
    if (!grammar.ok()) {
      EXPECT_EQ(ReasonOf(grammar.status()), Reason::kInvalidArgument) << grammar.status();
      continue;
    }
    auto matcher = (*grammar)->NewMatcher({});
    for (int i = 0; i < 20 && !matcher->has_ended() && matcher->Mask().ok(); ++i) {
      const TokenMask mask = **matcher->Mask();
      for (TokenId token = 0; token < kTokens.size(); ++token) {
        if (!Allows(mask, token)) continue;
        if (const absl::Status accepted = matcher->Accept(token); !accepted.ok()) {
          ASSERT_THAT(accepted.message(), HasSubstr("too much time")) << text.substr(0, 40);
        }
        break;
      }
    }
  }
}

TEST_F(GrammarMatcherTest, WorkBeyondTheLimitsIsAnError) {
  if (!WorkBudget::kIsEnforced) GTEST_SKIP() << "sanitizers have their own allocator";
  const AnswerVocabulary vocabulary{.bytes = kTokens, .not_first = {}};
  const auto expect_too_much = [](const absl::Status& status) {
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument) << status;
    EXPECT_THAT(status.message(), HasSubstr("too much time or memory"));
  };
  const StructuredOutput wanted = {Kind::kGrammar, "root ::= \"a\" root | \"b\""};
  const WorkBudget::Limits few_bytes = {.processor_time = absl::Minutes(1), .bytes = 500};
  expect_too_much(
      MakeGrammarLibrary(vocabulary, {.compilation = few_bytes})->Compile(wanted).status());
  // Enough allocations that the time is checked.
  const StructuredOutput object = {Kind::kJsonObject, ""};
  const WorkBudget::Limits no_time = {.processor_time = absl::ZeroDuration(), .bytes = 1 << 30};
  expect_too_much(
      MakeGrammarLibrary(vocabulary, {.compilation = no_time})->Compile(object).status());
  // A matcher that may have little memory ends after some tokens, and stays at its error.
  const auto grammar = MakeGrammarLibrary(vocabulary, {.matcher_bytes = 20'000})->Compile(wanted);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  auto matcher = grammar->grammar->NewMatcher({});
  int accepted = 0;
  while (accepted < 10'000 && matcher->Mask().ok() && matcher->Accept(0).ok()) ++accepted;
  EXPECT_GT(accepted, 1);
  EXPECT_LT(accepted, 10'000);
  expect_too_much(matcher->Mask().status());
  expect_too_much(matcher->Accept(1));
}

// A client cannot make the daemon work for the same wrong grammar again and again.
TEST_F(GrammarMatcherTest, ARefusalIsRemembered) {
  const StructuredOutput wrong = {Kind::kGrammar, "root ::= missing"};
  const StructuredOutput right = {Kind::kGrammar, "root ::= \"a\""};
  EXPECT_FALSE(compiler_.Knows(wrong));
  EXPECT_FALSE(compiler_.Knows(right));
  const absl::Status refused = Compile(wrong.kind, wrong.text);
  EXPECT_EQ(ReasonOf(refused), Reason::kInvalidArgument) << refused;
  EXPECT_TRUE(compiler_.Knows(wrong));
  EXPECT_EQ(Compile(wrong.kind, wrong.text), refused);
  EXPECT_TRUE(Compile(right.kind, right.text).ok());
  EXPECT_TRUE(compiler_.Knows(right));
  for (size_t i = 0; i < GrammarCompiler::kMaxCached; ++i) {
    EXPECT_FALSE(Compile(Kind::kGrammar, "root ::= missing" + std::to_string(i)).ok());
  }
  EXPECT_FALSE(compiler_.Knows(wrong)) << "refusals do not take more places than grammars";
}

TEST_F(GrammarMatcherTest, AllMatchersHaveACommonLimit) {
  if (!WorkBudget::kIsEnforced) GTEST_SKIP() << "sanitizers have their own allocator";
  const AnswerVocabulary vocabulary{.bytes = kTokens, .not_first = {}};
  const auto grammar = MakeGrammarLibrary(vocabulary, {.all_matcher_bytes = 100'000})
                           ->Compile({Kind::kGrammar, "root ::= \"a\" root | \"b\""});
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  const auto steps_of = [](GrammarMatcher& matcher) {
    int steps = 0;
    while (steps < 100'000 && matcher.Mask().ok() && matcher.Accept(0).ok()) ++steps;
    return steps;
  };
  auto first = grammar->grammar->NewMatcher({});
  const int alone = steps_of(*first);
  EXPECT_GT(alone, 100);
  EXPECT_LT(alone, 100'000);
  auto second = grammar->grammar->NewMatcher({});
  EXPECT_LT(steps_of(*second), alone / 2) << "the first holds the most";
  EXPECT_EQ(ReasonOf(second->Mask().status()), Reason::kQueueFull) << "not this client's fault";
  second.reset();
  first.reset();
  EXPECT_EQ(steps_of(*grammar->grammar->NewMatcher({})), alone);
}

// Wherever operator new throws, the work ends with an error: also in the library's messages, whose
// destructors allocate, and in streams, which catch the exception.
TEST_F(GrammarMatcherTest, ALimitEndsTheWorkWhereverItIs) {
  if (!WorkBudget::kIsEnforced) GTEST_SKIP() << "sanitizers have their own allocator";
  const AnswerVocabulary vocabulary{.bytes = kTokens, .not_first = {}};
  std::string carets = "a";
  for (int i = 0; i < 100; ++i) carets += "(^b)";
  const StructuredOutput works[] = {
      {Kind::kRegex, carets},      // A warning for each.
      {Kind::kRegex, "a{2,1}(["},  // A failure.
      {Kind::kJsonSchema, R"({"$ref": "http://)" + std::string(5'000, 'x') + R"("})"},
      {Kind::kJsonSchema, R"({"type": "string", "format": "email", "maxLength": 40})"},
      {Kind::kJsonObject, ""}};
  for (const StructuredOutput& work : works) {
    int refused = 0;
    for (int64_t bytes = 100; bytes < int64_t{1} << 25; bytes += bytes / 16 + 1) {
      const WorkBudget::Limits limits = {.processor_time = absl::Minutes(1), .bytes = bytes};
      const auto grammar = MakeGrammarLibrary(vocabulary, {.compilation = limits})->Compile(work);
      if (grammar.ok()) continue;
      EXPECT_EQ(ReasonOf(grammar.status()), Reason::kInvalidArgument) << grammar.status();
      ++refused;
    }
    EXPECT_GT(refused, 20);
  }
}

TEST_F(GrammarMatcherTest, CompiledGrammarsAreKeptToALimit) {
  const auto first = compiler_.Compile({Kind::kRegex, "a"});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*compiler_.Compile({Kind::kRegex, "a"}), *first);
  EXPECT_NE(*compiler_.Compile({Kind::kGrammar, "root ::= \"a\""}), *first);
  for (size_t i = 0; i < GrammarCompiler::kMaxCached; ++i) {
    ASSERT_TRUE(Compile(Kind::kRegex, "a" + std::string(i + 1, 'b')).ok());
  }
  EXPECT_NE(*compiler_.Compile({Kind::kRegex, "a"}), *first);
}

}  // namespace
}  // namespace pagoda
