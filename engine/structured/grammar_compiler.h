#ifndef PAGODA_ENGINE_STRUCTURED_GRAMMAR_COMPILER_H_
#define PAGODA_ENGINE_STRUCTURED_GRAMMAR_COMPILER_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/structured/answer_vocabulary.h"
#include "engine/structured/grammar.h"
#include "engine/structured/grammar_library.h"
#include "engine/structured/grammar_process.h"

namespace pagoda {

// Whether this build has the library of grammars. Without it Compile refuses every request with
// FIELD_NOT_SERVED.
bool HasStructuredOutput();

// Compiles grammars of untrusted callers for one model, and keeps the last ones. Thread-safe.
//
// Invariants
// 1. The cache holds at most kMaxCached grammars of kMaxCachedBytes together. It also holds the
//    grammars that the library refused, by their texts.
// 2. A compilation runs in a process of its own (GrammarProcess), with a large stack. A program
//    whose main does not take part compiles on a thread. Either is refused when it has taken 3 s of
//    processor time or 256 MiB of memory (see WorkBudget).
// 3. Up to kMaxProcesses threads compile at the same time. Each has a process, which starts when no
//    other is idle, so a long compilation holds up no short one. A program whose main does not take
//    part compiles one at a time. A cached grammar waits for nothing.
// 4. All its grammars, those that requests hold included, have at most kMaxHeldBytes together.
class GrammarCompiler {
 public:
  // `vocabulary` is called for the first grammar, and at each start of a process.
  explicit GrammarCompiler(std::function<AnswerVocabulary()> vocabulary);

  // Errors: INVALID_ARGUMENT (too long, nested too deeply, not valid, a keyword of a schema that
  // is not supported, a rule that only repeats itself, too large to compile, or the end of the
  // process that compiled it; the message has the library's words),
  // FIELD_NOT_SERVED (HasStructuredOutput() is false), QUEUE_FULL (invariant 4). Cost: microseconds
  // if it is cached; otherwise milliseconds to seconds.
  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(const StructuredOutput& wanted);
  // Whether Compile takes microseconds, because the cache has the grammar or its refusal.
  bool Knows(const StructuredOutput& wanted) { return FindCached(wanted).has_value(); }

  static constexpr size_t kMaxTextBytes = 64 << 10;
  static constexpr size_t kMaxDepth = 128;  // The most nested brackets.
  static constexpr size_t kMaxRules = 4096;
  static constexpr size_t kMaxCached = 64;
  static constexpr size_t kMaxCachedBytes = 256 << 20;
  static constexpr size_t kMaxHeldBytes = size_t{1} << 30;
  static constexpr size_t kMaxProcesses = 4;

 private:
  using Compiled = absl::StatusOr<std::shared_ptr<const CompiledGrammar>>;
  // The requests and the cache own a grammar together.
  struct Entry {
    StructuredOutput key;
    Compiled compiled;  // Or why the library refused it.
    size_t bytes = 0;
  };

  std::optional<Compiled> FindCached(const StructuredOutput& wanted) ABSL_LOCKS_EXCLUDED(mutex_);
  Compiled CompileNew(const StructuredOutput& wanted, GrammarProcess& process);
  absl::StatusOr<LibraryGrammar> Run(const StructuredOutput& wanted, GrammarProcess& process);
  // An idle process, or a new one, which is not started. Waits while all are taken.
  std::unique_ptr<GrammarProcess> TakeProcess() ABSL_LOCKS_EXCLUDED(mutex_);
  void GiveBack(std::unique_ptr<GrammarProcess> process) ABSL_LOCKS_EXCLUDED(mutex_);
  // Null if it does not take the vocabulary. The first call makes it.
  GrammarLibrary* Library() ABSL_LOCKS_EXCLUDED(making_);
  // Counts the grammar until its last owner releases it.
  absl::StatusOr<LibraryGrammar> Count(LibraryGrammar grammar);
  void Keep(Entry entry) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::function<AnswerVocabulary()> vocabulary_;
  // The grammars share it, and can outlive this.
  const std::shared_ptr<std::atomic<size_t>> held_bytes_ = std::make_shared<std::atomic<size_t>>();
  absl::Mutex making_;  // No other lock is taken under it.
  std::unique_ptr<GrammarLibrary> library_ ABSL_GUARDED_BY(making_);
  absl::Mutex mutex_;  // No other lock is taken under it.
  size_t num_processes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<GrammarProcess>> idle_ ABSL_GUARDED_BY(mutex_);
  std::list<Entry> cache_ ABSL_GUARDED_BY(mutex_);  // The last used one first.
  size_t cached_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_STRUCTURED_GRAMMAR_COMPILER_H_
