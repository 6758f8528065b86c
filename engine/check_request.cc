#include "engine/check_request.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/engine.h"

namespace pagoda {
namespace {

template <class... Parts>
absl::Status InvalidPrompt(const Parts&... parts) {
  return MakeError(Reason::kInvalidPrompt, absl::StrCat(parts...));
}

absl::Status CheckCounts(const GenerateRequest& request) {
  if (request.max_new_tokens == 0) {
    return MakeError(Reason::kInvalidCount, "max_new_tokens is 0");
  }
  if (request.max_draft_tokens > Engine::kMaxDraftTokens) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat("max_draft_tokens is ", request.max_draft_tokens,
                                  "; it must be at most ", Engine::kMaxDraftTokens));
  }
  if (request.num_samples >= 1 && request.num_samples <= Engine::kMaxSamples) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kInvalidCount,
                   absl::StrCat("num_samples is ", request.num_samples, "; it must be from 1 to ",
                                Engine::kMaxSamples));
}

absl::Status CheckPrompt(const GenerateRequest& request, const ModelConfig& model) {
  if (request.prompt.empty()) return InvalidPrompt("the prompt has no tokens");
  const uint64_t total_tokens = request.prompt.size() + uint64_t{request.max_new_tokens};
  if (total_tokens > model.max_position_embeddings) {
    return InvalidPrompt("the prompt's ", request.prompt.size(), " tokens and ",
                         request.max_new_tokens, " new ones are more than the model's ",
                         model.max_position_embeddings);
  }
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] < model.vocab_size) continue;
    return InvalidPrompt("prompt token ", i, " is ", request.prompt[i], ", the vocabulary has ",
                         model.vocab_size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRequest(const GenerateRequest& request, const ModelConfig& model,
                          const CacheInfo& cache) {
  if (request.name_space.lora_id.has_value()) {
    // Otherwise the base model's answer would be taken for the adapter's.
    return MakeError(Reason::kFieldNotServed,
                     absl::StrCat("namespace.lora_id is ", *request.name_space.lora_id,
                                  ": the engine runs no adapters, only the base model"));
  }
  if (request.name_space.keyed) {
    return MakeError(Reason::kKeysAndTokens,
                     "namespace.keyed is set: the engine's prompts are tokens, not keys");
  }
  if (absl::Status status = CheckCounts(request); !status.ok()) return status;
  if (absl::Status status = CheckPrompt(request, model); !status.ok()) return status;
  if (absl::Status status = CheckSampling(request.sampling); !status.ok()) return status;
  return Scheduler::CheckCapacity(cache, request);
}

}  // namespace pagoda
