#ifndef PAGODA_SERVER_MESSAGE_MEMORY_H_
#define PAGODA_SERVER_MESSAGE_MEMORY_H_

#include <cstddef>
#include <memory>
#include <optional>

#include "google/protobuf/arena.h"

namespace pagoda::server {

// Where the messages of a stream live, one batch's after the other's. A message of hundreds of
// operations is thousands of small objects: from here they cost no allocation each, and none at all
// once the memory of an earlier batch holds them. Keeps at most kMostKeptBytes between batches, and
// nothing before the first one. Not thread-safe, but any thread may be the one.
class MessageMemory {
 public:
  static constexpr size_t kMostKeptBytes = size_t{128} << 10;

  MessageMemory() { Reset(); }
  MessageMemory(const MessageMemory&) = delete;
  MessageMemory& operator=(const MessageMemory&) = delete;

  // Destroys all messages.
  void Reset();
  // An empty message, which lives until Reset.
  template <class Message>
  Message* New() {
    return google::protobuf::Arena::CreateMessage<Message>(&*arena_);
  }

 private:
  size_t block_bytes_ = 0;
  std::unique_ptr<char[]> block_;                 // What is kept.
  std::optional<google::protobuf::Arena> arena_;  // In the block, and beyond it where that is full.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_MESSAGE_MEMORY_H_
