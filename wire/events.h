// Converts events of the log to the wire's messages, field by field.
#ifndef PAGODA_WIRE_EVENTS_H_
#define PAGODA_WIRE_EVENTS_H_

#include "events/event.h"
#include "pagoda/v1/events.pb.h"

namespace pagoda {

v1::RemovalReason RemovalReasonToProto(RemovalReason reason);
v1::RemovalScope RemovalScopeToProto(RemovedEvent::Scope scope);
v1::PinEnd PinEndToProto(PinEnd end);

// An id of kNoBlock is left out. `out` is empty.
void EventToProto(const Event& event, v1::Event* out);

}  // namespace pagoda

#endif  // PAGODA_WIRE_EVENTS_H_
