#include "wire/ring/ring_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace pagoda::ring {

Writer::Outcome Writer::Write(Kind kind, std::span<const std::string_view> pieces) {
  size_t size = 0;
  for (const std::string_view piece : pieces) size += piece.size();
  if (size > MaxMessageBytes(bytes_)) return Outcome::kTooLarge;
  const uint64_t unread = position_ - positions_->read.load(std::memory_order_acquire);
  if (unread > bytes_) return Outcome::kCorrupt;
  if (PaddedBytes(size) > bytes_ - unread) return Outcome::kNoRoom;
  const MessageHeader header = {.bytes = static_cast<uint32_t>(size),
                                .kind = static_cast<uint32_t>(kind)};
  CopyIn(position_, {reinterpret_cast<const char*>(&header), sizeof(header)});
  uint64_t at = position_ + sizeof(header);
  for (const std::string_view piece : pieces) {
    CopyIn(at, piece);
    at += piece.size();
  }
  position_ += PaddedBytes(size);
  positions_->written.store(position_, std::memory_order_seq_cst);  // See ReaderWaits.
  return Outcome::kWritten;
}

void Writer::CopyIn(uint64_t position, std::string_view bytes) {
  if (bytes.empty()) return;  // Its data can be null.
  const size_t index = position & (bytes_ - 1);
  const size_t first = std::min<size_t>(bytes.size(), bytes_ - index);
  std::memcpy(data_ + index, bytes.data(), first);
  std::memcpy(data_, bytes.data() + first, bytes.size() - first);
}

// The other half of Reader::BeginWait.
bool Writer::ReaderWaits() const {
  return positions_->waiting.load(std::memory_order_seq_cst) != 0;
}

}  // namespace pagoda::ring
