#ifndef PAGODA_SERVER_WATCH_SUBSCRIBER_ROW_H_
#define PAGODA_SERVER_WATCH_SUBSCRIBER_ROW_H_

#include <cstdint>

#include "absl/time/time.h"
#include "events/event.h"
#include "server/callers/identity.h"

namespace pagoda::server {

// Who follows the events, as operators see it.
struct SubscriberRow {
  enum class Kind : uint8_t {
    kWatch,  // A Watch stream.
    kSmg,    // A SubscribeKvEvents stream.
    kZmq,    // All of ZMQ's subscribers together: ZMQ does not say who they are.
  };

  Kind kind = Kind::kWatch;
  Identity caller;
  absl::Time opened;
  Revision sent;          // Every event up to this one was given to gRPC, or is not the caller's.
  bool snapshot = false;  // It is being sent one.
  bool filtered = false;  // It does not see every event.
  bool writing = false;   // gRPC has not taken the last message yet.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_SUBSCRIBER_ROW_H_
