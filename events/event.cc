#include "events/event.h"

namespace pagoda {

std::string_view RemovalReasonName(RemovalReason reason) {
  switch (reason) {
    case RemovalReason::kEvicted:
      return "evicted";
    case RemovalReason::kDisplaced:
      return "displaced";
    case RemovalReason::kTakenOver:
      return "taken over";
    case RemovalReason::kTruncated:
      return "truncated";
    case RemovalReason::kInvalidated:
      return "invalidated";
    case RemovalReason::kCleared:
      return "cleared";
    case RemovalReason::kExpired:
      return "expired";
    case RemovalReason::kReleased:
      return "released";
  }
  return "unknown";
}

}  // namespace pagoda
