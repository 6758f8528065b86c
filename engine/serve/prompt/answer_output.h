// Passes a request's answers from the engine to the thread that answers the client.
#ifndef PAGODA_ENGINE_SERVE_PROMPT_ANSWER_OUTPUT_H_
#define PAGODA_ENGINE_SERVE_PROMPT_ANSWER_OUTPUT_H_

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/generator.h"
#include "engine/serve/prompt/choice_text.h"

namespace pagoda {

// Submits one engine request per prompt, and passes their output to the answering thread.
// Thread-safe. The answering thread and the engine's thread share it until its last request has
// ended; the last owner destroys it.
class AnswerOutput : public std::enable_shared_from_this<AnswerOutput> {
 public:
  // `tokenizer` must outlive the engine. Without one (null) there is no text.
  AnswerOutput(const Tokenizer* tokenizer, bool logprobs, std::vector<std::string> stop)
      : tokenizer_(tokenizer), logprobs_(logprobs), stop_(std::move(stop)) {}

  // Submits one more request. Its samples are the next choices. Errors: those of Engine::Submit.
  absl::Status Submit(Generator& engine, GenerateRequest request);

  struct Round {
    std::vector<ChoicePiece> pieces;
    bool ended = false;  // All requests have ended; nothing follows.
    absl::Status status;
  };
  // The output since the last call. If there is none, waits for some for at most `time`.
  Round Take(absl::Duration time) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells the engine to stop: the output is no longer wanted.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  // Ends the answers with their next token, so that they have a report. Before the first token it
  // cancels.
  void Stop() { stopping_.store(true, std::memory_order_relaxed); }
  bool is_stopping() const { return stopping_.load(std::memory_order_relaxed); }
  // Whether the engine has generated any token of it.
  bool has_begun() const { return begun_.load(std::memory_order_relaxed); }
  // The requests' reports, in order. REQUIRES: all requests have ended without an error.
  std::vector<GenerateReport> Reports() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Add(ChoicePiece piece) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(size_t index, absl::StatusOr<GenerateReport> report) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !pieces_.empty() || open_requests_ == 0;
  }
  bool IsUnwanted() const {
    return cancelled_.load(std::memory_order_relaxed) || (is_stopping() && !has_begun());
  }

  const Tokenizer* const tokenizer_;
  const bool logprobs_;
  const std::vector<std::string> stop_;
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> begun_ = false;
  uint32_t choices_ = 0;  // Used by the submitting thread.
  mutable absl::Mutex mutex_;
  std::vector<ChoicePiece> pieces_ ABSL_GUARDED_BY(mutex_);
  std::vector<GenerateReport> reports_ ABSL_GUARDED_BY(mutex_);
  size_t open_requests_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_PROMPT_ANSWER_OUTPUT_H_
