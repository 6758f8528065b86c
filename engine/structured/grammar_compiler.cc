#include "engine/structured/grammar_compiler.h"

#include <algorithm>
#include <iterator>

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
  absl::MutexLock lock(&compiling_);
  // Another thread can have compiled it meanwhile.
  if (auto known = FindCached(wanted)) return *std::move(known);
  absl::StatusOr<LibraryGrammar> compiled = CompileNew(wanted);
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

absl::StatusOr<LibraryGrammar> GrammarCompiler::CompileNew(const StructuredOutput& wanted) {
  if (process_ == nullptr && GrammarProcess::IsAvailable()) {
    process_ = std::make_unique<GrammarProcess>(vocabulary_);
    // It prepares the vocabulary while this thread does.
    if (absl::Status started = process_->Start(); !started.ok()) return started;
  }
  if (library_ == nullptr) library_ = MakeGrammarLibrary(vocabulary_());
  if (library_ == nullptr) {
    return absl::InternalError("XGrammar does not take this model's vocabulary");
  }
  if (process_ != nullptr) {
    const absl::StatusOr<std::string> bytes = process_->Compile(wanted);
    if (!bytes.ok()) return bytes.status();
    return library_->FromBytes(*bytes);
  }
  absl::StatusOr<LibraryGrammar> compiled = absl::UnknownError("not compiled");
  const absl::Status ran = RunWithLargeStack(
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(compiling_) { compiled = library_->Compile(wanted); });
  if (!ran.ok()) return ran;
  return compiled;
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
  cached_bytes_ += entry.bytes;
  cache_.push_front(std::move(entry));
  while (cache_.size() > kMaxCached || cached_bytes_ > kMaxCachedBytes) {
    cached_bytes_ -= cache_.back().bytes;
    cache_.pop_back();
  }
}

}  // namespace pagoda
