#include "engine/request_run.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "pools/check.h"
#include "pools/error.h"

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
  open_ = true;
  absl::StatusOr<AddedSequence> added = Run<AddedSequence>(AddSequence{
      .sequence = options_.sequence, .name_space = request.name_space, .tokens = request.prompt});
  if (!added.ok()) {
    // Where it is the answer that was lost, the sequence is there.
    open_ = ReasonOf(added.status()) == Reason::kNone;
    if (open_) Close();
    return added.status();
  }
  PAGODA_CHECK(added->matched_tokens < request.prompt.size(),
               "the prompt's last token is computed");
  computed_tokens_ = added->matched_tokens;
  if (absl::Status status = Take(added->tables, added->ready); !status.ok()) {
    Close();
    return status;
  }
  reused_tokens_ = computed_tokens_;
  options_.counters.prompt_tokens += request.prompt.size();
  options_.counters.reused_tokens += reused_tokens_;
  return absl::OkStatus();
}

void RequestRun::Close() {
  const Operation operations[] = {CommitTokens{.sequence = options_.sequence,
                                               .computed_tokens = computed_tokens_,
                                               .known_losses = losses_},
                                  FreeSequence{.sequence = options_.sequence}};
  open_ = !options_.client.Execute(operations).ok();
}

absl::StatusOr<absl::Span<const float>> RequestRun::Prefill() {
  absl::Span<const TokenId> rest(options_.request.prompt);
  rest.remove_prefix(computed_tokens_);
  while (rest.size() > options_.prefill_chunk_tokens) {
    const auto chunk = rest.first(options_.prefill_chunk_tokens);
    if (auto computed = Compute(chunk, Logits::kNone); !computed.ok()) return computed.status();
    rest.remove_prefix(chunk.size());
    absl::StatusOr<CommittedTokens> committed =
        Run<CommittedTokens>(CommitTokens{.sequence = options_.sequence,
                                          .computed_tokens = computed_tokens_,
                                          .known_losses = losses_});
    if (!committed.ok()) return committed.status();
    absl::Status cancelled = CheckCancelled(options_.request);
    if (!cancelled.ok()) return cancelled;
  }
  return Compute(rest, Logits::kOfLastToken);
}

absl::StatusOr<absl::Span<const float>> RequestRun::Decode(TokenId token) {
  absl::StatusOr<AppendedTokens> appended =
      Run<AppendedTokens>(AppendTokens{.sequence = options_.sequence,
                                       .tokens = {token},
                                       .computed_tokens = computed_tokens_,
                                       .known_losses = losses_});
  if (!appended.ok()) return appended.status();
  absl::Status taken = Take(appended->added, appended->ready);
  if (!taken.ok()) return taken;
  return Compute({&token, 1}, Logits::kOfLastToken);
}

absl::StatusOr<absl::Span<const float>> RequestRun::Compute(absl::Span<const TokenId> tokens,
                                                            Logits wanted) {
  const absl::Span<const SlotIndex> tables[] = {block_table_};
  const SequenceInput sequence{.tokens = tokens,
                               .first_position = computed_tokens_,
                               .tables = tables,
                               .num_logits = wanted == Logits::kOfLastToken ? 1u : 0u};
  MakeInput({&sequence, 1}, options_.model.windows(), tokens_per_block_, input_);
  absl::StatusOr<absl::Span<const float>> logits = options_.model.Forward(input_, options_.kv);
  if (!logits.ok()) return logits;
  computed_tokens_ += static_cast<uint32_t>(tokens.size());
  options_.counters.computed_tokens += tokens.size();
  return logits;
}

template <class Result>
absl::StatusOr<Result> RequestRun::Run(Operation operation) {
  absl::StatusOr<BatchResult> batch = options_.client.Execute({&operation, 1});
  if (!batch.ok()) return batch.status();
  if (absl::Status status = Note(*batch); !status.ok()) return status;
  absl::StatusOr<OperationResult>& result = batch->results.front();
  if (!result.ok()) return result.status();
  return std::get<Result>(*std::move(result));
}

absl::Status RequestRun::Take(absl::Span<const BlockTable> tables, Ticket ready) {
  for (const BlockTable& table : tables) {
    if (table.window != kFullAttention) continue;
    block_table_.resize(table.first_block);
    for (const BlockHandle& block : table.blocks) block_table_.push_back(block.slot);
  }
  // A wait ends after a while, a copy when it is done.
  while (completed_ < ready) {
    const absl::Status waited = Run<WaitedForTicket>(WaitForTicket{ready}).status();
    if (waited.ok()) break;
    if (ReasonOf(waited) != Reason::kWaitTimeout) return waited;
    if (absl::Status status = CheckCancelled(options_.request); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Only copies that the sequence waited for can shorten it, so it has computed nothing behind them.
// A loss is told until a commit names it, and taken over once.
absl::Status RequestRun::Note(const BatchResult& batch) {
  completed_ = batch.completed;
  for (const ShortenedSequence& shortened : batch.shortened) {
    if (shortened.sequence != options_.sequence || shortened.losses == losses_) continue;
    losses_ = shortened.losses;
    computed_tokens_ = shortened.computed_tokens;
    if (!shortened.must_be_freed) continue;
    return MakeError(Reason::kKvLost,
                     "a copy failed, and what it took cannot be computed again: a sliding window "
                     "has passed it");
  }
  return absl::OkStatus();
}

}  // namespace pagoda
