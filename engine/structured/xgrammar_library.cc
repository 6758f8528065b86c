// With xgrammar_bytes.cc, the only file that includes XGrammar (Dong et al., "XGrammar: Flexible
// and Efficient Structured Generation Engine for Large Language Models", 2024). It throws; nothing
// passes this file.
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/structured/grammar_compiler.h"
#include "engine/structured/grammar_library.h"
#include "engine/structured/work_budget.h"
#include "engine/structured/xgrammar_bytes.h"
#include "support/logging.h"

namespace pagoda {
namespace {

// More white space between two tokens of JSON is not allowed, so that a model cannot go on with it
// until its tokens are used up.
constexpr int kMostWhitespace = 32;

// The library's first warning on this thread. It warns of what it ignores in a grammar.
thread_local std::string* first_warning = nullptr;

absl::Status ErrorOf(const std::exception& error) {
  const auto* fatal = dynamic_cast<const xgrammar::LogFatalError*>(&error);
  // Without the library's file and line.
  return InvalidArgument(absl::StrCat(
      "grammar: ", fatal != nullptr ? fatal->std::runtime_error::what() : error.what()));
}

// Runs `work` within the limits, and returns its exceptions as errors. `too_many_bytes`: of those
// errors that come from using up the limit of bytes.
absl::Status Run(const WorkBudget::Limits& limits, int64_t* bytes,
                 const std::function<void()>& work,
                 Reason too_many_bytes = Reason::kInvalidArgument) {
  std::exception_ptr failure;
  bool bytes_exceeded = false;
  {
    const WorkBudget budget(limits);
    try {
      work();
      // Streams, for one, catch what operator new throws.
      if (budget.exceeded()) failure = std::make_exception_ptr(BudgetExceeded());
    } catch (...) {
      failure = std::current_exception();
    }
    *bytes += budget.bytes();
    bytes_exceeded = budget.bytes_exceeded();
  }
  if (failure == nullptr) return absl::OkStatus();
  if (bytes_exceeded && too_many_bytes != Reason::kInvalidArgument) {
    return MakeError(too_many_bytes, "the grammars of other requests use the memory for grammars");
  }
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return ErrorOf(error);
  } catch (...) {
    return InvalidArgument("grammar: an unknown exception");
  }
}

// The bytes of all matchers of a library.
using MatcherBytes = std::shared_ptr<std::atomic<int64_t>>;

class Matcher final : public GrammarMatcher {
 public:
  // The grammar and the vocabulary outlive it.
  Matcher(const xgrammar::CompiledGrammar* grammar, const AnswerVocabulary* vocabulary,
          const GrammarLimits& limits, MatcherBytes all_bytes, absl::Span<const TokenId> end_tokens)
      : grammar_(*grammar),
        vocabulary_(*vocabulary),
        limits_(limits),
        all_bytes_(std::move(all_bytes)),
        end_tokens_(end_tokens) {
    const size_t vocab_size = vocabulary_.bytes.size();
    library_words_ = (vocab_size + 31) / 32;
    const size_t all = std::max<size_t>(vocab_size, end_tokens.empty() ? 0 : end_tokens.back() + 1);
    mask_.resize((all + 31) / 32);
  }
  ~Matcher() override { *all_bytes_ -= bytes_; }

  absl::StatusOr<const TokenMask*> Mask() override {
    if (status_.ok() && !is_filled_) status_ = Fill();
    if (!status_.ok()) return status_;
    return &mask_;
  }

  absl::Status Accept(TokenId token) override {
    if (!status_.ok()) return status_;
    is_filled_ = false;
    ++accepted_;
    if (IsEnd(token)) {
      has_ended_ = true;
      return absl::OkStatus();
    }
    bool taken = false;
    status_ = Do([&] {
      taken = matcher_->AcceptToken(static_cast<int32_t>(token));
      is_complete_ = matcher_->IsCompleted();
    });
    if (status_.ok() && !taken) {
      status_ = absl::InternalError(absl::StrCat("the grammar does not allow token ", token));
    }
    // Without end tokens, the answer ends where the grammar allows nothing more.
    if (status_.ok() && is_complete_ && end_tokens_.empty()) {
      status_ = FillText();
      has_ended_ = status_.ok() && IsEmpty();
    }
    return status_;
  }

