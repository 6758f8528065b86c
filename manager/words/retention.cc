#include "manager/words/retention.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

template <class Name>
absl::Status CheckBlockRetention(const BlockRetention& retention, const Name& name) {
  if (retention.priority.value() > kMaxPriority) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(name(), " has priority ", retention.priority.value(),
                                  "; the highest is ", kMaxPriority));
  }
  if (retention.duration <= absl::ZeroDuration()) {
    return MakeError(
        Reason::kInvalidArgument,
        absl::StrCat(name(), " has duration ", absl::FormatDuration(retention.duration),
                     "; it must be positive"));
  }
  return absl::OkStatus();
}

// Called only for refusals: formatting a name takes longer than checking its range.
std::string RangeName(size_t index, const RetentionRange& range) {
  return absl::StrCat("retention range ", index, ", tokens [", range.token_start, ", ",
                      range.token_end.has_value() ? absl::StrCat(*range.token_end) : "end", "),");
}

}  // namespace

bool KeepsAtLeast(const BlockRetention& wish, const BlockRetention& had) {
  // A wish restarts the clock. So repeated wishes below the default priority could keep a block
  // there for ever.
  if (wish.priority < std::max(had.priority, kDefaultPriority)) return false;
  return had.priority <= kDefaultPriority || wish.duration >= had.duration;
}

absl::Status CheckRetention(const SequenceRetention& retention) {
  for (size_t i = 0; i < retention.ranges.size(); ++i) {
    const RetentionRange& range = retention.ranges[i];
    const auto name = [&] { return RangeName(i, range); };
    if (range.token_end.has_value() && *range.token_end <= range.token_start) {
      return MakeError(Reason::kInvalidArgument, absl::StrCat(name(), " is empty"));
    }
    if (i > 0) {
      const std::optional<uint32_t>& previous_end = retention.ranges[i - 1].token_end;
      if (!previous_end.has_value()) {
        return MakeError(Reason::kInvalidArgument, absl::StrCat(name(), " follows an open range"));
      }
      if (range.token_start < *previous_end) {
        return MakeError(
            Reason::kInvalidArgument,
            absl::StrCat(name(), " begins before the previous range ends, at ", *previous_end));
      }
    }
    const absl::Status status = CheckBlockRetention(range.retention, name);
    if (!status.ok()) return status;
  }
  if (!retention.generated.has_value()) return absl::OkStatus();
  return CheckBlockRetention(*retention.generated,
                             [] { return std::string("the retention of generated tokens"); });
}

std::optional<BlockRetention> RetentionOf(const SequenceRetention& retention,
                                          uint32_t prompt_tokens, uint32_t first_token) {
  if (first_token >= prompt_tokens) return retention.generated;
  // The last range that begins at or before the token.
  const auto behind = std::upper_bound(
      retention.ranges.begin(), retention.ranges.end(), first_token,
      [](uint32_t token, const RetentionRange& range) { return token < range.token_start; });
  if (behind == retention.ranges.begin()) return std::nullopt;
  const RetentionRange& range = *std::prev(behind);
  if (range.token_end.has_value() && first_token >= *range.token_end) return std::nullopt;
  return range.retention;
}

void ExpiryQueue::SetDuration(BlockId id, absl::Duration duration) {
  Forget(id);
  if (duration != absl::InfiniteDuration()) durations_.emplace(id, Timer{.duration = duration});
}

absl::Duration ExpiryQueue::duration(BlockId id) const {
  const auto found = durations_.find(id);
  return found == durations_.end() ? absl::InfiniteDuration() : found->second.duration;
}

void ExpiryQueue::Start(BlockId id, absl::Time now) {
  const auto found = durations_.find(id);
  if (found == durations_.end()) return;
  Timer& timer = found->second;
  running_.erase({timer.deadline, id});
  timer.deadline = now + timer.duration;
  if (timer.deadline != absl::InfiniteFuture()) running_.emplace(timer.deadline, id);
}

void ExpiryQueue::Stop(BlockId id) {
  const auto found = durations_.find(id);
  if (found == durations_.end()) return;
  running_.erase({found->second.deadline, id});
  found->second.deadline = absl::InfiniteFuture();
}

void ExpiryQueue::Forget(BlockId id) {
  Stop(id);
  durations_.erase(id);
}

std::vector<BlockId> ExpiryQueue::TakeExpired(absl::Time now, size_t limit) {
  std::vector<BlockId> expired;
  auto end = running_.begin();
  for (; end != running_.end() && end->first <= now && expired.size() < limit; ++end) {
    expired.push_back(end->second);
    durations_.erase(end->second);
  }
  running_.erase(running_.begin(), end);
  return expired;
}

absl::Time ExpiryQueue::next() const {
  return running_.empty() ? absl::InfiniteFuture() : running_.begin()->first;
}

}  // namespace pagoda
