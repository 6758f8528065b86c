#include "clients/pagoda_plan/workload/chat_workload.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/tokens.h"

namespace pagoda {
namespace {

constexpr uint32_t kVocabSize = 32000;
// Part of the blocks' hashes, on which the hit rate under `learned` depends a little. It stays as
// it was when the documented hit rates were measured.
constexpr char kCacheSalt[] = "pagodactl workload";
// The pause between two tries when not even one conversation gets blocks.
constexpr absl::Duration kRetryInterval = absl::Milliseconds(10);

// The work of a conversation in the next batch.
enum class Phase {
  kAdding,     // Opens its sequence with the whole history.
  kReplying,   // Appends the reply's next token.
  kFinishing,  // Commits the last token and frees the sequence: the turn is over.
  kYielding,   // Got no blocks: frees the sequence, to continue later.
};

struct Conversation {
  SequenceId sequence;
  RandomTokens source;
  std::vector<TokenId> history;
  std::vector<TokenId> reply;  // The reply of this turn.
  size_t replied = 0;          // Tokens of the reply that are in the history.
  uint32_t turns_left = 0;
  Phase phase = Phase::kAdding;
  // The sequence's losses that answers have named; whether the last answer named one; whether the
  // sequence can only be freed.
  uint32_t known_losses = 0;
  bool newly_shortened = false;
  bool must_be_freed = false;
};

uint64_t LongestSequence(const ChatWorkloadOptions& options) {
  return options.system_tokens +
         uint64_t{options.turns} * (uint64_t{options.user_tokens} + options.reply_tokens);
}

absl::Status CheckOptions(const ChatWorkloadOptions& options, const CacheInfo& cache) {
  if (options.conversations == 0 || options.turns == 0 || options.user_tokens == 0 ||
      options.reply_tokens == 0) {
    return MakeError(Reason::kInvalidArgument,
                     "conversations, turns, user tokens and reply tokens are at least 1");
  }
  if (options.concurrency == 0 || options.concurrency > kMaxConcurrency) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat("concurrency ", options.concurrency,
                                                            " is not 1 to ", kMaxConcurrency));
  }
  const uint64_t tokens = LongestSequence(options);
  for (const CacheInfo::Window& window : cache.windows) {
    const uint64_t blocks = (tokens + cache.tokens_per_block - 1) / cache.tokens_per_block;
    if (blocks > window.blocks_in(kPrimaryTier) || tokens > std::numeric_limits<uint32_t>::max()) {
      return MakeError(
          Reason::kInvalidCount,
          absl::StrCat("a conversation grows to ", Counted(tokens, "token"), " = ",
                       Counted(blocks, "block"), " of ", cache.tokens_per_block,
                       ", and the cache has ", Counted(window.blocks_in(kPrimaryTier), "block"),
                       ": use fewer or shorter turns, or give the daemon more memory"));
    }
  }
  return absl::OkStatus();
}

absl::Duration Percentile(std::vector<absl::Duration>& latencies, double share) {
  if (latencies.empty()) return absl::ZeroDuration();
  const auto rank = static_cast<size_t>(share * static_cast<double>(latencies.size() - 1));
  std::nth_element(latencies.begin(), latencies.begin() + rank, latencies.end());
  return latencies[rank];
}

class ChatWorkload {
 public:
  ChatWorkload(CacheClient& client, const ChatWorkloadOptions& options)
      : client_(client), options_(options), limit_(options.concurrency) {
    const std::vector<TokenId> system =
        RandomTokens(options.seed, kVocabSize).Take(options.system_tokens);
    for (uint32_t i = 0; i < options.conversations; ++i) {
      conversations_.push_back({.sequence = SequenceId(i),
                                .source = RandomTokens(options.seed + 1 + i, kVocabSize),
                                .history = system,
                                .reply = {},
                                .turns_left = options.turns});
    }
    for (Conversation& conversation : conversations_) {
      BeginTurn(conversation);
      waiting_.push_back(&conversation);
    }
    report_.turns_total = uint64_t{options.conversations} * options.turns;
  }

  absl::StatusOr<ChatWorkloadReport> Run(const BatchCallback& on_batch) {
    start_ = last_move_ = absl::Now();
    while (report_.turns_done < report_.turns_total) {
      if (absl::Status status = Step(); !status.ok()) return status;
      report_.elapsed = absl::Now() - start_;
      if (on_batch && on_batch(report_) == Next::kStop) break;
    }
    report_.batch_latency_p50 = Percentile(latencies_, 0.50);
    report_.batch_latency_p99 = Percentile(latencies_, 0.99);
    return report_;
  }

 private:
  void BeginTurn(Conversation& conversation) const {
    const std::vector<TokenId> user = conversation.source.Take(options_.user_tokens);
    conversation.history.insert(conversation.history.end(), user.begin(), user.end());
    conversation.reply = conversation.source.Take(options_.reply_tokens);
    conversation.replied = 0;
  }

