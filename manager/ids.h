#ifndef PAGODA_MANAGER_IDS_H_
#define PAGODA_MANAGER_IDS_H_

#include <compare>
#include <cstdint>
#include <utility>

#include "events/tenant_id.h"
#include "pools/strong_id.h"

namespace pagoda {

// Chosen by the client, unique in its session.
using SequenceId = StrongId<struct SequenceIdTag, uint64_t>;
// Counted up by the manager; never reused in an epoch.
using SessionId = StrongId<struct SessionIdTag, uint64_t>;
// Drawn when a session opens: the proof that a request speaks for it.
using SessionToken = StrongId<struct SessionTokenTag, uint64_t>;

// Counted up by the manager; never reused in an epoch.
using PinId = StrongId<struct PinIdTag, uint64_t>;

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
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_IDS_H_
