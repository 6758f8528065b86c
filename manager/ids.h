#ifndef PAGODA_MANAGER_IDS_H_
#define PAGODA_MANAGER_IDS_H_

#include <cstdint>

#include "events/pin_id.h"
#include "events/tenant_id.h"
#include "pools/strong_id.h"

namespace pagoda {

// Chosen by the client, unique in its session.
using SequenceId = StrongId<struct SequenceIdTag, uint64_t>;
// Counted up by the manager; never reused in an epoch.
using SessionId = StrongId<struct SessionIdTag, uint64_t>;
// Drawn when a session opens: the proof that a request speaks for it.
using SessionToken = StrongId<struct SessionTokenTag, uint64_t>;

struct SessionRef {
  SessionId id;
  SessionToken token;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_IDS_H_
