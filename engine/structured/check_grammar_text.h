#ifndef PAGODA_ENGINE_STRUCTURED_CHECK_GRAMMAR_TEXT_H_
#define PAGODA_ENGINE_STRUCTURED_CHECK_GRAMMAR_TEXT_H_

#include "absl/status/status.h"
#include "engine/structured/grammar.h"
#include "engine/structured/grammar_rules.h"

namespace pagoda {

// What the library of grammars does not check itself: how deeply brackets nest, also in patterns;
// what CheckGrammarRules refuses; that a text has no zeros; and that a schema is JSON without a
// keyword that the library ignores: `not`, `if`, `then`, `else`, `dependentRequired`,
// `dependentSchemas`, `uniqueItems`, `contains`, `minContains`, `maxContains` and `$dynamicRef`. An
// answer could break what they demand. Errors: INVALID_ARGUMENT.
absl::Status CheckGrammarText(const StructuredOutput& wanted, const GrammarTextLimits& limits);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_STRUCTURED_CHECK_GRAMMAR_TEXT_H_
