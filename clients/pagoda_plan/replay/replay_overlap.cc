#include "clients/pagoda_plan/replay/replay_overlap.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <utility>
#include <vector>

#include "clients/pagoda_plan/trace/trace_replies.h"

namespace pagoda {
namespace {

using RequestIndex = size_t;

// The blocks that the running requests have, or are sure to take for their replies. A prompt's
// block that several of them have counts once.
class HeldBlocks {
 public:
  // The blocks that the request would add.
  uint32_t Added(const TraceTurn& turn, uint32_t reply_blocks) const {
    uint32_t added = reply_blocks;
    for (const uint32_t node : turn.prompt_nodes) added += Holders(node) == 0 ? 1 : 0;
    return added;
  }
  void Take(const TraceTurn& turn, uint32_t reply_blocks) {
    blocks_ += Added(turn, reply_blocks);
    for (const uint32_t node : turn.prompt_nodes) {
      if (node >= holders_.size()) holders_.resize(node + 1);
      ++holders_[node];
    }
  }
  void GiveBack(const TraceTurn& turn, uint32_t reply_blocks) {
    blocks_ -= reply_blocks;
    for (const uint32_t node : turn.prompt_nodes) {
      if (--holders_[node] == 0) --blocks_;
    }
  }
  uint32_t blocks() const { return blocks_; }

 private:
  uint32_t Holders(uint32_t node) const { return node < holders_.size() ? holders_[node] : 0; }

  std::vector<uint32_t> holders_;  // By node.
  uint32_t blocks_ = 0;
};

class Overlapping {
 public:
  Overlapping(ReplayCore& core, absl::Span<const TraceRequest> requests,
              const ServiceModel& service, ReplayReport& report,
              const std::function<void()>& on_request)
      : core_(core),
        requests_(requests),
        service_(service),
        report_(report),
        figures_(report.overlap.emplace()),
        on_request_(on_request),
        turns_(FindReplies(requests, report.tokens_per_block)),
        runs_(requests.size()) {}

  void Run() {
    for (RequestIndex i = 0; i < requests_.size(); ++i) {
      const absl::Time arrival = absl::UnixEpoch() + absl::Milliseconds(requests_[i].timestamp_ms);
      while (!events_.empty() && events_.top().time <= arrival) Happen();
      AdvanceTo(arrival);
      Arrive(i);
    }
    while (!events_.empty()) Happen();
    core_.ReadCounters();
  }

 private:
  struct Event {
    absl::Time time;
    uint64_t order = 0;  // Orders events of the same time: the one planned first comes first.
    RequestIndex request = 0;

    friend bool operator>(const Event& a, const Event& b) {
      return std::pair(a.time, a.order) > std::pair(b.time, b.order);
    }
  };

  // A request that has arrived.
  struct RunState {
    bool started = false;
    absl::Time arrival;
    absl::Time decode_start;
    uint32_t blocks_taken = 0;
    bool caches_reply = true;
  };

  uint32_t tokens_per_block() const { return report_.tokens_per_block; }
  uint32_t TotalBlocks(RequestIndex i) const {
    const uint64_t tokens = uint64_t{turns_[i].prompt_tokens} + turns_[i].output_tokens;
    return static_cast<uint32_t>((tokens + tokens_per_block() - 1) / tokens_per_block());
  }
  // With the block that has the end of the prompt.
  uint32_t ReplyBlocks(RequestIndex i) const {
    return TotalBlocks(i) - static_cast<uint32_t>(turns_[i].prompt_nodes.size());
  }
  uint32_t capacity() const { return report_.tiers.front().capacity_blocks; }

  void AdvanceTo(absl::Time time) {
    now_ = std::max(now_, time);
    report_.trace_time = now_ - absl::UnixEpoch();
  }

  void Arrive(RequestIndex i) {
    ++report_.requests;
    report_.blocks_requested += requests_[i].hash_ids.size();
    // The core wants room for one token after a prompt.
    const bool fits = turns_[i].prompt_nodes.size() < capacity() && TotalBlocks(i) <= capacity();
    if (TotalBlocks(i) == 0 || !fits) {
      if (!fits) ++report_.skipped_requests;
      on_request_();
      return;
    }
    runs_[i].arrival = now_;
    waiting_.push_back(i);
    StartWaiting();
    if (!runs_[i].started) ++figures_.waiting_requests;
  }

  // Starts requests, in the order of their arrival, until one finds no room.
  void StartWaiting() {
    while (!waiting_.empty() && Start(waiting_.front())) waiting_.pop_front();
  }

  // Returns whether there was room.
  bool Start(RequestIndex i) {
    const TraceTurn& turn = turns_[i];
    if (held_.blocks() + held_.Added(turn, ReplyBlocks(i)) > capacity()) return false;
    const auto full_blocks = static_cast<uint32_t>(turn.prompt_nodes.size());
    const uint32_t full_tokens = full_blocks * tokens_per_block();
    const uint32_t taken = std::min(TotalBlocks(i), full_blocks + 1);
    const absl::StatusOr<uint32_t> matched =
        core_.Add(SequenceId(i + 1), PromptTokens(i), taken * tokens_per_block(), now_);
    if (!matched.ok()) {
      // Another limit of the cache, for example the number of sequences. An empty cache has room.
      if (running_ > 0) return false;
      ++report_.skipped_requests;
      on_request_();
      return true;
    }
    core_.Commit(SequenceId(i + 1), {}, full_tokens, now_);
    NoteStart(i);
    report_.blocks_hit += *matched / tokens_per_block();
    RunState& run = runs_[i];
    run.blocks_taken = taken;
    const double missed = turn.prompt_tokens - *matched;
    run.decode_start = now_ + absl::Seconds(missed / service_.prefill_tokens_per_second);
    PlanNext(i);
    core_.ReadCounters();
    on_request_();
    return true;
  }

