// Compiles grammars in a process of its own. The library of grammars was not written for hostile
// texts: one can overflow its stack, or make it loop. Then that process ends, and no other.
#ifndef PAGODA_ENGINE_STRUCTURED_GRAMMAR_PROCESS_H_
#define PAGODA_ENGINE_STRUCTURED_GRAMMAR_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file_descriptor.h"
#include "engine/structured/answer_vocabulary.h"
#include "engine/structured/grammar.h"

namespace pagoda {

// Thread-compatible.
//
// Invariants
// 1. At most one process runs. It compiles one grammar after the other, so that only the first one
//    waits for the start and for the vocabulary.
// 2. The process has no descriptors of this one, no core file, a bound on its address space and,
//    for each grammar, on its processor time. It ends when this object or this program does.
// 3. A grammar is to blame if the process ends, or does not answer, while it compiles it. The next
//    grammar gets a new process.
class GrammarProcess {
 public:
  struct Options {
    // A program that calls GrammarProcessMain first.
    std::string program = "/proc/self/exe";
    // For one grammar, and for the vocabulary. The process itself ends far earlier, by its
    // processor time.
    absl::Duration timeout = absl::Seconds(30);
  };

  // Whether this program can start itself: its main has called GrammarProcessMain.
  static bool IsAvailable();

  // `vocabulary` is called at each start of a process.
  explicit GrammarProcess(std::function<AnswerVocabulary()> vocabulary);
  GrammarProcess(std::function<AnswerVocabulary()> vocabulary, Options options);
  ~GrammarProcess();
  GrammarProcess(const GrammarProcess&) = delete;
  GrammarProcess& operator=(const GrammarProcess&) = delete;

  // Starts a process if none runs. It prepares the vocabulary while the caller goes on. Errors:
  // RESOURCE_EXHAUSTED if the system has no process for it.
  absl::Status Start();

  // The bytes for GrammarLibrary::FromBytes. Errors: those of GrammarLibrary::Compile; those of
  // Start; INVALID_ARGUMENT with the way in which the process ended, if the grammar ended it.
  absl::StatusOr<std::string> Compile(const StructuredOutput& wanted);

  // The running process; -1 if there is none.
  pid_t pid() const { return pid_; }

 private:
  // Ends the process, and says how it ended: "was killed by signal 11 (Segmentation fault)".
  std::string End();

  const std::function<AnswerVocabulary()> vocabulary_;
  const Options options_;
  pid_t pid_ = -1;
  FileDescriptor socket_;
};

// A program's main calls this before everything else. If the arguments ask for a process that
// compiles grammars, this is one, and the exit status is returned at its end. Otherwise returns
// nothing, and this program starts itself to compile grammars from now on.
std::optional<int> GrammarProcessMain(int argc, char** argv);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_STRUCTURED_GRAMMAR_PROCESS_H_
