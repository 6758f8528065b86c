#ifndef PAGODA_EVENTS_PIN_ID_H_
#define PAGODA_EVENTS_PIN_ID_H_

#include <cstdint>

#include "base/strong_id.h"

namespace pagoda {

// The manager counts pins up. An id is never reused in an epoch.
using PinId = StrongId<struct PinIdTag, uint64_t>;

}  // namespace pagoda

#endif  // PAGODA_EVENTS_PIN_ID_H_
