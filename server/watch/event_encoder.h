// Events as bytes of the wire, without the messages' objects in between.
#ifndef PAGODA_SERVER_WATCH_EVENT_ENCODER_H_
#define PAGODA_SERVER_WATCH_EVENT_ENCODER_H_

#include <string>

#include "events/event.h"

namespace pagoda::server {

// Appends `event` to `out` as one more of a v1::WatchResponse's events: what EventToProto makes of
// it, serialized. A message is its parts' bytes one after another, so `out` may hold the others
// already.
void AppendEncoded(const Event& event, std::string* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_EVENT_ENCODER_H_
