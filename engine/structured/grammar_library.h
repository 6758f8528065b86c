// The boundary to the library of grammars. Only xgrammar_library.cc knows it; absent_library.cc
// takes its place in a build without it.
#ifndef PAGODA_ENGINE_STRUCTURED_GRAMMAR_LIBRARY_H_
#define PAGODA_ENGINE_STRUCTURED_GRAMMAR_LIBRARY_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/structured/answer_vocabulary.h"
#include "engine/structured/grammar.h"

namespace pagoda {

struct LibraryGrammar {
  std::shared_ptr<const CompiledGrammar> grammar;
  size_t bytes = 0;  // About.
};

// No exception passes this class or what it makes. Thread-compatible; its grammars outlive it.
class GrammarLibrary {
 public:
  virtual ~GrammarLibrary() = default;
  // Errors: INVALID_ARGUMENT with the library's message. Needs a large stack for a grammar of many
  // rules.
  virtual absl::StatusOr<LibraryGrammar> Compile(const StructuredOutput& wanted) = 0;
};

// Null in a build without the library.
std::unique_ptr<GrammarLibrary> MakeGrammarLibrary(AnswerVocabulary vocabulary);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_STRUCTURED_GRAMMAR_LIBRARY_H_
