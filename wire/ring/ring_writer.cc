#include "wire/ring/ring_writer.h"

#include <algorithm>
#include <cstring>

namespace pagoda::ring {

Writer::Outcome Writer::Write(Kind kind, std::string_view message) {
  if (message.size() > MaxMessageBytes(bytes_)) return Outcome::kTooLarge;
  const uint64_t unread = position_ - positions_->read.load(std::memory_order_acquire);
  if (unread > bytes_) return Outcome::kCorrupt;
  if (PaddedBytes(message.size()) > bytes_ - unread) return Outcome::kNoRoom;
  const MessageHeader header = {.bytes = static_cast<uint32_t>(message.size()),
                                .kind = static_cast<uint32_t>(kind)};
  CopyIn(position_, reinterpret_cast<const char*>(&header), sizeof(header));
  CopyIn(position_ + sizeof(header), message.data(), header.bytes);
  position_ += PaddedBytes(message.size());
  positions_->written.store(position_, std::memory_order_seq_cst);  // See ReaderWaits.
  return Outcome::kWritten;
}

void Writer::CopyIn(uint64_t position, const char* from, uint32_t bytes) {
  if (bytes == 0) return;  // `from` can be null.
  const auto index = static_cast<uint32_t>(position & (bytes_ - 1));
  const uint32_t first = std::min(bytes, bytes_ - index);
  std::memcpy(data_ + index, from, first);
  std::memcpy(data_, from + first, bytes - first);
}

// The other half of Reader::BeginWait.
bool Writer::ReaderWaits() const {
  return positions_->waiting.load(std::memory_order_seq_cst) != 0;
}

}  // namespace pagoda::ring
