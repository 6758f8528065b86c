#include "wire/ring/ring_reader.h"

#include <algorithm>
#include <cstring>

namespace pagoda::ring {

Reader::Outcome Reader::Read(Kind* kind, std::string* message) {
  const uint64_t available = positions_->written.load(std::memory_order_acquire) - position_;
  if (available == 0) return Outcome::kEmpty;
  if (available > bytes_ || available % kAlignment != 0) return Outcome::kCorrupt;
  MessageHeader header;
  CopyOut(position_, reinterpret_cast<char*>(&header), sizeof(header));
  if (PaddedBytes(header.bytes) > available) return Outcome::kCorrupt;
  message->resize(header.bytes);
  CopyOut(position_ + sizeof(header), message->data(), header.bytes);
  *kind = static_cast<Kind>(header.kind);
  position_ += PaddedBytes(header.bytes);
  positions_->read.store(position_, std::memory_order_release);
  return Outcome::kMessage;
}

uint32_t Reader::NextBytes() const {
  MessageHeader header;
  CopyOut(position_, reinterpret_cast<char*>(&header), sizeof(header));
  return header.bytes;
}

void Reader::CopyOut(uint64_t position, char* out, uint32_t bytes) const {
  const auto index = static_cast<uint32_t>(position & (bytes_ - 1));
  const uint32_t first = std::min(bytes, bytes_ - index);
  std::memcpy(out, data_ + index, first);
  std::memcpy(out + first, data_, bytes - first);
}

// The store and the load are sequentially consistent. So are the writer's store of its position and
// its load of `waiting`, in ReaderWaits. So at least one side sees the other's store. (Fences would
// do, too, but the thread sanitizer does not know them.)
bool Reader::BeginWait() {
  positions_->waiting.store(1, std::memory_order_seq_cst);
  if (positions_->written.load(std::memory_order_seq_cst) == position_) return true;
  EndWait();
  return false;
}

}  // namespace pagoda::ring
