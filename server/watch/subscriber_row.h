#ifndef PAGODA_SERVER_WATCH_SUBSCRIBER_ROW_H_
#define PAGODA_SERVER_WATCH_SUBSCRIBER_ROW_H_

#include <cstdint>

#include "absl/time/time.h"
#include "events/event.h"
#include "server/callers/identity.h"

namespace pagoda::server {

// One subscriber of the events, as shown to operators.
struct SubscriberRow {
  enum class Kind : uint8_t {
    kWatch,  // A Watch stream.
    kSmg,    // A SubscribeKvEvents stream.
    kZmq,    // All ZMQ subscribers together: ZMQ does not identify them.
  };

  Kind kind = Kind::kWatch;
  Identity caller;
  absl::Time opened;
  Revision sent;          // Every visible event up to this one was given to gRPC.
  bool snapshot = false;  // A snapshot is being sent.
  bool filtered = false;  // Some events are not visible to it.
  bool writing = false;   // gRPC has not taken the last message yet.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_SUBSCRIBER_ROW_H_
