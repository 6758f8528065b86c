#include "engine/check_request.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
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
  if (request.stop_tokens.size() > kMaxStopTokens) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat("the request has ", request.stop_tokens.size(),
                                  " stop tokens; it may have ", kMaxStopTokens));
  }
  if (request.num_samples >= 1 && request.num_samples <= Engine::kMaxSamples) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kInvalidCount,
                   absl::StrCat("num_samples is ", request.num_samples, "; it must be from 1 to ",
                                Engine::kMaxSamples));
}

// The options that only a beam search has, and those that it does not have.
absl::Status CheckBeams(const GenerateRequest& request, const ModelConfig& model) {
  const auto invalid = [](const auto&... parts) {
    return MakeError(Reason::kInvalidSampling, absl::StrCat(parts...));
  };
  if (!request.is_beam_search()) {
    if (request.length_penalty != 1) return invalid("length_penalty needs beam_width");
    if (request.early_stopping) return invalid("early_stopping needs beam_width");
    return absl::OkStatus();
  }
  const uint32_t most = std::min(kMaxBeamWidth, model.vocab_size);
  if (request.beam_width > most) {
    return invalid("beam_width is ", request.beam_width, "; it must be at most ", most);
  }
  if (!(std::abs(request.length_penalty) <= kMaxLengthPenalty)) {
    return invalid("length_penalty is ", request.length_penalty, "; it must be from ",
                   -kMaxLengthPenalty, " to ", kMaxLengthPenalty);
  }
  if (request.num_samples > request.beam_width) {
    return invalid("num_samples is ", request.num_samples, "; it must be at most beam_width, ",
                   request.beam_width);
  }
  const SamplingParams& sampling = request.sampling;
  const std::pair<const char*, bool> others[] = {
      {"temperature", sampling.temperature != 0},
      {"top_k", sampling.top_k != 0},
      {"top_p", sampling.top_p != 1},
      {"repetition_penalty", sampling.repetition_penalty != 1},
      {"top_logprobs", sampling.top_logprobs.has_value()},
      {"max_draft_tokens", request.max_draft_tokens != 0},
      {"ends_sample", request.ends_sample != nullptr},
      {"structured output", request.grammar != nullptr}};
  for (const auto& [name, is_set] : others) {
    if (is_set) return invalid(name, " is set together with beam_width: a beam search has none");
  }
  return absl::OkStatus();
}

absl::Status CheckPrompt(const GenerateRequest& request, const ModelConfig& model) {
  if (request.prompt.empty()) return InvalidPrompt("the prompt has no tokens");
  const uint64_t total_tokens = request.prompt.size() + uint64_t{request.max_new_tokens};
  if (total_tokens > model.max_position_embeddings) {
    return InvalidPrompt("the prompt's ", Counted(request.prompt.size(), "token"), " and ",
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
                          const NamedAdapters& adapters, const CacheInfo& cache,
                          uint32_t max_running_sequences) {
  if (request.name_space.lora_id.has_value()) {
    // Otherwise another adapter's KV, or the model's, would be taken for that adapter's.
    return MakeError(Reason::kFieldNotServed,
                     absl::StrCat("namespace.lora_id is ", *request.name_space.lora_id,
                                  ": an adapter is chosen by its name, in `adapter`"));
  }
  if (absl::Status status = adapters.Find(request.adapter).status(); !status.ok()) return status;
  if (request.name_space.keyed) {
    return MakeError(Reason::kKeysAndTokens,
                     "namespace.keyed is set: the engine's prompts are tokens, not keys");
  }
  if (absl::Status status = CheckCounts(request); !status.ok()) return status;
  if (absl::Status status = CheckPrompt(request, model); !status.ok()) return status;
  if (absl::Status status = CheckSampling(request.sampling); !status.ok()) return status;
  if (absl::Status status = CheckBeams(request, model); !status.ok()) return status;
  if (request.beam_width > max_running_sequences) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat("beam_width is ", request.beam_width, "; the engine runs ",
                                  Counted(max_running_sequences, "sequence"), " at once"));
  }
  return Scheduler::CheckCapacity(cache, request);
}

}  // namespace pagoda
