// A request's answers on their way from the engine to who asked.
#ifndef PAGODA_SERVER_OPENAI_GENERATION_H_
#define PAGODA_SERVER_OPENAI_GENERATION_H_

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "server/openai/choice_text.h"

namespace pagoda::server {

// Hands the engine one request for each prompt, and what they say to the thread that answers.
// Thread-safe. It is shared by that thread and by the engine's, until the last of its requests has
// ended: whoever is last destroys it.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // `tokenizer` outlives the engine; null: there is no text.
  Generation(const Tokenizer* tokenizer, bool logprobs, std::vector<std::string> stop)
      : tokenizer_(tokenizer), logprobs_(logprobs), stop_(std::move(stop)) {}

  // Submits one more; its samples are the next choices. Errors: those of Engine::Submit.
  absl::Status Submit(Engine& engine, GenerateRequest request);

  struct Round {
    std::vector<ChoicePiece> pieces;
    bool ended = false;  // Of all requests; nothing follows.
    absl::Status status;
  };
  // What has come since the last call; waits for something for at most `time`.
  Round Take(absl::Duration time) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nobody wants any more of it.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  // Whether the engine has generated anything of it.
  bool has_begun() const { return begun_.load(std::memory_order_relaxed); }
  // Of the requests, in their order. REQUIRES: it has ended well.
  std::vector<GenerateReport> Reports() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Add(ChoicePiece piece) ABSL_LOCKS_EXCLUDED(mutex_);
  void End(size_t index, absl::StatusOr<GenerateReport> report) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !pieces_.empty() || open_requests_ == 0;
  }

  const Tokenizer* const tokenizer_;
  const bool logprobs_;
  const std::vector<std::string> stop_;
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> begun_ = false;
  uint32_t choices_ = 0;  // Of the thread that submits.
  mutable absl::Mutex mutex_;
  std::vector<ChoicePiece> pieces_ ABSL_GUARDED_BY(mutex_);
  std::vector<GenerateReport> reports_ ABSL_GUARDED_BY(mutex_);
  size_t open_requests_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_OPENAI_GENERATION_H_
