// The boundary to the library of grammars. Only xgrammar_library.cc knows it; absent_library.cc
// takes its place in a build without it.
#ifndef PAGODA_ENGINE_STRUCTURED_GRAMMAR_LIBRARY_H_
#define PAGODA_ENGINE_STRUCTURED_GRAMMAR_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/structured/answer_vocabulary.h"
#include "engine/structured/grammar.h"
#include "engine/structured/work_budget.h"

namespace pagoda {

// Usual schemas take milliseconds to compile, and usual steps of a matcher microseconds.
struct GrammarLimits {
  WorkBudget::Limits compilation = {.processor_time = absl::Seconds(3),
                                    .bytes = int64_t{256} << 20};
  absl::Duration step_time = absl::Milliseconds(200);
  int64_t matcher_bytes = int64_t{64} << 20;
  // The bound for all matchers of a library together. Steps that run at the same time can exceed it
  // by their own bytes.
  int64_t all_matcher_bytes = int64_t{1} << 30;
};

struct LibraryGrammar {
  std::shared_ptr<const CompiledGrammar> grammar;
  size_t bytes = 0;  // About.
};

// No exception passes this class or what it makes. Thread-compatible: several threads may call
// FromBytes at once. Its grammars outlive it.
class GrammarLibrary {
 public:
  virtual ~GrammarLibrary() = default;
  // Errors: INVALID_ARGUMENT with the library's message. Needs a large stack for a grammar of many
  // rules.
  virtual absl::StatusOr<LibraryGrammar> Compile(const StructuredOutput& wanted) = 0;
  // The compiled grammar as bytes, for the FromBytes of a library in another process of the same
  // program, with the same vocabulary. Errors: as Compile.
  virtual absl::StatusOr<std::string> CompileToBytes(const StructuredOutput& wanted) = 0;
  // Errors: INVALID_ARGUMENT if they are no such bytes, or beyond the limits of a compilation.
  virtual absl::StatusOr<LibraryGrammar> FromBytes(absl::string_view bytes) const = 0;
};

// Null in a build without the library, and if the library does not take the vocabulary.
std::unique_ptr<GrammarLibrary> MakeGrammarLibrary(AnswerVocabulary vocabulary,
                                                   const GrammarLimits& limits = {});

}  // namespace pagoda

#endif  // PAGODA_ENGINE_STRUCTURED_GRAMMAR_LIBRARY_H_
