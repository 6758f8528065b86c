#ifndef PAGODA_MANAGER_WORDS_IDS_H_
#define PAGODA_MANAGER_WORDS_IDS_H_

#include <compare>
#include <cstdint>
#include <utility>

#include "base/strong_id.h"
#include "events/pin_id.h"
#include "events/tenant_id.h"

namespace pagoda {

// Chosen by the client, unique in its session.
using SequenceId = StrongId<struct SequenceIdTag, uint64_t>;
// Counted up by the manager; never reused in an epoch.
using SessionId = StrongId<struct SessionIdTag, uint64_t>;
// The part of the id that differs among the sessions of one manager. A manager opens fewer than
// 2^32 sessions, after ManagerOptions::last_session, which is a multiple of 2^32. Never 0.
constexpr uint32_t LowBits(SessionId session) { return static_cast<uint32_t>(session.value()); }

// Proves that a request comes from a session: 128 random bits, drawn when the session opens.
class SessionToken {
 public:
  constexpr SessionToken() = default;
  constexpr explicit SessionToken(uint64_t low, uint64_t high = 0) : low_(low), high_(high) {}

  constexpr uint64_t low() const { return low_; }
  constexpr uint64_t high() const { return high_; }

  // Takes the same time wherever two tokens differ, so that a token cannot be guessed bit by bit.
  friend constexpr bool operator==(SessionToken a, SessionToken b) {
    return ((a.low_ ^ b.low_) | (a.high_ ^ b.high_)) == 0;
  }
  template <class H>
  friend H AbslHashValue(H h, SessionToken token) {
    return H::combine(std::move(h), token.low_, token.high_);
  }

 private:
  uint64_t low_ = 0;
  uint64_t high_ = 0;
};

// Names a sequence of any session.
struct SequenceKey {
  SessionId session;
  SequenceId sequence;
  friend auto operator<=>(const SequenceKey&, const SequenceKey&) = default;
  template <class H>
  friend H AbslHashValue(H h, const SequenceKey& key) {
    return H::combine(std::move(h), key.session, key.sequence);
  }
};

struct SessionRef {
  SessionId id;
  SessionToken token;
  friend bool operator==(const SessionRef&, const SessionRef&) = default;
  // Some order, for containers.
  friend bool operator<(const SessionRef& a, const SessionRef& b) {
    if (a.id != b.id) return a.id < b.id;
    if (a.token.high() != b.token.high()) return a.token.high() < b.token.high();
    return a.token.low() < b.token.low();
  }
  template <class H>
  friend H AbslHashValue(H h, const SessionRef& session) {
    return H::combine(std::move(h), session.id, session.token);
  }
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_IDS_H_