  bool has_ended() const override { return has_ended_; }

 private:
  bool IsEnd(TokenId token) const {
    return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
  }
  bool IsEmpty() const {
    return std::all_of(mask_.begin(), mask_.end(), [](uint32_t word) { return word == 0; });
  }
  void Set(TokenId token, bool allowed) {
    const uint32_t bit = uint32_t{1} << (token % 32);
    uint32_t& word = mask_[token / 32];
    word = allowed ? word | bit : word & ~bit;
  }

  absl::Status Do(const std::function<void()>& work) {
    const int64_t before = bytes_;
    const int64_t own = limits_.matcher_bytes - before;
    const int64_t shared = limits_.all_matcher_bytes - all_bytes_->load();
    const absl::Status status = Run(
        {.processor_time = limits_.step_time, .bytes = std::min(own, shared)}, &bytes_,
        [&] {
          if (!matcher_.has_value()) matcher_.emplace(grammar_);
          work();
        },
        shared < own ? Reason::kQueueFull : Reason::kInvalidArgument);
    *all_bytes_ += bytes_ - before;
    return status;
  }

  // The tokens of text.
  absl::Status FillText() {
    std::fill(mask_.begin(), mask_.end(), 0u);
    absl::Status status = Do([&] {
      int64_t shape = static_cast<int64_t>(library_words_);
      DLTensor tensor{.data = mask_.data(),
                      .device = {kDLCPU, 0},
                      .ndim = 1,
                      .dtype = xgrammar::GetBitmaskDLType(),
                      .shape = &shape,
                      .strides = nullptr,
                      .byte_offset = 0};
      is_complete_ = matcher_->IsCompleted();
      // False: everything is allowed, and the mask may not be filled.
      if (!matcher_->FillNextTokenBitmask(&tensor)) {
        std::fill_n(mask_.begin(), library_words_, ~0u);
      }
    });
    if (!status.ok()) return status;
    const size_t vocab_size = vocabulary_.bytes.size();
    if (vocab_size % 32 != 0) mask_[library_words_ - 1] &= (1u << (vocab_size % 32)) - 1;
    if (accepted_ > 0) return absl::OkStatus();
    for (const TokenId token : vocabulary_.not_first) Set(token, false);
    return absl::OkStatus();
  }

  absl::Status Fill() {
    if (absl::Status status = FillText(); !status.ok()) return status;
    for (const TokenId token : end_tokens_) Set(token, is_complete_);
    is_filled_ = true;
    if (!IsEmpty()) return absl::OkStatus();
    return InvalidArgument("grammar: no token of the model can continue the text");
  }

  const xgrammar::CompiledGrammar& grammar_;
  const AnswerVocabulary& vocabulary_;
  const GrammarLimits limits_;
  const MatcherBytes all_bytes_;
  const absl::Span<const TokenId> end_tokens_;
  std::optional<xgrammar::GrammarMatcher> matcher_;
  size_t library_words_ = 0;
  TokenMask mask_;
  bool is_filled_ = false;
  bool is_complete_ = false;
  bool has_ended_ = false;
  uint64_t accepted_ = 0;
  int64_t bytes_ = 0;  // The bytes of the library's matcher.
  absl::Status status_;
};

class Grammar final : public CompiledGrammar {
 public:
  // The library and its grammars own the vocabulary together.
  Grammar(xgrammar::CompiledGrammar grammar, std::shared_ptr<const AnswerVocabulary> vocabulary,
          const GrammarLimits& limits, MatcherBytes matcher_bytes)
      : grammar_(std::move(grammar)),
        vocabulary_(std::move(vocabulary)),
        limits_(limits),
        matcher_bytes_(std::move(matcher_bytes)) {}

  std::unique_ptr<GrammarMatcher> NewMatcher(absl::Span<const TokenId> end_tokens) const override {
    return std::make_unique<Matcher>(&grammar_, vocabulary_.get(), limits_, matcher_bytes_,
                                     end_tokens);
  }

