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
    case RemovalReason::kReleased:
      return "released";
    case RemovalReason::kLost:
      return "lost";
  }
  return "unknown";
}

std::string_view PinEndName(PinEnd end) {
  switch (end) {
    case PinEnd::kUnpinned:
      return "unpinned";
    case PinEnd::kExpired:
      return "expired";
    case PinEnd::kPrefixLeft:
      return "prefix left";
  }
  return "unknown";
}

}  // namespace pagoda