  void NoteStart(RequestIndex i) {
    RunState& run = runs_[i];
    run.started = true;
    held_.Take(turns_[i], ReplyBlocks(i));
    figures_.total_wait += now_ - run.arrival;
    figures_.longest_wait = std::max(figures_.longest_wait, now_ - run.arrival);
    figures_.most_running = std::max(figures_.most_running, ++running_);
    figures_.most_held_blocks = std::max(figures_.most_held_blocks, held_.blocks());
  }

  // The tokens of the full blocks, and one more, because the last token of a prompt is never
  // matched. It is the first one of the next block.
  absl::Span<const TokenId> PromptTokens(RequestIndex i) {
    const TraceTurn& turn = turns_[i];
    tokens_.clear();
    for (size_t k = 0; k < turn.prompt_nodes.size(); ++k) {
      AppendBlockTokens(requests_[i].hash_ids[k], tokens_per_block(), tokens_);
    }
    tokens_.push_back(
        turn.reply_blocks == 0 ? 0 : static_cast<TokenId>(ReplyBlockId(requests_, turn, 0)));
    return tokens_;
  }

  // The next event of a running request is the end of a block, or its own end.
  void PlanNext(RequestIndex i) {
    const TraceTurn& turn = turns_[i];
    const uint64_t end_of_block = uint64_t{runs_[i].blocks_taken} * tokens_per_block();
    const uint64_t prompt_and_reply = uint64_t{turn.prompt_tokens} + turn.output_tokens;
    const uint64_t until = std::min(end_of_block, prompt_and_reply);
    const double generated =
        static_cast<double>(until - std::min<uint64_t>(until, turn.prompt_tokens));
    events_.push(
        {runs_[i].decode_start + absl::Seconds(generated / service_.decode_tokens_per_second),
         ++planned_, i});
  }

  void Happen() {
    const Event event = events_.top();
    events_.pop();
    AdvanceTo(event.time);
    const RequestIndex i = event.request;
    CacheFullBlock(i);
    if (runs_[i].blocks_taken == TotalBlocks(i) || !TakeBlock(i)) return End(i);
    PlanNext(i);
  }

  // The latest block of the reply is complete, unless it is the last one.
  void CacheFullBlock(RequestIndex i) {
    const TraceTurn& turn = turns_[i];
    RunState& run = runs_[i];
    const auto full = static_cast<uint32_t>(turn.prompt_nodes.size());
    if (run.blocks_taken <= full || run.blocks_taken - full > turn.reply_blocks) return;
    const uint32_t k = run.blocks_taken - full - 1;
    ++figures_.reply_blocks;
    if (turn.next.has_value()) {
      ++figures_.found_reply_blocks;
      run.caches_reply = run.caches_reply && !runs_[*turn.next].started;
    }
    if (!run.caches_reply) return;
    tokens_.clear();
    AppendBlockTokens(ReplyBlockId(requests_, turn, k), tokens_per_block(), tokens_);
    // The prompt had the first token of the reply's first block.
    core_.Commit(SequenceId(i + 1), absl::MakeConstSpan(tokens_).subspan(k == 0 ? 1 : 0),
                 run.blocks_taken * tokens_per_block(), now_);
  }

  // Returns whether the reply got its next block.
  bool TakeBlock(RequestIndex i) {
    if (!core_.Reserve(SequenceId(i + 1), tokens_per_block(), now_).ok()) {
      ++figures_.cut_replies;
      return false;
    }
    ++runs_[i].blocks_taken;
    return true;
  }

  void End(RequestIndex i) {
    core_.Free(SequenceId(i + 1), now_);
    held_.GiveBack(turns_[i], ReplyBlocks(i));
    --running_;
    StartWaiting();
  }

  ReplayCore& core_;
  const absl::Span<const TraceRequest> requests_;
  const ServiceModel service_;
  ReplayReport& report_;
  OverlapFigures& figures_;
  const std::function<void()>& on_request_;
  const std::vector<TraceTurn> turns_;

  absl::Time now_ = absl::UnixEpoch();
  std::vector<RunState> runs_;  // By request.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t planned_ = 0;
  std::deque<RequestIndex> waiting_;
  HeldBlocks held_;
  uint32_t running_ = 0;
  std::vector<TokenId> tokens_;  // A member to reuse its memory.
};

}  // namespace

void ReplayOverlapping(ReplayCore& core, absl::Span<const TraceRequest> requests,
                       const ServiceModel& service, ReplayReport& report,
                       const std::function<void()>& on_request) {
  Overlapping(core, requests, service, report, on_request).Run();
}

}  // namespace pagoda