 private:
  const xgrammar::CompiledGrammar grammar_;
  const std::shared_ptr<const AnswerVocabulary> vocabulary_;
  const GrammarLimits limits_;
  const MatcherBytes matcher_bytes_;
};

class Library final : public GrammarLibrary {
 public:
  Library(AnswerVocabulary vocabulary, const GrammarLimits& limits)
      : vocabulary_(std::make_shared<const AnswerVocabulary>(std::move(vocabulary))),
        limits_(limits),
        // Without stop tokens: each request has its own.
        tokenizer_(vocabulary_->bytes, xgrammar::VocabType::RAW, std::nullopt,
                   std::vector<int32_t>{}),
        compiler_(tokenizer_, /*max_threads=*/1, /*cache_enabled=*/false) {}

  absl::StatusOr<LibraryGrammar> Compile(const StructuredOutput& wanted) override {
    return Make([&] { return CompileByKind(wanted); });
  }

  absl::StatusOr<std::string> CompileToBytes(const StructuredOutput& wanted) override {
    std::string bytes;
    int64_t unused = 0;
    const absl::Status status =
        RunCompilation(&unused, [&] { bytes = BytesOf(CompileByKind(wanted)); });
    if (!status.ok()) return status;
    return bytes;
  }

  absl::StatusOr<LibraryGrammar> FromBytes(absl::string_view bytes) const override {
    return Make([&] { return GrammarOf(bytes, tokenizer_); });
  }

 private:
  // A warning of the library is an error: it says what the library ignores.
  absl::Status RunCompilation(int64_t* bytes, const std::function<void()>& work) const {
    std::string warning;
    first_warning = &warning;
    const absl::Status status = Run(limits_.compilation, bytes, work);
    first_warning = nullptr;
    if (!status.ok() || warning.empty()) return status;
    return InvalidArgument(absl::StrCat("grammar: ", warning));
  }

  absl::StatusOr<LibraryGrammar> Make(
      const std::function<xgrammar::CompiledGrammar()>& make) const {
    std::optional<xgrammar::CompiledGrammar> made;
    int64_t bytes = 0;
    if (absl::Status status = RunCompilation(&bytes, [&] { made = make(); }); !status.ok()) {
      return status;
    }
    return LibraryGrammar{.grammar = std::make_shared<Grammar>(*std::move(made), vocabulary_,
                                                               limits_, matcher_bytes_),
                          .bytes = static_cast<size_t>(std::max<int64_t>(bytes, 0))};
  }

  xgrammar::CompiledGrammar CompileByKind(const StructuredOutput& wanted) {
    const auto schema = [this](const std::string& text, bool strict) {
      return compiler_.CompileJSONSchema(text, /*any_whitespace=*/true, std::nullopt, std::nullopt,
                                         strict, kMostWhitespace);
    };
    switch (wanted.kind) {
      case StructuredOutput::Kind::kJsonSchema:
        return schema(wanted.text, /*strict=*/true);
      case StructuredOutput::Kind::kJsonObject:
        return schema(R"({"type": "object"})", /*strict=*/false);
      case StructuredOutput::Kind::kRegex:
        return compiler_.CompileRegex(wanted.text);
      case StructuredOutput::Kind::kGrammar:
        break;
    }
    return compiler_.CompileGrammar(wanted.text);
  }

  const std::shared_ptr<const AnswerVocabulary> vocabulary_;
  const GrammarLimits limits_;
  const MatcherBytes matcher_bytes_ = std::make_shared<std::atomic<int64_t>>(0);
  const xgrammar::TokenizerInfo tokenizer_;
  xgrammar::GrammarCompiler compiler_;
};

}  // namespace

bool HasStructuredOutput() { return true; }

std::unique_ptr<GrammarLibrary> MakeGrammarLibrary(AnswerVocabulary vocabulary,
                                                   const GrammarLimits& limits) {
  try {
    return std::make_unique<Library>(std::move(vocabulary), limits);
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace pagoda

// The library is compiled such that it calls these.
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int lineno, const std::string& message) {
  throw LogFatalError(file, lineno, message);
}

void LogMessageImpl(const std::string& /*file*/, int /*lineno*/, int level,
                    const std::string& message) {
  std::string* const warning = pagoda::first_warning;
  if (level == XGRAMMAR_LOG_LEVEL_WARNING && warning != nullptr && warning->empty()) {
    *warning = message;
  }
}

}  // namespace xgrammar
