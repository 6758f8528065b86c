#include "engine/request_run.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "engine/model_input.h"
#include "pools/check.h"

namespace pagoda {
namespace {

// The lowest of the tokens with the largest logit.
TokenId Greedy(absl::Span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

absl::Status CheckCancelled(const GenerateRequest& request) {
  if (!request.cancelled || !request.cancelled()) return absl::OkStatus();
  return absl::CancelledError("the caller cancelled the request before its first token");
}

}  // namespace

RequestRun::RequestRun(const Options& options)
    : options_(options), tokens_per_block_(options.client.info().tokens_per_block) {}

absl::StatusOr<FinishReason> RequestRun::Generate(const TokenCallback& on_token) {
  const GenerateRequest& request = options_.request;
  if (absl::Status status = CheckCancelled(request); !status.ok()) return status;
  if (absl::Status status = Open(); !status.ok()) return status;
  const absl::Cleanup close = [this] { Close(); };

  absl::StatusOr<absl::Span<const float>> logits = Prefill();
  while (logits.ok()) {
    const TokenId token = Greedy(*logits);
    ++generated_tokens_;
    ++options_.counters.generated_tokens;
    if (!on_token(token, *logits)) return absl::CancelledError("the caller stopped the generation");
    const auto& stops = request.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
      return FinishReason::kStopToken;
    }
    if (generated_tokens_ == request.max_new_tokens) return FinishReason::kLength;
    logits = Decode(token);
  }
  return logits.status();
}

absl::Status RequestRun::Open() {
  const GenerateRequest& request = options_.request;
  absl::StatusOr<AddedSequence> added =
      RunOne<AddedSequence>(options_.client, AddSequence{.sequence = options_.sequence,
                                                         .name_space = request.name_space,
                                                         .tokens = request.prompt});
  if (!added.ok()) return added.status();
  PAGODA_CHECK(added->matched_tokens < request.prompt.size(),
               "the prompt's last token is computed");
  Extend(added->tables);
  computed_tokens_ = reused_tokens_ = added->matched_tokens;
  options_.counters.prompt_tokens += request.prompt.size();
  options_.counters.reused_tokens += reused_tokens_;
  return absl::OkStatus();
}

// Failing means that the session is gone, and the sequence with it.
void RequestRun::Close() {
  const Operation operations[] = {
      CommitTokens{.sequence = options_.sequence, .computed_tokens = computed_tokens_},
      FreeSequence{.sequence = options_.sequence}};
  options_.client.Execute(operations).IgnoreError();
}

absl::StatusOr<absl::Span<const float>> RequestRun::Prefill() {
  absl::Span<const TokenId> rest(options_.request.prompt);
  rest.remove_prefix(computed_tokens_);
  while (rest.size() > options_.prefill_chunk_tokens) {
    const auto chunk = rest.first(options_.prefill_chunk_tokens);
    if (auto computed = Compute(chunk, Logits::kNone); !computed.ok()) return computed.status();
    rest.remove_prefix(chunk.size());
    absl::StatusOr<CommittedTokens> committed = RunOne<CommittedTokens>(
        options_.client,
        CommitTokens{.sequence = options_.sequence, .computed_tokens = computed_tokens_});
    if (!committed.ok()) return committed.status();
    absl::Status cancelled = CheckCancelled(options_.request);
    if (!cancelled.ok()) return cancelled;
  }
  return Compute(rest, Logits::kOfLastToken);
}

absl::StatusOr<absl::Span<const float>> RequestRun::Decode(TokenId token) {
  absl::StatusOr<AppendedTokens> appended =
      RunOne<AppendedTokens>(options_.client, AppendTokens{.sequence = options_.sequence,
                                                           .tokens = {token},
                                                           .computed_tokens = computed_tokens_});
  if (!appended.ok()) return appended.status();
  Extend(appended->added);
  return Compute({&token, 1}, Logits::kOfLastToken);
}

absl::StatusOr<absl::Span<const float>> RequestRun::Compute(absl::Span<const TokenId> tokens,
                                                            Logits wanted) {
  ModelInput input = InputOfSequence(tokens, computed_tokens_, block_table_, tokens_per_block_);
  if (wanted == Logits::kOfLastToken) {
    input.logit_rows = {static_cast<uint32_t>(tokens.size() - 1)};
  }
  absl::StatusOr<absl::Span<const float>> logits = options_.model.Forward(input, options_.kv);
  if (!logits.ok()) return logits;
  computed_tokens_ += static_cast<uint32_t>(tokens.size());
  options_.counters.computed_tokens += tokens.size();
  return logits;
}

void RequestRun::Extend(absl::Span<const BlockTable> tables) {
  for (const BlockTable& table : tables) {
    if (table.window != kFullAttention) continue;
    for (const BlockHandle& block : table.blocks) block_table_.push_back(block.slot);
  }
}

}  // namespace pagoda
