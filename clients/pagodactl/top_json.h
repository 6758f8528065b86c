#ifndef PAGODA_CLIENTS_PAGODACTL_TOP_JSON_H_
#define PAGODA_CLIENTS_PAGODACTL_TOP_JSON_H_

#include "clients/pagodactl/top_state.h"
#include "nlohmann/json.hpp"

namespace pagoda {

// What `top` shows, as one object for programs; just endpoint and error where the daemon does not
// answer. "stream" is what the event stream tells, exactly as of its "revision": reusable blocks,
// and what is counted from "snapshot_revision" on ("..._total"). Where its "state" is not "live"
// there are no such figures. Rates are null where there are none.
nlohmann::ordered_json TopJson(const TopState& state);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TOP_JSON_H_
