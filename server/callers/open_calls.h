// The number of open calls, and which calls have places of their own.
#ifndef PAGODA_SERVER_CALLERS_OPEN_CALLS_H_
#define PAGODA_SERVER_CALLERS_OPEN_CALLS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/callers/identity.h"

namespace pagoda::server {

// KeepAlive and the operators' own methods have places of their own. So sessions do not end, and
// operators see and end calls, when others have taken all places.
enum class CallKind : uint8_t { kOther, kKeepAlive, kOperators };

constexpr CallKind KindOf(const Method& method) {
  if (method.access == Access::kOperators) return CallKind::kOperators;
  return method.name == MethodNamed("/pagoda.v1.CacheService/KeepAlive").name ? CallKind::kKeepAlive
                                                                              : CallKind::kOther;
}

// Calls that have begun and were not answered. Thread-safe.
class OpenCalls {
 public:
  // The places that are kept for each kind but kOther. A call of the kind uses one if `max_calls`
  // are open.
  static constexpr uint64_t kKeptPlaces = 64;

  void Begin(CallKind kind) { Count(kind).fetch_add(1, std::memory_order_relaxed); }
  void End(CallKind kind) { Count(kind).fetch_sub(1, std::memory_order_relaxed); }

  uint64_t all() const {
    uint64_t sum = 0;
    for (const std::atomic<uint64_t>& count : counts_) sum += count.load(std::memory_order_relaxed);
    return sum;
  }

  // Whether a call of this kind, which has begun, has a place. Errors: TOO_MANY_CALLS.
  absl::Status CheckPlace(CallKind kind, uint64_t max_calls) const {
    if (all() <= max_calls) return absl::OkStatus();
    const uint64_t of_kind = counts_[static_cast<size_t>(kind)].load(std::memory_order_relaxed);
    if (kind != CallKind::kOther && of_kind <= kKeptPlaces) return absl::OkStatus();
    return MakeError(Reason::kTooManyCalls,
                     absl::StrCat("the limit of open calls and streams is ", max_calls));
  }

 private:
  std::atomic<uint64_t>& Count(CallKind kind) { return counts_[static_cast<size_t>(kind)]; }

  std::array<std::atomic<uint64_t>, 3> counts_ = {};  // By kind.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLERS_OPEN_CALLS_H_
