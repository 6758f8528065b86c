#ifndef PAGODA_CLIENTS_PAGODACTL_TOP_TOP_JSON_H_
#define PAGODA_CLIENTS_PAGODACTL_TOP_TOP_JSON_H_

#include "clients/pagodactl/top/top_state.h"
#include "nlohmann/json_fwd.hpp"

namespace pagoda {

// The content of `top` as one object for programs. "status" and "tenants" are the daemon's messages
// as JSON; the rest is computed here. If the daemon does not answer, the object has only endpoint
// and error. "stream" has the figures of the event stream, exactly as of its "revision":
// reusable blocks, and counters that start at "snapshot_revision" ("..._total"). If its "state" is
// not "live", these figures are absent. Unknown rates are null.
nlohmann::ordered_json TopJson(const TopState& state);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TOP_TOP_JSON_H_
