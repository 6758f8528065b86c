#include "server/ring/ring_poller.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "base/event_poll.h"

namespace pagoda::server {
namespace {

// While batches follow each other, or while the thread spins, it looks this often for wakes of
// other pairs.
constexpr ring::Clock::duration kLookAround = std::chrono::microseconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<RingPoller>> RingPoller::Start() {
  absl::StatusOr<EventPoll> poll = EventPoll::Create();
  if (!poll.ok()) return poll.status();
  auto poller = absl::WrapUnique(new RingPoller(std::make_shared<RingInbox>(*std::move(poll))));
  absl::Status started = poller->thread_.Start(kThreadName, [self = poller.get()] { self->Run(); });
  if (!started.ok()) return started;
  return poller;
}

RingPoller::~RingPoller() {
  stopping_.store(true, std::memory_order_release);
  inbox_->poll().Wake();
  thread_.Join();
  inbox_->Close();
}

void RingPoller::Add(std::shared_ptr<RingPair> pair) {
  size_.fetch_add(1, std::memory_order_acq_rel);
  pair->JoinPoller(inbox_);
  inbox_->Put(RingInbox::News::kAdded, std::move(pair));
}

void RingPoller::Run() {
  ring::Clock::time_point idle_since = ring::Clock::now();
  bool slept = true;
  while (!stopping_.load(std::memory_order_acquire)) {
    if (AnyRequest() || SpinForRequest()) {
      spin_.Learn(slept ? ring::Spin::End::kAfterSleep : ring::Spin::End::kWhileSpinning,
                  ring::Clock::now() - idle_since);
      const ring::Clock::time_point round_end = ring::Clock::now() + kLookAround;
      do {
        ServeAwake();
      } while (AnyRequest() && ring::Clock::now() < round_end);
      TakeEvents(absl::ZeroDuration());
      idle_since = ring::Clock::now();
      slept = false;
      continue;
    }
    PutToSleep();
    if (!awake_.empty()) continue;
    // The spin can have taken the destructor's wake.
    if (stopping_.load(std::memory_order_acquire)) return;
    slept = true;
    TakeEvents(absl::InfiniteDuration());
  }
}

bool RingPoller::AnyRequest() const {
  return std::any_of(awake_.begin(), awake_.end(),
                     [](const RingPair* pair) { return pair->HasRequest(); });
}

// A pair that has ended comes back as an event of its socket.
void RingPoller::ServeAwake() {
  const auto stays = [](RingPair* pair) {
    return !pair->HasRequest() || pair->Serve() == RingPair::Served::kAnswered;
  };
  size_t kept = 0;
  for (RingPair* const pair : awake_) {
    if (stays(pair)) awake_[kept++] = pair;
  }
  awake_.resize(kept);
}

bool RingPoller::SpinForRequest() {
  const ring::Clock::time_point end = ring::Clock::now() + spin_.budget();
  const auto any = [this] { return AnyRequest(); };
  while (true) {
    const ring::Clock::duration left = end - ring::Clock::now();
    if (ring::SpinUntil(any, std::min(left, kLookAround))) return true;
    if (left <= kLookAround || awake_.empty()) return false;
    TakeEvents(absl::ZeroDuration());
  }
}

void RingPoller::PutToSleep() {
  awake_.erase(std::remove_if(awake_.begin(), awake_.end(),
                              [](RingPair* pair) { return pair->BeginWait(); }),
               awake_.end());
}

void RingPoller::TakeEvents(absl::Duration timeout) {
  const EventPoll::Ready ready = inbox_->poll().Wait(timeout);
  for (void* const pair : ready.sources) OnWake(static_cast<RingPair*>(pair));
  if (ready.is_woken) TakeInbox();
}

void RingPoller::TakeInbox() {
  for (RingInbox::Item& item : inbox_->TakeAll()) {
    if (item.news == RingInbox::News::kAdded) {
      OnAdded(std::move(item.pair));
    } else if (pairs_.contains(item.pair.get())) {
      Awaken(item.pair.get());
    }
  }
}

void RingPoller::OnAdded(std::shared_ptr<RingPair> pair) {
  RingPair* const key = pair.get();
  if (!inbox_->poll().Add(pair->wake_socket(), EPOLLIN | EPOLLRDHUP, key)) {
    pair->End(absl::ResourceExhaustedError("the daemon cannot watch another pair of rings"));
    size_.fetch_sub(1, std::memory_order_acq_rel);
    return;
  }
  pairs_.emplace(key, std::move(pair));
  Awaken(key);
}

void RingPoller::OnWake(RingPair* pair) {
  switch (ring::TakeWakes(pair->wake_socket())) {
    case ring::Taken::kNothing:
      return;
    case ring::Taken::kWakes:
      return Awaken(pair);
    case ring::Taken::kClosed:
      pair->OnClientGone();
      return Forget(pair);
  }
}

// The client can send wakes at any time, also needless ones. A pair whose batch runs comes back
// through the inbox.
void RingPoller::Awaken(RingPair* pair) {
  if (pair->running() || std::find(awake_.begin(), awake_.end(), pair) != awake_.end()) return;
  pair->EndWait();
  awake_.push_back(pair);
}

void RingPoller::Forget(RingPair* pair) {
  inbox_->poll().Remove(pair->wake_socket());
  awake_.erase(std::remove(awake_.begin(), awake_.end(), pair), awake_.end());
  pairs_.erase(pair);
  size_.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace pagoda::server
