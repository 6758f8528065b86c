// A build without the library of grammars.
#include "engine/structured/grammar_compiler.h"
#include "engine/structured/grammar_library.h"

namespace pagoda {

bool HasStructuredOutput() { return false; }

std::unique_ptr<GrammarLibrary> MakeGrammarLibrary(AnswerVocabulary /*vocabulary*/,
                                                   const GrammarLimits& /*limits*/) {
  return nullptr;
}

}  // namespace pagoda
