#include "server/ring/ring_poller.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace pagoda::server {
namespace {

// While batches follow each other, or while the thread spins, it looks this often for wakes of
// other pairs.
constexpr ring::Clock::duration kLookAround = std::chrono::microseconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<RingPoller>> RingPoller::Start() {
  FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  auto inbox = std::make_shared<RingInbox>();
  epoll_event event = {.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (!epoll.valid() || !inbox->valid() ||
      epoll_ctl(epoll.get(), EPOLL_CTL_ADD, inbox->event(), &event) != 0) {
    return absl::ResourceExhaustedError("this process has reached its limit of open files");
  }
  auto poller = absl::WrapUnique(new RingPoller(std::move(epoll), std::move(inbox)));
  absl::Status started = poller->thread_.Start(kThreadName, [self = poller.get()] { self->Run(); });
  if (!started.ok()) return started;
  return poller;
}

RingPoller::RingPoller(FileDescriptor epoll, std::shared_ptr<RingInbox> inbox)
    : epoll_(std::move(epoll)), inbox_(std::move(inbox)) {}

RingPoller::~RingPoller() {
  stopping_.store(true, std::memory_order_release);
  inbox_->Poke();
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
      TakeEvents(0);
      idle_since = ring::Clock::now();
      slept = false;
      continue;
    }
    PutToSleep();
    if (!awake_.empty()) continue;
    // The spin can have taken the destructor's wake.
    if (stopping_.load(std::memory_order_acquire)) return;
    slept = true;
    TakeEvents(-1);
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
    TakeEvents(0);
  }
}

void RingPoller::PutToSleep() {
  awake_.erase(std::remove_if(awake_.begin(), awake_.end(),
                              [](RingPair* pair) { return pair->BeginWait(); }),
               awake_.end());
}

void RingPoller::TakeEvents(int timeout_ms) {
  std::array<epoll_event, 32> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  bool inbox = false;
  for (int i = 0; i < count; ++i) {
    auto* const pair = static_cast<RingPair*>(events[i].data.ptr);
    if (pair == nullptr) {
      inbox = true;
    } else {
      OnWake(pair);
    }
  }
  if (inbox) TakeInbox();
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
  epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data = {.ptr = key}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, pair->wake_socket(), &event) != 0) {
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
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pair->wake_socket(), nullptr);
  awake_.erase(std::remove(awake_.begin(), awake_.end(), pair), awake_.end());
  pairs_.erase(pair);
  size_.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace pagoda::server