  // Sends one batch for all active conversations. Their replies are one operation, AppendStep, like
  // an engine's decode step.
  absl::Status Step() {
    Admit();
    std::vector<Operation> operations;
    AppendStep step{.tokens = {}};
    for (const Conversation* conversation : active_) {
      if (conversation->phase == Phase::kReplying) {
        AppendReply(*conversation, step);
      } else {
        AppendOperations(*conversation, operations);
      }
    }
    const size_t replies = step.sequences.size();
    report_.operations += operations.size() + replies;
    if (replies > 0) operations.push_back(std::move(step));

    const absl::Time sent = absl::Now();
    const absl::StatusOr<BatchResult> batch = client_.Execute(operations);
    if (!batch.ok()) return batch.status();
    latencies_.push_back(absl::Now() - sent);
    ++report_.batches;

    for (const ShortenedSequence& shortened : batch->shortened) NoteLoss(shortened);
    if (replies > 0) TakeReplies(batch->results.back(), replies);
    auto result = batch->results.begin();
    for (Conversation* conversation : std::exchange(active_, {})) {
      if (absl::Status status = Advance(*conversation, result); !status.ok()) return status;
    }
    return WaitIfStuck(sent);
  }

  void Admit() {
    while (active_.size() < limit_ && !waiting_.empty()) {
      active_.push_back(waiting_.front());
      waiting_.pop_front();
    }
  }

  static Operation MakeAddSequence(const Conversation& conversation) {
    AddSequence add;
    add.sequence = conversation.sequence;
    add.name_space.cache_salt = kCacheSalt;
    add.tokens = conversation.history;
    return add;
  }

  // The step that sampled this token has computed all tokens before it. The first step computes the
  // prompt.
  static void AppendReply(const Conversation& conversation, AppendStep& step) {
    step.sequences.push_back(conversation.sequence);
    step.tokens.push_back(conversation.reply[conversation.replied]);
    step.computed_tokens.push_back(static_cast<uint32_t>(conversation.history.size()));
    step.known_losses.push_back(conversation.known_losses);
  }

  // Records the status of each of the step's appends, in order.
  void TakeReplies(const absl::StatusOr<OperationResult>& result, size_t replies) {
    replies_.assign(replies, result.status());
    next_reply_ = 0;
    if (!result.ok()) return;
    for (const AppendedStep::Failure& failure : std::get<AppendedStep>(*result).failed) {
      if (failure.index < replies) replies_[failure.index] = failure.status;
    }
  }

  void AppendOperations(const Conversation& conversation, std::vector<Operation>& out) const {
    const auto history_tokens = static_cast<uint32_t>(conversation.history.size());
    switch (conversation.phase) {
      case Phase::kAdding:
        out.push_back(MakeAddSequence(conversation));
        break;
      case Phase::kReplying:
        PAGODA_CHECK(false, "a reply is part of the step");
        break;
      case Phase::kFinishing:
        out.push_back(CommitTokens{.sequence = conversation.sequence,
                                   .tokens = {},
                                   .computed_tokens = history_tokens,
                                   .known_losses = conversation.known_losses});
        out.push_back(FreeSequence{conversation.sequence});
        break;
      case Phase::kYielding:
        out.push_back(FreeSequence{conversation.sequence});
        break;
    }
  }

  // A copy failed. The workload computes no KV, so it has nothing to recompute.
  void NoteLoss(const ShortenedSequence& shortened) {
    Conversation& conversation = conversations_[shortened.sequence.value()];
    if (shortened.losses <= conversation.known_losses) return;
    report_.shortened += shortened.losses - conversation.known_losses;
    conversation.known_losses = shortened.losses;
    conversation.newly_shortened = true;
    conversation.must_be_freed = shortened.must_be_freed;
  }

  // Whether the operation failed because of a loss that this answer names for the first time.
  bool RefusedForLoss(const Conversation& conversation, const absl::Status& status) {
    if (ReasonOf(status) != Reason::kKvLost || !conversation.newly_shortened) return false;
    ++report_.refused;
    return true;
  }

  // Whether the operation failed for want of capacity that other sequences free when they end.
  bool NeedsBlocks(const absl::Status& status) {
    const Reason reason = ReasonOf(status);
    const bool wants = reason == Reason::kBlocksExhausted || reason == Reason::kTooManySequences ||
                       reason == Reason::kSequenceBytesExhausted;
    if (wants) refusal_ = status;
    return wants;
  }

  using Results = std::vector<absl::StatusOr<OperationResult>>::const_iterator;

  // Consumes the conversation's results from `result` and moves it to its next phase and queue.
  absl::Status Advance(Conversation& conversation, Results& result) {
    if (conversation.phase == Phase::kReplying) return AdvanceReply(conversation);
    const absl::StatusOr<OperationResult>& first = *result++;
    const bool refused_for_loss = RefusedForLoss(conversation, first.status());
    conversation.newly_shortened = false;
    switch (conversation.phase) {
      case Phase::kAdding:
        if (NeedsBlocks(first.status())) return Defer(conversation);
        if (!first.ok()) return first.status();
        report_.prompt_tokens += conversation.history.size();
        report_.matched_tokens += std::get<AddedSequence>(*first).matched_tokens;
        conversation.phase = Phase::kReplying;
        YieldIfLost(conversation);
        break;
      case Phase::kReplying:
        break;  // See above.
      case Phase::kFinishing: {
        const absl::StatusOr<OperationResult>& freed = *result++;
        if (!first.ok() && !refused_for_loss) return first.status();
        if (!freed.ok()) return freed.status();
        if (conversation.must_be_freed) ++report_.lost;
        return EndTurn(conversation);
      }
      case Phase::kYielding:
        if (!first.ok()) return first.status();
        return Defer(conversation);
    }
    active_.push_back(&conversation);
    return absl::OkStatus();
  }

