#include "engine/structured/grammar_compiler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/structured/check_grammar_text.h"
#include "engine/structured/large_stack.h"

namespace pagoda {
namespace {

bool Equal(const StructuredOutput& a, const StructuredOutput& b) {
  return a.kind == b.kind && a.text == b.text;
}

}  // namespace

GrammarCompiler::GrammarCompiler(std::function<AnswerVocabulary()> vocabulary)
    : vocabulary_(std::move(vocabulary)) {}

absl::StatusOr<std::shared_ptr<const CompiledGrammar>> GrammarCompiler::Compile(
    const StructuredOutput& wanted) {
  if (!HasStructuredOutput()) {
    return MakeError(Reason::kFieldNotServed,
                     "this build has no structured output: it was built without the sources of "
                     "XGrammar (deploy/xgrammar.sh)");
  }
  if (wanted.text.size() > kMaxTextBytes) {
    return InvalidArgument(absl::StrCat("the grammar has ", wanted.text.size(),
                                        " bytes; it may have ", kMaxTextBytes));
  }
  if (auto known = FindCached(wanted)) return *std::move(known);
  if (absl::Status status = CheckGrammarText(wanted, {.depth = kMaxDepth, .rules = kMaxRules});
      !status.ok()) {
    return status;
  }
  std::unique_ptr<GrammarProcess> process = TakeProcess();
  Compiled compiled = CompileNew(wanted, *process);
  GiveBack(std::move(process));
  return compiled;
}

GrammarCompiler::Compiled GrammarCompiler::CompileNew(const StructuredOutput& wanted,
                                                      GrammarProcess& process) {
  // Another thread can have compiled it meanwhile.
  if (auto known = FindCached(wanted)) return *std::move(known);
  absl::StatusOr<LibraryGrammar> compiled = Run(wanted, process);
  if (!compiled.ok()) {
    // Otherwise a client could make the daemon compile it again and again.
    if (absl::IsInvalidArgument(compiled.status())) {
      Keep({wanted, compiled.status(), wanted.text.size()});
    }
    return compiled.status();
  }
  compiled = Count(*std::move(compiled));
  if (!compiled.ok()) return compiled.status();
  Keep({wanted, compiled->grammar, compiled->bytes});
  return compiled->grammar;
}

absl::StatusOr<LibraryGrammar> GrammarCompiler::Run(const StructuredOutput& wanted,
                                                    GrammarProcess& process) {
  const bool in_process = GrammarProcess::IsAvailable();
  if (in_process) {
    // It prepares the vocabulary while this thread does.
    if (absl::Status started = process.Start(); !started.ok()) return started;
  }
  GrammarLibrary* const library = Library();
  if (library == nullptr) {
    return absl::InternalError("XGrammar does not take this model's vocabulary");
  }
  if (in_process) {
    const absl::StatusOr<std::string> bytes = process.Compile(wanted);
    if (!bytes.ok()) return bytes.status();
    return library->FromBytes(*bytes);
  }
  absl::StatusOr<LibraryGrammar> compiled = absl::UnknownError("not compiled");
  const absl::Status ran = RunWithLargeStack([&] { compiled = library->Compile(wanted); });
  if (!ran.ok()) return ran;
  return compiled;
}

std::unique_ptr<GrammarProcess> GrammarCompiler::TakeProcess() {
  // Without processes, one thread at a time uses the library.
  const size_t most = GrammarProcess::IsAvailable() ? kMaxProcesses : 1;
  const auto can_take = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !idle_.empty() || num_processes_ < most;
  };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&can_take));
  if (idle_.empty()) {
    ++num_processes_;
    return std::make_unique<GrammarProcess>(vocabulary_);
  }
  std::unique_ptr<GrammarProcess> process = std::move(idle_.back());
  idle_.pop_back();
  return process;
}

void GrammarCompiler::GiveBack(std::unique_ptr<GrammarProcess> process) {
  const bool ended = process->pid() < 0;
  // No other grammar waits for the start of a process that this one ended. An error is the next
  // grammar's.
  if (ended && GrammarProcess::IsAvailable()) process->Start().IgnoreError();
  absl::MutexLock lock(&mutex_);
  // Those that are ready are taken first.
  idle_.insert(ended ? idle_.begin() : idle_.end(), std::move(process));
}

GrammarLibrary* GrammarCompiler::Library() {
  absl::MutexLock lock(&making_);
  if (library_ == nullptr) library_ = MakeGrammarLibrary(vocabulary_());
  return library_.get();
}

absl::StatusOr<LibraryGrammar> GrammarCompiler::Count(LibraryGrammar grammar) {
  const size_t bytes = grammar.bytes;
  if (*held_bytes_ + bytes > kMaxHeldBytes) {
    return MakeError(Reason::kQueueFull,
                     absl::StrCat("the grammars of other requests hold ", held_bytes_->load(),
                                  " bytes, of ", kMaxHeldBytes, "; this one needs ", bytes));
  }
  *held_bytes_ += bytes;
  const CompiledGrammar* const inner = grammar.grammar.get();
  grammar.grammar = std::shared_ptr<const CompiledGrammar>(
      inner, [held = held_bytes_, bytes, owner = grammar.grammar](const CompiledGrammar*) mutable {
        owner.reset();
        *held -= bytes;
      });
  return grammar;
}

std::optional<GrammarCompiler::Compiled> GrammarCompiler::FindCached(
    const StructuredOutput& wanted) {
  absl::MutexLock lock(&mutex_);
  const auto found = std::find_if(cache_.begin(), cache_.end(),
                                  [&](const Entry& entry) { return Equal(entry.key, wanted); });
  if (found == cache_.end()) return std::nullopt;
  cache_.splice(cache_.begin(), cache_, found);
  return found->compiled;
}

void GrammarCompiler::Keep(Entry entry) {
  absl::MutexLock lock(&mutex_);
  // Two threads can have compiled it at once.
  const bool is_kept = std::any_of(cache_.begin(), cache_.end(),
                                   [&](const Entry& other) { return Equal(other.key, entry.key); });
  if (is_kept) return;
  cached_bytes_ += entry.bytes;
  cache_.push_front(std::move(entry));
  while (cache_.size() > kMaxCached || cached_bytes_ > kMaxCachedBytes) {
    cached_bytes_ -= cache_.back().bytes;
    cache_.pop_back();
  }
}

}  // namespace pagoda
