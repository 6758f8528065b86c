#include "engine/structured/grammar_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "engine/structured/grammar_compiler.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

constexpr GrammarTextLimits kLimits = {.depth = 128, .rules = 100};

// The library ended the process for each of these.
TEST(GrammarRulesTest, ARuleThatIsOnlyARepetitionOfItselfIsRefused) {
  for (const char* grammar :
       {"root ::= root{0,1}", "root ::= root{0,}", "root ::= root{2}", "root ::= root{2,3}",
        "root ::= root{0}", "root ::= ((root)){0,1}", "root ::= ( ( root ){0,1} ){2,3}",
        "root ::= \"\" root{0,1} () (\"\")", "root ::= (root{0,1})", "root ::= root{0,1} (= \"a\")",
        "# a comment ::= x\nroot ::= root # ::=\n {0,1}", "root ::= root\n{ 0 , 1 }",
        "root[lazy] ::= root{0,1}", "other ::= \"]\" [\"]\nroot ::= root{0,1}",
        "root ::= empty root{0,1}\nempty ::= \"\" ()"}) {
    const absl::Status status = CheckGrammarRules(grammar, kLimits);
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument) << grammar;
    EXPECT_THAT(status.message(), HasSubstr("rule 'root' is nothing but a repetition of itself"))
        << grammar;
  }
}

TEST(GrammarRulesTest, ACycleOfSeveralRulesIsRefusedAndShown) {
  const absl::Status status =
      CheckGrammarRules("root ::= \"x\" a\na ::= b{0,1}\nb ::= (c)\nc ::= a{1,2}", kLimits);
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("'a' is nothing but a repetition of itself (a -> b -> c -> a)"));
  // A long cycle is shown in part.
  std::string cycle;
  for (int i = 0; i < 90; ++i) {
    cycle += "rule" + std::to_string(i) + " ::= rule" + std::to_string((i + 1) % 90) + "{1,2}\n";
  }
  const absl::Status shown = CheckGrammarRules(cycle, kLimits);
  EXPECT_EQ(ReasonOf(shown), Reason::kInvalidArgument);
  EXPECT_LT(shown.message().size(), 400u);
}

TEST(GrammarRulesTest, UsefulRecursionPasses) {
  for (const char* grammar :
       {"root ::= \"(\" root{0,1} \")\"", "root ::= (\"(\" root \")\")*",
        "root ::= root{0,1} \"a\"", "root ::= \"a\" | root{2,3}", "root ::= root? \"a\"",
        "root ::= a{2,3}\na ::= \"(\" root \")\"", "root ::= a root{0,1}\na ::= b{2}\nb ::= \"x\"",
        "root ::= a\na ::= b{1,2}\nb ::= c{1,2}\nc ::= [a-z]", "root ::= \"root{0,1}\"",
        "root ::= [root{0,1}]", "# root ::= root{0,1}\nroot ::= \"a\"",
        "root ::= Regex(\"a\") root?",
        "expr ::= term | expr \"+\" term\nterm ::= [0-9]+ | \"(\" expr \")\"",
        // Not a grammar: the library says what is wrong.
        "", "root", "::=", "root ::= (((", "root ::= \"", "root ::= [", "root ::= a{",
        "root ::= )\\"}) {
    EXPECT_TRUE(CheckGrammarRules(grammar, kLimits).ok()) << grammar;
  }
}

TEST(GrammarRulesTest, RulesAndBracketsOfExpressionsAreLimited) {
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 99; ++i) rules += "r" + std::to_string(i) + " ::= \"a\"\n";
  EXPECT_TRUE(CheckGrammarRules(rules, kLimits).ok());
  rules += "one_more ::= \"a\"\n";
  EXPECT_THAT(CheckGrammarRules(rules, kLimits).message(), HasSubstr("101 rules; it may have 100"));
  const auto expression = [](size_t depth) {
    return "root ::= Regex(\"" + std::string(depth, '(') + "a" + std::string(depth, ')') + "\")";
  };
  EXPECT_TRUE(CheckGrammarRules(expression(128), kLimits).ok());
  EXPECT_THAT(CheckGrammarRules(expression(129), kLimits).message(), HasSubstr("nests 129"));
}

}  // namespace
}  // namespace pagoda
