// Random cyclic grammars (grammar_writer.h) against the process that compiles them. No clang is
// needed: a seed is a grammar, and the process that dies is the finding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "engine/structured/check_grammar_text.h"
#include "engine/structured/grammar_compiler.h"
#include "engine/structured/grammar_library.h"
#include "engine/structured/grammar_process.h"
#include "tests/fuzz/grammar_writer.h"

namespace pagoda {
namespace {

const AnswerVocabulary kVocabulary = {
    .bytes = {"a", "b", "ab", "\"", "[", "]", "{", "}", ":", "p", ",", "null", "1", ""},
    .not_first = {}};

uint32_t Seeds() {
  const char* const wanted = std::getenv("PAGODA_GRAMMAR_SEEDS");
  return wanted == nullptr ? 250 : static_cast<uint32_t>(std::strtoul(wanted, nullptr, 10));
}

absl::Status Check(const StructuredOutput& grammar) {
  return CheckGrammarText(
      grammar, {.depth = GrammarCompiler::kMaxDepth, .rules = GrammarCompiler::kMaxRules});
}

bool EndsTheProcess(const absl::Status& status) {
  return absl::StrContains(status.message(), "the process that compiled it");
}

class GrammarCyclesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasStructuredOutput()) GTEST_SKIP() << "this build has no structured output";
  }

  GrammarProcess process_{[] { return kVocabulary; }};
};

// Takes tokens in turn, so that the answer goes through the cycles.
void Answer(const CompiledGrammar& grammar, uint32_t seed) {
  auto matcher = grammar.NewMatcher({});
  for (uint32_t step = 0; step < 12 && !matcher->has_ended(); ++step) {
    const absl::StatusOr<const TokenMask*> mask = matcher->Mask();
    if (!mask.ok()) return;
    const auto tokens = static_cast<TokenId>(kVocabulary.bytes.size());
    TokenId token = (seed + step) % tokens;
    while (!Allows(**mask, token)) token = (token + 1) % tokens;
    if (!matcher->Accept(token).ok()) return;
  }
}

TEST_F(GrammarCyclesTest, WhatTheChecksLetThroughEndsNoProcess) {
  const auto library = MakeGrammarLibrary(kVocabulary);
  uint32_t compiled = 0;
  for (uint32_t seed = 1; seed <= Seeds(); ++seed) {
    const StructuredOutput grammar = WriteGrammar(seed);
    if (!Check(grammar).ok()) continue;
    const absl::StatusOr<std::string> bytes = process_.Compile(grammar);
    EXPECT_FALSE(EndsTheProcess(bytes.status()))
        << "seed " << seed << ": " << bytes.status() << "\n"
        << grammar.text;
    if (!bytes.ok()) continue;
    const auto read = library->FromBytes(*bytes);
    ASSERT_TRUE(read.ok()) << "seed " << seed << ": " << read.status() << "\n" << grammar.text;
    Answer(*read->grammar, seed);
    ++compiled;
  }
  EXPECT_GT(compiled, Seeds() / 4);
}

// The generator finds the cycles that end the library, and the checks refuse them.
TEST_F(GrammarCyclesTest, WhatTheChecksRefuseEndsTheProcess) {
  int refused = 0;
  int ended = 0;
  for (uint32_t seed = 1; seed <= Seeds() && refused < 10; ++seed) {
    const StructuredOutput grammar = WriteGrammar(seed);
    if (!absl::StrContains(Check(grammar).message(), "nothing but a repetition of itself"))
      continue;
    ++refused;
    ended += EndsTheProcess(process_.Compile(grammar).status()) ? 1 : 0;
  }
  EXPECT_EQ(refused, 10);
  EXPECT_GE(ended, 5);
}

}  // namespace
}  // namespace pagoda

int main(int argc, char** argv) {
  if (const std::optional<int> status = pagoda::GrammarProcessMain(argc, argv);
      status.has_value()) {
    return *status;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
