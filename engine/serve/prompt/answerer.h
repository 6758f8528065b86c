#ifndef PAGODA_ENGINE_SERVE_PROMPT_ANSWERER_H_
#define PAGODA_ENGINE_SERVE_PROMPT_ANSWERER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "engine/generator.h"
#include "engine/serve/prompt/answer_output.h"
#include "engine/serve/prompt/model_prompt.h"
#include "engine/text/model_text.h"

namespace pagoda {

struct PromptAnswer {
  std::vector<TokenId> tokens;
  std::string text;         // Without end tokens; empty without a tokenizer.
  GenerateReport report;    // Empty if the answer was stopped before its first token.
  bool is_stopped = false;  // By Stop.
};

// What a caller sees of an answer while it is generated. All functions are called on the caller's
// thread, and may be empty.
struct AnswerWatch {
  // Gets each token, and the text that it completes.
  std::function<void(TokenId token, const std::string& text)> on_token = nullptr;
  // Called some times a second until the first token.
  std::function<void(uint64_t done_tokens)> on_prompt = nullptr;
};

// Answers one prompt at a time, for the person or the script at this program's standard streams.
// Thread-compatible; Stop is thread-safe.
class Answerer {
 public:
  // `context` is the most tokens of a prompt with its answer. The pointers outlive this object.
  Answerer(Generator* engine, const ModelText* text, uint32_t context)
      : engine_(*engine), text_(*text), context_(context) {}

  // Errors: those of EncodeText and EncodeConversation.
  absl::StatusOr<ModelPrompt> ReadText(const std::string& words) const;
  absl::StatusOr<ModelPrompt> ReadConversation(absl::Span<const ChatMessage> messages) const;

  // Answers a request for one sample, and returns when the answer is complete or stopped. It is
  // shorter than request.max_new_tokens if the context ends before. Errors: those of
  // Generator::Submit and of the report; INVALID_PROMPT if the prompt fills the context.
  absl::StatusOr<PromptAnswer> Answer(GenerateRequest request, const AnswerWatch& watch = {})
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the running answer with its next token. Returns false if there is none.
  bool Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void SetRunning(std::shared_ptr<AnswerOutput> generation) ABSL_LOCKS_EXCLUDED(mutex_);

  Generator& engine_;
  const ModelText& text_;
  const uint32_t context_;
  absl::Mutex mutex_;
  std::shared_ptr<AnswerOutput> running_ ABSL_GUARDED_BY(mutex_);  // Null: no answer runs.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_PROMPT_ANSWERER_H_
