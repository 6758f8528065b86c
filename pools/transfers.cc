#include "pools/transfers.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/block_copy.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {
namespace {

std::string SlotName(SlotRef ref) {
  const std::string_view tier = TierName(ref.tier);
  return absl::StrCat(absl::string_view(tier.data(), tier.size()), " slot ", ref.slot.value());
}

absl::StatusOr<uint32_t> WindowIndex(const CacheLayout& layout, WindowSize window) {
  const auto& windows = layout.windows();
  const auto it = std::find_if(windows.begin(), windows.end(),
                               [&](const WindowLayout& w) { return w.window == window; });
  if (it == windows.end()) {
    return MakeError(Reason::kUnknownWindow,
                     absl::StrCat("a copy in window ", WindowName(window), ": no such window"));
  }
  return static_cast<uint32_t>(it - windows.begin());
}

kernels::TokenRuns RunsOf(const PoolLayout& layout) {
  return {.num_runs = layout.layers.size() * layout.kv_factor * layout.num_kv_heads,
          .run_bytes = layout.head_stride_bytes(),
          .token_bytes = layout.token_stride_bytes()};
}

// Copies what the order names between two pools of one layout. Returns the bytes copied.
absl::StatusOr<uint64_t> CopyInPool(const CopyOrder& order, SharedMemoryPool& source,
                                    SharedMemoryPool& target) {
  const PoolLayout& layout = source.layout();
  const kernels::SlotCopy copy{.source = order.source.slot.value(),
                               .target = order.target.slot.value()};
  const kernels::BlockCopyParams params{.source = source.bytes().data(),
                                        .target = target.bytes().data(),
                                        .source_slots = source.num_slots(),
                                        .target_slots = target.num_slots(),
                                        .slot_bytes = layout.slot_stride_bytes(),
                                        .copies = {&copy, 1}};
  if (order.num_tokens == layout.tokens_per_block) {
    if (absl::Status status = kernels::cpu::CopyBlocks(params); !status.ok()) return status;
    return params.slot_bytes;
  }
  const kernels::TokenRuns runs = RunsOf(layout);
  if (absl::Status status = kernels::cpu::CopyBlockTokens(params, runs, order.num_tokens);
      !status.ok()) {
    return status;
  }
  return runs.num_runs * runs.token_bytes * order.num_tokens;
}

// In every pool of the window. Returns the bytes copied.
absl::StatusOr<uint64_t> CopyInWindow(const CopyOrder& order, PoolSet& pools) {
  const absl::StatusOr<uint32_t> window = WindowIndex(pools.layout(), order.window);
  if (!window.ok()) return window.status();
  for (const SlotRef& ref : {order.source, order.target}) {
    if (pools.num_slots(*window, ref.tier) > 0) continue;
    return MakeError(
        Reason::kInvalidArgument,
        absl::StrCat("a copy of ", SlotName(order.source), " to ", SlotName(order.target),
                     ": window ", WindowName(order.window), " has no pools in that tier"));
  }
  uint64_t bytes = 0;
  for (uint32_t p = 0; p < pools.layout().windows()[*window].pools.size(); ++p) {
    const absl::StatusOr<uint64_t> copied =
        CopyInPool(order, pools.pool(*window, p, order.source.tier),
                   pools.pool(*window, p, order.target.tier));
    if (!copied.ok()) return copied.status();
    bytes += *copied;
  }
  return bytes;
}

using SteadyClock = std::chrono::steady_clock;

// What came of an order.
struct Outcome {
  absl::Status status;
  uint64_t bytes = 0;
  absl::Duration busy;
  absl::Duration latency;
};

// `given`: when the order came.
Outcome Carry(const CopyOrder& order, PoolSet& pools, SteadyClock::time_point given) {
  const auto start = SteadyClock::now();
  const absl::StatusOr<uint64_t> bytes = CopyInWindow(order, pools);
  const auto end = SteadyClock::now();
  return {bytes.status(), bytes.ok() ? *bytes : 0, absl::FromChrono(end - start),
          absl::FromChrono(end - given)};
}

void Count(const CopyOrder& order, const Outcome& outcome, TransferStats& stats) {
  TransferStats::Direction& direction = stats.directions[static_cast<size_t>(order.source.tier)]
                                                        [static_cast<size_t>(order.target.tier)];
  direction.busy += outcome.busy;
  if (!outcome.status.ok()) {
    ++stats.failed;
    return;
  }
  ++direction.copies;
  direction.bytes += outcome.bytes;
  direction.latency.Observe(outcome.latency);
}

// Takes the ticket of a new order.
void Advance(Ticket ticket, Ticket& last) {
  PAGODA_CHECK(ticket > last, "copy orders come in the order of their tickets");
  last = ticket;
}

}  // namespace