  absl::Status AdvanceReply(Conversation& conversation) {
    const absl::Status& appended = replies_[next_reply_++];
    const bool refused_for_loss = RefusedForLoss(conversation, appended);
    conversation.newly_shortened = false;
    active_.push_back(&conversation);
    if (NeedsBlocks(appended)) {
      conversation.phase = Phase::kYielding;
      return absl::OkStatus();
    }
    if (!appended.ok() && !refused_for_loss) return appended;
    if (appended.ok()) AppendReplyToken(conversation);
    YieldIfLost(conversation);
    return absl::OkStatus();
  }

  void YieldIfLost(Conversation& conversation) {
    if (!conversation.must_be_freed) return;
    ++report_.lost;
    conversation.phase = Phase::kYielding;
  }

  // The conversation's next sequence has no losses yet.
  static void ForgetLosses(Conversation& conversation) {
    conversation.known_losses = 0;
    conversation.must_be_freed = false;
  }

  void AppendReplyToken(Conversation& conversation) {
    conversation.history.push_back(conversation.reply[conversation.replied++]);
    ++report_.reply_tokens;
    last_move_ = absl::Now();
    if (conversation.replied == conversation.reply.size()) conversation.phase = Phase::kFinishing;
  }

  // Queues the next turn behind other conversations, because people pause between turns.
  absl::Status EndTurn(Conversation& conversation) {
    ForgetLosses(conversation);
    ++report_.turns_done;
    last_move_ = absl::Now();
    limit_ = std::min<size_t>(limit_ + 1, options_.concurrency);
    if (--conversation.turns_left == 0) return absl::OkStatus();
    BeginTurn(conversation);
    conversation.phase = Phase::kAdding;
    waiting_.push_back(&conversation);
    return absl::OkStatus();
  }

  // Queues the conversation first. Fewer conversations run at once until turns end, but at least
  // one. A conversation that runs alone always fits, unless another session holds the blocks.
  absl::Status Defer(Conversation& conversation) {
    ForgetLosses(conversation);
    ++report_.deferrals;
    conversation.phase = Phase::kAdding;
    waiting_.push_front(&conversation);
    limit_ = std::max<size_t>(1, limit_ - 1);
    return absl::OkStatus();
  }

  // If nothing is active and nothing progressed in this step, no conversation got blocks. Then
  // waits before the next try, or fails if that lasts longer than `patience`.
  absl::Status WaitIfStuck(absl::Time step_start) const {
    if (!active_.empty() || last_move_ >= step_start) return absl::OkStatus();
    const absl::Duration stuck = absl::Now() - last_move_;
    if (stuck > options_.patience && refusal_.ok()) {
      return MakeError(Reason::kKvLost, absl::StrCat("no conversation has kept its sequence for ",
                                                     FormatElapsed(stuck)));
    }
    if (stuck > options_.patience) {
      return MakeError(ReasonOf(refusal_),
                       absl::StrCat("no conversation got capacity for ", FormatElapsed(stuck),
                                    "; other sessions hold it: ", refusal_.message()));
    }
    absl::SleepFor(kRetryInterval);
    return absl::OkStatus();
  }

  CacheClient& client_;
  const ChatWorkloadOptions& options_;
  std::deque<Conversation> conversations_;  // A deque does not move its elements.
  std::deque<Conversation*> waiting_;
  std::vector<Conversation*> active_;
  std::vector<absl::Status> replies_;  // The results of the last batch.
  size_t next_reply_ = 0;
  // The most active_ conversations. A deferral lowers it, the end of a turn raises it.
  size_t limit_;
  std::vector<absl::Duration> latencies_;
  absl::Time start_;
  absl::Time last_move_;
  absl::Status refusal_;  // The last failure for want of capacity.
  ChatWorkloadReport report_;
};

}  // namespace

double ChatWorkloadReport::hit_rate() const { return Share(matched_tokens, prompt_tokens); }

double ChatWorkloadReport::operations_per_second() const {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  return seconds > 0 ? static_cast<double>(operations) / seconds : 0;
}

absl::StatusOr<ChatWorkloadReport> RunChatWorkload(CacheClient& client,
                                                   const ChatWorkloadOptions& options,
                                                   const BatchCallback& on_batch) {
  if (absl::Status status = CheckOptions(options, client.info()); !status.ok()) return status;
  return ChatWorkload(client, options).Run(on_batch);
}

}  // namespace pagoda
