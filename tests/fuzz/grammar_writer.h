// Writes random grammars whose rules refer to each other: most of them in cycles, through
// repetitions, empty texts, alternatives, look-ahead and the library's own functions.
#ifndef PAGODA_TESTS_FUZZ_GRAMMAR_WRITER_H_
#define PAGODA_TESTS_FUZZ_GRAMMAR_WRITER_H_

#include <cstdint>

#include "engine/structured/grammar.h"

namespace pagoda {

// The same seed gives the same grammar: EBNF, a schema or a regular expression.
StructuredOutput WriteGrammar(uint32_t seed);

}  // namespace pagoda

#endif  // PAGODA_TESTS_FUZZ_GRAMMAR_WRITER_H_
