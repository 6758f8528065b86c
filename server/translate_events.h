// Events of the log as the wire's messages, field for field.
#ifndef PAGODA_SERVER_TRANSLATE_EVENTS_H_
#define PAGODA_SERVER_TRANSLATE_EVENTS_H_

#include "events/event.h"
#include "pagoda/v1/events.pb.h"

namespace pagoda::server {

v1::RemovalReason RemovalReasonToProto(RemovalReason reason);
v1::RemovalScope RemovalScopeToProto(RemovedEvent::Scope scope);
v1::PinEnd PinEndToProto(PinEnd end);

void EventToProto(const Event& event, v1::Event* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_TRANSLATE_EVENTS_H_
