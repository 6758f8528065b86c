#include "server/bridges/router_feed.h"

#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/time/clock.h"

namespace pagoda::server {
namespace {

constexpr size_t kFeedEventsPerRead = 4096;

// How many snapshots the feed tries before it continues without one.
constexpr int kSnapshots = 3;

// How long an idle feed can take to notice the stop.
constexpr absl::Duration kStopLook = absl::Milliseconds(50);

size_t BytesOf(const RouterEvent& event) {
  size_t bytes = sizeof(event);
  if (const auto* stored = std::get_if<BlocksStored>(&event.what)) {
    bytes += stored->hashes.size() * sizeof(BlockHash) + stored->tokens.size() * sizeof(TokenId) +
             stored->extras.size() * sizeof(TokenExtra);
  } else if (const auto* removed = std::get_if<BlocksRemoved>(&event.what)) {
    bytes += removed->hashes.size() * sizeof(BlockHash);
  }
  return bytes;
}

}  // namespace

RouterFeed::RouterFeed(Options options, const EventLog* log, std::vector<RouterSink*> sinks)
    : options_(std::move(options)),
      log_(log),
      sinks_(std::move(sinks)),
      translator_(options_.cache),
      next_number_(options_.first_number) {
  started_ = thread_.Start("pagoda-feed", [this] { Run(); });
}

RouterFeed::~RouterFeed() {
  stop_.Notify();
  thread_.Join();
}

RouterFeed::Stats RouterFeed::stats() const {
  absl::MutexLock lock(&mutex_);
  return {.batches = batches_,
          .stored_blocks = stored_blocks_,
          .removed_blocks = removed_blocks_,
          .clears = clears_,
          .resets = resets_,
          .read_revision = read_.value()};
}

bool RouterFeed::WaitUntilRead(Revision revision, absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  const auto read = [this, revision]()
                        ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return read_ >= revision; };
  return mutex_.AwaitWithTimeout(absl::Condition(&read), timeout);
}

void RouterFeed::Run() {
  time_ = absl::Now();
  SendEverything(told_);
  while (true) {
    // Checked before the read, so that events appended before the stop are still read.
    const bool stopping = stop_.HasBeenNotified();
    if (ReadOn()) continue;
    if (stopping) return;
    const Revision seen(next_.value() - 1);
    if (log_->WaitBeyond(seen, kStopLook) > seen) {
      stop_.WaitForNotificationWithTimeout(options_.flush_interval);
    }
  }
}

bool RouterFeed::ReadOn() {
  const auto batches = log_->Read(next_, kFeedEventsPerRead);
  if (!batches.ok()) {
    // The log has passed the feed: Read's other error cannot occur here.
    Reset();
    return true;
  }
  for (const EventLog::BatchPtr& batch : *batches) {
    for (size_t i = next_.value() - batch->front().revision.value(); i < batch->size(); ++i) {
      Add((*batch)[i]);
      told_ = (*batch)[i].revision;
      next_ = Revision(told_.value() + 1);
    }
  }
  Flush();
  RepeatIfDropped();
  {
    absl::MutexLock lock(&mutex_);
    read_ = Revision(next_.value() - 1);
  }
  if (batches->empty() && absl::Now() >= retry_reset_) Reset();
  return !batches->empty();
}

void RouterFeed::Reset() {
  resets_.fetch_add(1, std::memory_order_relaxed);
  bool taken = false;
  for (int i = 0; i < kSnapshots && !taken; ++i) taken = TakeSnapshot();
  retry_reset_ = taken ? absl::InfiniteFuture() : absl::Now() + kRetryReset;
  if (!taken) {
    ForgetQuietly();
    next_ = log_->oldest();
  }
  SendEverything(Revision(next_.value() - 1));
}

void RouterFeed::SendEverything(Revision revision) {
  pending_.push_back({.what = AllCleared{}});
  change_bytes_ = 0;
  translator_.EmitAll([this](RouterEvent event) {
    pending_.push_back(std::move(event));
    FlushIfFull();
  });
  told_ = revision;
  FlushIfFull();
  Flush();
  content_bytes_ = std::exchange(change_bytes_, 0);
}