HostTransfers::HostTransfers(PoolSet* pools, Options options, Completion completion)
    : pools_(pools), options_(std::move(options)), completion_(std::move(completion)) {
  PAGODA_CHECK(options_.num_threads > 0, "transfers have a thread");
  threads_.reserve(options_.num_threads);
  for (uint32_t i = 0; i < options_.num_threads; ++i) {
    threads_.emplace_back([this] { RunThread(); });
  }
}

HostTransfers::~HostTransfers() { Stop(); }

void HostTransfers::Submit(absl::Span<const CopyOrder> orders) {
  absl::MutexLock lock(&mutex_);
  PAGODA_CHECK(!stopped_, "no copy is ordered after Stop");
  const auto now = SteadyClock::now();
  for (const CopyOrder& order : orders) Enqueue(order, now);
}

void HostTransfers::Enqueue(const CopyOrder& order, SteadyClock::time_point now) {
  Advance(order.ticket, last_);
  uint32_t waits_for = 0;
  for (const Ticket earlier : order.after) {
    const auto it = pending_.find(earlier);
    if (it == pending_.end()) continue;
    it->second.followers.push_back(order.ticket);
    ++waits_for;
  }
  pending_.emplace(order.ticket, Pending{order, now, waits_for, {}});
  if (waits_for == 0) ready_.push_back(order.ticket);
}

void HostTransfers::RunThread() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(this, &HostTransfers::HasWorkOrEnds));
    if (ready_.empty()) return;
    RunNext();
  }
}

void HostTransfers::RunNext() {
  const Ticket ticket = ready_.front();
  ready_.pop_front();
  const Pending& pending = pending_.find(ticket)->second;
  const CopyOrder order = pending.order;
  const SteadyClock::time_point given = pending.given;
  const bool cancelled = stopping_;
  ++stats_.running;
  mutex_.Unlock();

  Outcome outcome;
  if (cancelled) {
    outcome.status = absl::CancelledError("the copy had not started when transfers were stopped");
  } else if (options_.before_copy != nullptr) {
    outcome.status = options_.before_copy(order);
  }
  if (outcome.status.ok()) outcome = Carry(order, *pools_, given);
  completion_(ticket, outcome.status);

  mutex_.Lock();
  --stats_.running;
  if (cancelled) {
    ++stats_.cancelled;
  } else {
    Count(order, outcome, stats_);
  }
  const auto done = pending_.find(ticket);
  for (const Ticket follower : done->second.followers) {
    if (--pending_.find(follower)->second.waits_for == 0) ready_.push_back(follower);
  }
  pending_.erase(done);
}

void HostTransfers::Drain() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &HostTransfers::Idle));
}

void HostTransfers::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  absl::MutexLock lock(&mutex_);
  PAGODA_CHECK(pending_.empty(), "every order is reported");
  stopped_ = true;
}

TransferStats HostTransfers::stats() const {
  absl::MutexLock lock(&mutex_);
  TransferStats stats = stats_;
  stats.queued = pending_.size() - stats.running;
  return stats;
}

void InstantTransfers::Submit(absl::Span<const CopyOrder> orders) {
  absl::MutexLock lock(&mutex_);
  PAGODA_CHECK(!stopped_, "no copy is ordered after Stop");
  for (const CopyOrder& order : orders) {
    Advance(order.ticket, last_);
    queue_.push_back(order);
  }
  if (running_) return;
  running_ = true;
  while (!queue_.empty()) {
    const CopyOrder order = queue_.front();
    queue_.pop_front();
    mutex_.Unlock();
    const Outcome outcome =
        pools_ == nullptr ? Outcome() : Carry(order, *pools_, SteadyClock::now());
    completion_(order.ticket, outcome.status);
    mutex_.Lock();
    Count(order, outcome, stats_);
  }
  running_ = false;
}

void InstantTransfers::Drain() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &InstantTransfers::Idle));
}

void InstantTransfers::Stop() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &InstantTransfers::Idle));
  stopped_ = true;
}

TransferStats InstantTransfers::stats() const {
  absl::MutexLock lock(&mutex_);
  TransferStats stats = stats_;
  stats.running = running_ ? 1 : 0;
  stats.queued = queue_.size();
  return stats;
}

}  // namespace pagoda
