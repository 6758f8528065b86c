#ifndef PAGODA_WIRE_RING_RING_WRITER_H_
#define PAGODA_WIRE_RING_RING_WRITER_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "wire/ring/ring_layout.h"

namespace pagoda::ring {

// Writes one ring. The reader is another process that can write anything into the memory at any
// time. Thread-compatible.
class Writer {
 public:
  // `positions` and the `bytes` at `data` are the ring. They outlive this object.
  Writer(Positions* positions, char* data, uint32_t bytes)
      : positions_(positions), data_(data), bytes_(bytes) {}

  enum class Outcome {
    kWritten,
    kTooLarge,  // No ring of this size can hold the message.
    kNoRoom,    // The reader must take earlier messages first.
    kCorrupt,   // The reader has written a position that no reader has.
  };
  // Writes a message. Never waits.
  Outcome Write(Kind kind, std::string_view message) { return Write(kind, {&message, 1}); }
  // The same for a message in pieces, one behind the other.
  Outcome Write(Kind kind, std::span<const std::string_view> pieces);

  // After each written message: whether the caller must wake the reader.
  bool ReaderWaits() const;

 private:
  void CopyIn(uint64_t position, std::string_view bytes);

  Positions* const positions_;
  char* const data_;
  const uint32_t bytes_;
  uint64_t position_ = 0;
};

}  // namespace pagoda::ring

#endif  // PAGODA_WIRE_RING_RING_WRITER_H_
