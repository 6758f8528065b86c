// The memory of a pair of rings through which a client on the daemon's machine sends batches and
// gets answers (RingOptions in proto/pagoda/v1/mapping.proto).
//
// The files of this folder use only the C++ standard library and Linux, so that clients in other
// languages can compile them without the project's other libraries.
#ifndef PAGODA_WIRE_RING_RING_LAYOUT_H_
#define PAGODA_WIRE_RING_RING_LAYOUT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pagoda::ring {

// RingPair.version. A change of anything in this file needs another number.
inline constexpr uint32_t kVersion = 2;

// The bytes of one ring: a power of two in these bounds.
inline constexpr uint32_t kMinBytes = 4096;
inline constexpr uint32_t kDefaultBytes = 256 << 10;
inline constexpr uint32_t kMaxBytes = 4 << 20;

constexpr bool IsRingSize(uint64_t bytes) {
  return bytes >= kMinBytes && bytes <= kMaxBytes && (bytes & (bytes - 1)) == 0;
}

inline constexpr size_t kCacheLine = 64;

// What the two sides of one ring share. Positions count bytes since the start and never decrease;
// the byte at position p is at index p modulo the ring's size. Each position is a multiple of
// kAlignment.
//
// A side writes only its own cache line. It must not trust the other side's line: it loads each
// value once, and checks it.
struct Positions {
  // Written by the writer: every message before this position is complete.
  alignas(kCacheLine) std::atomic<uint64_t> written;
  // Written by the reader: the bytes before this position can be overwritten.
  alignas(kCacheLine) std::atomic<uint64_t> read;
  // 1 while the reader sleeps or is about to: the writer of a message then wakes it through the
  // pair's socket. The reader sets it, and checks for a message once more before it sleeps.
  std::atomic<uint32_t> waiting;
};

// In front of each message. Then its bytes follow, and padding up to the next multiple of
// kAlignment. A header never crosses the ring's end, but a message can.
struct MessageHeader {
  uint32_t bytes;  // The message's bytes, without the header and the padding.
  uint32_t kind;   // A Kind.
};
inline constexpr size_t kAlignment = 8;
static_assert(sizeof(MessageHeader) == kAlignment);

constexpr uint64_t PaddedBytes(uint64_t message_bytes) {
  return sizeof(MessageHeader) + (message_bytes + kAlignment - 1) / kAlignment * kAlignment;
}
// The longest message of a ring.
constexpr uint32_t MaxMessageBytes(uint32_t ring_bytes) {
  return ring_bytes - sizeof(MessageHeader);
}

enum class Kind : uint32_t {
  kRequest = 1,  // A serialized SessionRequest.
  kAnswer = 2,   // A serialized SessionResponse.
  // Without bytes: the batch ran, but its answer is longer than the ring. The client sends the same
  // batch with the same retry_id over gRPC.
  kAnswerTooLarge = 3,
  // A serialized google.rpc.Status: the daemon refused the batch as a whole. The pair stays open.
  kRefusal = 4,
};

// Why the daemon has ended the pair. The daemon writes it once.
inline constexpr size_t kMaxReasonBytes = 2048;
struct Ending {
  // 0: the pair is open. Otherwise 1 + the bytes of the reason.
  alignas(kCacheLine) std::atomic<uint32_t> state;
  // A serialized google.rpc.Status. Empty if it would be too long.
  std::array<char, kMaxReasonBytes> reason;
};

// The beginning of the memory. The ring of requests follows at kControlBytes, then the ring of
// answers. The memory is a memfd with the seals F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL: neither
// side can cut it off under the other.
struct Control {
  uint32_t version;  // Written once, before the client gets the memory. Like the next one, it
  uint32_t bytes;    // repeats what RingPair says.
  Positions requests;
  Positions answers;
  Ending ending;
};
inline constexpr size_t kControlBytes = 4096;
static_assert(sizeof(Control) <= kControlBytes);
static_assert(offsetof(Control, requests) == 64);
static_assert(offsetof(Control, answers) == 192);
static_assert(offsetof(Control, ending) == 320);
static_assert(offsetof(Positions, waiting) == 72);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

constexpr size_t MemoryBytes(uint32_t ring_bytes) { return kControlBytes + 2 * size_t{ring_bytes}; }

}  // namespace pagoda::ring

#endif  // PAGODA_WIRE_RING_RING_LAYOUT_H_
