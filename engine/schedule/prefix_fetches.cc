#include "engine/schedule/prefix_fetches.h"

#include <variant>

namespace pagoda {
namespace {

// The disk counts as stopped if no client's fetch has ended for this long.
constexpr absl::Duration kStall = absl::Seconds(2);

absl::Duration Between(SteadyTime from, SteadyTime to) { return absl::FromChrono(to - from); }

}  // namespace

void PrefixFetches::Attach(const CacheInfo& cache) {
  has_disk_ = !cache.tiers.empty() && cache.tiers.back().medium == Medium::kDisk;
  tokens_per_block_ = cache.tokens_per_block;
  fetches_.clear();
  completed_ = Ticket();
}

bool PrefixFetches::WantsMatch(Name sample) const {
  const auto it = fetches_.find(sample);
  return has_disk_ && (it == fetches_.end() || it->second.state != State::kDone);
}

void PrefixFetches::Probed(Name sample, const CachedPrefix& cached, SteadyTime now) {
  const auto it = fetches_.find(sample);
  if (it == fetches_.end() || it->second.state != State::kEnded) return;
  Fetch& fetch = it->second;
  // With sliding windows, a part of a prefix can be in memory and match nothing.
  const auto growth = [](uint32_t from, uint32_t to) { return to - std::min(from, to); };
  const uint32_t gained = std::max(growth(fetch.before.matched_tokens, cached.matched_tokens),
                                   growth(fetch.before.memory_tokens(), cached.memory_tokens()));
  const bool brought = gained >= tokens_per_block_;
  // At its deadline the cache ends a fetch as if it were complete.
  const bool late = fetch.out_of_time && gained + tokens_per_block_ <= fetch.wanted_tokens();
  if (fetch.orders_blocks) {
    if (late) ++counts_.late_fetches;
    fetch.fetched_tokens += gained;
    if (brought) {
      forecast_.Fetched(gained, fetch.wanted_tokens(), Between(fetch.ordered_at, fetch.ended_at),
                        now);
    } else {
      forecast_.Failed(now);
    }
  }
  const bool is_last = fetch.out_of_time || (fetch.orders_blocks && !brought);
  fetch.state = is_last ? State::kDone : State::kIdle;
}

std::optional<absl::Duration> PrefixFetches::Decide(Name sample, const CachedPrefix& cached,
                                                    SteadyTime now) {
  // Less than a block is only a part of one, which is not worth a fetch.
  if (!has_disk_ || cached.cached_tokens < cached.matched_tokens + tokens_per_block_) {
    return std::nullopt;
  }
  const auto [it, is_first] = fetches_.try_emplace(sample);
  Fetch& fetch = it->second;
  if (fetch.state != State::kIdle) return std::nullopt;
  fetch.state = State::kDone;
  fetch.before = cached;
  const FetchForecast::Answer answer =
      forecast_.Worth(fetch.wanted_tokens(), cached.cached_tokens - cached.matched_tokens, now);
  if (!answer.worth) {
    if (is_first) ++counts_.fetches_not_worth;
    return std::nullopt;
  }
  if (is_first) fetch.until = now + absl::ToChronoNanoseconds(answer.patience);
  const absl::Duration left = Between(now, fetch.until);
  if (left <= absl::ZeroDuration() || (!is_first && answer.fetch.value_or(left) > left)) {
    return std::nullopt;
  }
  fetch.state = State::kOrdering;
  fetch.ordered_at = now;
  return left;
}

void PrefixFetches::Ordered(Name sample, const absl::StatusOr<OperationResult>& result,
                            SteadyTime now) {
  const auto it = fetches_.find(sample);
  if (it == fetches_.end()) return;  // It has ended since.
  Fetch& fetch = it->second;
  fetch.state = State::kDone;
  if (!result.ok()) return forecast_.Failed(now);
  const auto& prefetched = std::get<PrefetchedPrefix>(*result);
  // Without a ticket nothing is fetched, because memory had no free slots for it.
  if (prefetched.fetch == Ticket()) return;
  fetch.state = State::kFetching;
  fetch.ticket = prefetched.fetch;
  fetch.orders_blocks = prefetched.fetched_blocks > 0;
  if (fetch.orders_blocks) ++counts_.fetches;
}

bool PrefixFetches::IsFetching(Name sample) const {
  const auto it = fetches_.find(sample);
  return it != fetches_.end() && it->second.state <= State::kFetching;
}

bool PrefixFetches::any_fetching() const {
  return std::any_of(fetches_.begin(), fetches_.end(),
                     [](const auto& entry) { return entry.second.state <= State::kFetching; });
}

void PrefixFetches::Heed(Ticket completed, SteadyTime now) {
  if (completed > completed_) {
    completed_ = completed;
    completed_at_ = now;
  }
  for (auto& [name, fetch] : fetches_) {
    if (fetch.state != State::kFetching) continue;
    fetch.out_of_time =
        now >= fetch.until || Between(std::max(completed_at_, fetch.ordered_at), now) >= kStall;
    if (fetch.ticket > completed_ && !fetch.out_of_time) continue;
    fetch.state = State::kEnded;
    fetch.ended_at = now;
  }
}

uint32_t PrefixFetches::Leave(Name sample) {
  const auto node = fetches_.extract(sample);
  return node.empty() ? 0 : node.mapped().fetched_tokens;
}

}  // namespace pagoda
