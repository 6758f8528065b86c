// Encodes events of the log as bytes of the wire, without building the messages' objects.
#ifndef PAGODA_WIRE_EVENT_BYTES_H_
#define PAGODA_WIRE_EVENT_BYTES_H_

#include <string>

#include "events/event.h"
#include "pagoda/v1/events.pb.h"

namespace pagoda {

v1::RemovalReason RemovalReasonToProto(RemovalReason reason);
v1::RemovalScope RemovalScopeToProto(RemovedEvent::Scope scope);
v1::PinEnd PinEndToProto(PinEnd end);

// Appends `event` to `out` as one element of a v1::WatchResponse's events. `out` can already hold
// other fields, because a message is the concatenation of its fields' bytes. An id of kNoBlock is
// left out.
void AppendEncoded(const Event& event, std::string* out);

}  // namespace pagoda

#endif  // PAGODA_WIRE_EVENT_BYTES_H_
