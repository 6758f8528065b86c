#include "events/event.h"

namespace pagoda {
namespace {

template <class T>
size_t HeapBytes(const std::pmr::vector<T>& items) {
  return items.capacity() * sizeof(T);
}

size_t HeapBytes(const CreatedEvent& created) {
  return HeapBytes(created.blocks_per_tier) + HeapBytes(created.blocks);
}
size_t HeapBytes(const StoredEvent& stored) {
  return HeapBytes(stored.blocks) + HeapBytes(stored.tokens) + HeapBytes(stored.extras) +
         stored.name_space.bytes();
}
size_t HeapBytes(const UpdatedEvent&) { return 0; }
size_t HeapBytes(const RemovedEvent& removed) {
  return HeapBytes(removed.blocks) + HeapBytes(removed.hashes);
}

}  // namespace

size_t EventBytes(const Event& event) {
  return sizeof(Event) + std::visit([](const auto& what) { return HeapBytes(what); }, event.what);
}

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
