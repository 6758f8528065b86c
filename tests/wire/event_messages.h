// Events of the log as the wire's messages, built field by field: the model that the encoder of
// wire/event_bytes.h is compared with.
#ifndef PAGODA_TESTS_WIRE_EVENT_MESSAGES_H_
#define PAGODA_TESTS_WIRE_EVENT_MESSAGES_H_

#include "events/event.h"
#include "pagoda/v1/events.pb.h"

namespace pagoda {

// An id of kNoBlock is left out. `out` is empty.
void EventToProto(const Event& event, v1::Event* out);

// What a reader of the encoder's bytes sees.
v1::Event DecodedEvent(const Event& event);

}  // namespace pagoda

#endif  // PAGODA_TESTS_WIRE_EVENT_MESSAGES_H_