void RouterFeed::RepeatIfDropped() {
  if (change_bytes_ < content_bytes_) return;
  if (absl::c_all_of(sinks_, [](const RouterSink* sink) { return sink->KeepsLastClear(); })) return;
  SendEverything(told_);
}

bool RouterFeed::TakeSnapshot() {
  ForgetQuietly();
  std::vector<RouterEvent> untold;  // Dropped: EmitAll announces every block after the snapshot.
  SnapshotPosition position;
  do {
    const SnapshotPiece piece = options_.read_snapshot(position);
    // The first chunk starts at its own revision: no block was passed before it.
    if (position == SnapshotPosition()) next_ = Revision(piece.revision.value() + 1);
    while (next_ <= piece.revision) {
      const auto batches = log_->Read(next_, kFeedEventsPerRead);
      if (!batches.ok()) return false;
      for (const EventLog::BatchPtr& batch : *batches) {
        for (const Event& event : *batch) {
          if (event.revision < next_ || event.revision > piece.revision) continue;
          next_ = Revision(event.revision.value() + 1);
          ForEachPassed(event, position,
                        [&](const Event& part) { translator_.Translate(part, untold); });
        }
        untold.clear();
      }
    }
    for (const Event& event : piece.events) {
      translator_.Translate(event, untold);
      time_ = event.time;
    }
    untold.clear();
    position = piece.end;
  } while (!position.done);
  return true;
}

void RouterFeed::ForgetQuietly() {
  std::vector<RouterEvent> untold;
  translator_.Forget(untold);
}

void RouterFeed::Add(const Event& event) {
  translator_.Translate(event, pending_);
  time_ = event.time;
  FlushIfFull();
}

void RouterFeed::FlushIfFull() {
  while (sized_ < pending_.size()) {
    if (sized_ > 0 && std::holds_alternative<AllCleared>(pending_[sized_].what)) FlushSized();
    pending_bytes_ += BytesOf(pending_[sized_++]);
    if (pending_bytes_ >= kFullBatchBytes) FlushSized();
  }
}

void RouterFeed::FlushSized() {
  const auto end = pending_.begin() + static_cast<ptrdiff_t>(sized_);
  std::vector<RouterEvent> rest(std::make_move_iterator(end),
                                std::make_move_iterator(pending_.end()));
  pending_.erase(end, pending_.end());
  Flush();
  pending_ = std::move(rest);
}

void RouterFeed::Flush() {
  if (pending_.empty()) return;
  auto batch = std::make_shared<RouterBatch>();
  batch->number = next_number_++;
  batch->first_event = next_event_;
  batch->time = time_;
  batch->revision = told_;
  batch->bytes = sizeof(RouterBatch) + pending_bytes_;
  batch->events = std::exchange(pending_, {});
  next_event_ += batch->events.size();
  change_bytes_ += batch->bytes;
  sized_ = 0;
  pending_bytes_ = 0;
  Count(*batch);
  for (RouterSink* sink : sinks_) sink->Publish(batch);
}

void RouterFeed::Count(const RouterBatch& batch) {
  uint64_t stored_blocks = 0;
  uint64_t removed_blocks = 0;
  uint64_t clears = 0;
  for (const RouterEvent& event : batch.events) {
    if (const auto* stored = std::get_if<BlocksStored>(&event.what)) {
      stored_blocks += stored->hashes.size();
    } else if (const auto* removed = std::get_if<BlocksRemoved>(&event.what)) {
      removed_blocks += removed->hashes.size();
    } else {
      ++clears;
    }
  }
  batches_.fetch_add(1, std::memory_order_relaxed);
  stored_blocks_.fetch_add(stored_blocks, std::memory_order_relaxed);
  removed_blocks_.fetch_add(removed_blocks, std::memory_order_relaxed);
  clears_.fetch_add(clears, std::memory_order_relaxed);
}

}  // namespace pagoda::server
