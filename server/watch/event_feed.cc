#include "server/watch/event_feed.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "wire/event_bytes.h"

namespace pagoda::server {
namespace {

// The most messages' worth of events that one call examines while no event is visible.
constexpr int kMaxReads = 64;

}  // namespace

void SetEnvelope(const SharedManager& manager, Revision begin, Revision end,
                 v1::WatchResponse* out) {
  out->set_epoch(manager.epoch().value());
  out->set_cache(manager.info().name);
  out->set_previous_revision(begin.value() - 1);
  out->set_revision(end.value() - 1);
}

absl::StatusOr<EventFeed::Next> EventFeed::Read(Revision covered, Revision from) {
  absl::MutexLock lock(&mutex_);
  const auto known =
      std::lower_bound(kept_.begin(), kept_.end(), covered,
                       [](const auto& message, Revision begin) { return message->begin < begin; });
  if (known != kept_.end() && (*known)->begin == covered) {
    return Next{.message = *known, .end = (*known)->end};
  }
  absl::StatusOr<Next> next = Encode(covered, from);
  if (next.ok() && next->message != nullptr) Keep(next->message);
  return next;
}

void EventFeed::Keep(std::shared_ptr<const Message> message) {
  // No other subscriber would read it.
  if (weak_from_this().use_count() < 2) {
    kept_.clear();
    kept_bytes_ = 0;
    return;
  }
  if (!kept_.empty() && message->begin <= kept_.back()->begin) return;
  kept_bytes_ += message->bytes.Length();
  kept_.push_back(std::move(message));
  while (kept_.size() > kKeptMessages || (kept_bytes_ > kKeptBytes && kept_.size() > 1)) {
    kept_bytes_ -= kept_.front()->bytes.Length();
    kept_.pop_front();
  }
}

size_t EventFeed::num_kept() const {
  absl::MutexLock lock(&mutex_);
  return kept_.size();
}

absl::StatusOr<EventFeed::Next> EventFeed::Encode(Revision covered, Revision from) const {
  std::string bytes;  // The message; its envelope comes last.
  size_t num_events = 0;
  const auto add = [&](const Event& event) {
    AppendEncoded(event, &bytes);
    ++num_events;
  };
  for (int read = 0; read < kMaxReads; ++read) {
    // Up to the next common end of messages.
    const uint64_t left = kMaxEventsPerMessage - from.value() % kMaxEventsPerMessage;
    const auto batches = manager_->log().Read(from, left);
    if (!batches.ok()) return batches.status();
    const uint64_t begin = from.value();
    for (const EventLog::BatchPtr& batch : *batches) {
      for (size_t i = from.value() - batch->front().revision.value(); i < batch->size(); ++i) {
        if (from.value() - begin == left || bytes.size() >= kFullMessageBytes) break;
        filter_.Apply((*batch)[i], add);
        from = Revision(from.value() + 1);
      }
    }
    if (num_events > 0 || from.value() == begin) break;
  }
  Next next{.message = nullptr, .end = from};
  if (num_events == 0) return next;
  v1::WatchResponse envelope;
  SetEnvelope(*manager_, covered, from, &envelope);
  envelope.AppendToString(&bytes);
  auto message = std::make_shared<Message>();
  message->begin = covered;
  message->end = from;
  message->num_events = num_events;
  const grpc::Slice slice(bytes);
  message->bytes = grpc::ByteBuffer(&slice, 1);
  next.message = std::move(message);
  return next;
}

std::shared_ptr<EventFeed> EventFeeds::Get(const EventFilter& filter) {
  absl::MutexLock lock(&mutex_);
  if (const auto it = feeds_.find(filter); it != feeds_.end()) {
    if (std::shared_ptr<EventFeed> feed = it->second.lock(); feed != nullptr) return feed;
  }
  absl::erase_if(feeds_, [](const auto& entry) { return entry.second.expired(); });
  const auto feed = std::make_shared<EventFeed>(manager_, filter);
  feeds_[filter] = feed;
  return feed;
}

}  // namespace pagoda::server
