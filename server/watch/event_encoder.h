// Encodes events as protobuf bytes without building the messages' objects.
#ifndef PAGODA_SERVER_WATCH_EVENT_ENCODER_H_
#define PAGODA_SERVER_WATCH_EVENT_ENCODER_H_

#include <string>

#include "events/event.h"

namespace pagoda::server {

// Appends `event` to `out` as one element of a v1::WatchResponse's events: the serialized result of
// EventToProto. `out` can already hold other fields, because a message is the concatenation of its
// fields' bytes.
void AppendEncoded(const Event& event, std::string* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_EVENT_ENCODER_H_
