#ifndef PAGODA_ENGINE_STRUCTURED_GRAMMAR_RULES_H_
#define PAGODA_ENGINE_STRUCTURED_GRAMMAR_RULES_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pagoda {

struct GrammarTextLimits {
  size_t depth = 0;  // The most nested brackets; also in an expression, as in Regex("((a))").
  size_t rules = 0;  // The most rules of an EBNF grammar.
};

// What the library of grammars does not survive in an EBNF grammar. It expands a repetition
// `a{n,m}` of a rule that is itself only a repetition, and so on: without end if the last one
// repeats the first, as `root ::= root{0,1}` does. It recurses once for each rule of such a chain,
// and for each bracket of an expression. Such a cycle derives no text at all, or the same text in
// endlessly many ways, so no useful grammar is lost. A text that is not a grammar passes: the
// library says what is wrong with it. Errors: INVALID_ARGUMENT; it names the rule. Cost: linear.
absl::Status CheckGrammarRules(absl::string_view grammar, const GrammarTextLimits& limits);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_STRUCTURED_GRAMMAR_RULES_H_
