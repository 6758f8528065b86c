// Requests whose prompts are being fetched from other machines.
#ifndef PAGODA_ENGINE_ARRIVING_REQUESTS_H_
#define PAGODA_ENGINE_ARRIVING_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace pagoda {

// Keeps requests until their fetches end, then hands them on. A fetch can end on any thread, and
// after the end of this object: then nothing happens. Each request is handed on once, or returned
// by End. Thread-safe.
template <class Request>
class ArrivingRequests {
 public:
  using HandOn = std::function<void(Request request, uint32_t fetched_tokens)>;
  // Called once, on any thread, with the tokens that the fetch brought.
  using Done = std::function<void(uint32_t fetched_tokens)>;

  // `hand_on` runs on the thread that ends the fetch, under this object's lock.
  explicit ArrivingRequests(HandOn hand_on) : state_(std::make_shared<State>(std::move(hand_on))) {}
  ArrivingRequests(const ArrivingRequests&) = delete;
  ArrivingRequests& operator=(const ArrivingRequests&) = delete;
  ~ArrivingRequests() { End(); }

  // Takes the request, and calls `begin` to begin its fetch. After End the request is not handed
  // on: it is destroyed.
  void Add(Request request, const std::function<void(Done)>& begin) {
    uint64_t name = 0;
    {
      absl::MutexLock lock(&state_->mutex);
      name = ++state_->last_name;
      state_->requests.emplace(name, std::move(request));
    }
    begin([state = state_, name](uint32_t fetched_tokens) {
      absl::MutexLock lock(&state->mutex);
      auto node = state->requests.extract(name);
      if (!node.empty()) state->hand_on(std::move(node.mapped()), fetched_tokens);
    });
  }
  size_t size() const {
    absl::MutexLock lock(&state_->mutex);
    return state_->requests.size();
  }
  // Returns the requests that wait; they are not handed on.
  std::vector<Request> End() {
    absl::MutexLock lock(&state_->mutex);
    std::vector<Request> left;
    for (auto& [name, request] : state_->requests) left.push_back(std::move(request));
    state_->requests.clear();
    return left;
  }

 private:
  struct State {
    explicit State(HandOn hand) : hand_on(std::move(hand)) {}

    absl::Mutex mutex;
    const HandOn hand_on;  // Called only for a request in `requests`: not after End.
    uint64_t last_name ABSL_GUARDED_BY(mutex) = 0;
    std::map<uint64_t, Request> requests ABSL_GUARDED_BY(mutex);
  };

  const std::shared_ptr<State> state_;  // Also owned by the fetches under way.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_ARRIVING_REQUESTS_H_
