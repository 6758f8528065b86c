#ifndef PAGODA_WIRE_RING_RING_READER_H_
#define PAGODA_WIRE_RING_RING_READER_H_

#include <cstdint>
#include <string>

#include "wire/ring/ring_layout.h"

namespace pagoda::ring {

// Reads one ring. The writer is another process that can write anything into the memory at any
// time. Thread-compatible.
//
// Invariants:
//   1. No value in the memory makes an access outside the ring, or a loop that does not end.
//   2. A message is copied out before anything reads its bytes.
//   3. The reader's own position is kept outside the memory, so the writer cannot move it.
class Reader {
 public:
  // `positions` and the `bytes` at `data` are the ring. They outlive this object.
  Reader(Positions* positions, const char* data, uint32_t bytes)
      : positions_(positions), data_(data), bytes_(bytes) {}

  // Whether the writer has written something. Cheap.
  bool HasMessage() const {
    return positions_->written.load(std::memory_order_acquire) != position_;
  }

  // The length of the next message as the writer gives it now: it can be any number, and Read can
  // find another one. REQUIRES: HasMessage.
  uint32_t NextBytes() const;

  enum class Outcome {
    kMessage,
    kEmpty,
    kCorrupt,  // The writer has written a position or a length that no message has.
  };
  // Takes the next message. The bytes are unspecified unless the outcome is kMessage.
  Outcome Read(Kind* kind, std::string* message);

  // The reader is about to sleep: the writer will wake it. False if there is a message; then the
  // reader does not wait.
  bool BeginWait();
  void EndWait() { positions_->waiting.store(0, std::memory_order_relaxed); }

 private:
  // Copies bytes from a position, and continues at the ring's beginning.
  void CopyOut(uint64_t position, char* out, uint32_t bytes) const;

  Positions* const positions_;
  const char* const data_;
  const uint32_t bytes_;
  uint64_t position_ = 0;
};

}  // namespace pagoda::ring

#endif  // PAGODA_WIRE_RING_RING_READER_H_
