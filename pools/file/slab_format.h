// The format of a slab file: two superblocks, then slots of [header | payload]. Integers are
// little-endian. Offsets and sizes are multiples of 4 KiB.
//
//   superblock  u64 magic, u32 format, u32 zero, the 32 bytes of the identity, 16 random bytes of
//               the file, u64 slots, u64 payload bytes of a slot, u64 generation; zeros
//   header      u64 magic, u32 format, u32 bytes of the record, the 16 bytes of the file, u64 slot,
//               u64 generation, u64 bytes of the payload, XXH3-128 of the payload, the record;
//               zeros
//
// Both end, at byte 4080, with the XXH3-128 of the bytes before. A header of zeros is an empty
// slot. The checksums protect against accidents, not against an attacker.
#ifndef PAGODA_POOLS_FILE_SLAB_FORMAT_H_
#define PAGODA_POOLS_FILE_SLAB_FORMAT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace pagoda::slab {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint32_t kFormat = 1;
inline constexpr uint32_t kNumSuperblocks = 2;
inline constexpr size_t kMaxRecordBytes = 3072;

using Page = std::array<std::byte, kPageBytes>;
using Identity = std::array<std::byte, 32>;
using FileId = std::array<std::byte, 16>;
using Hash128 = std::array<std::byte, 16>;

struct Superblock {
  Identity identity = {};
  FileId file_id = {};
  uint64_t num_slots = 0;
  uint64_t payload_bytes = 0;
  uint64_t generation = 0;
  friend bool operator==(const Superblock&, const Superblock&) = default;
};

struct SlotHeader {
  FileId file_id = {};
  uint64_t slot = 0;
  uint64_t generation = 0;
  uint64_t payload_bytes = 0;
  Hash128 payload_hash = {};
  absl::Span<const std::byte> record;  // Points into the page that was parsed.
};

enum class Parsed : uint8_t {
  kOk,
  kEmpty,        // Zeros.
  kOtherFormat,  // Magic and checksum are right, but the format is unknown. Superblocks only.
  kDamaged,      // The magic is right, the checksum is wrong.
  kForeign,      // Any other content.
};

uint64_t RoundUpToPage(uint64_t bytes);
// The distance between two slots, and the size of the whole file.
uint64_t StrideBytes(uint64_t payload_bytes);
uint64_t FileBytes(uint64_t num_slots, uint64_t payload_bytes);
uint64_t SlotOffset(uint64_t slot, uint64_t payload_bytes);

void Format(const Superblock& superblock, Page& page);
Parsed Parse(const Page& page, Superblock& superblock);

// What a file's superblocks mean for an owner that wants `wanted`.
struct Opened {
  Superblock superblock;        // Valid if the file is not foreign.
  bool needs_repair = false;    // One superblock is torn, or older than the other.
  bool is_unfinished = false;   // The file's creation was interrupted, so it never had a block.
  std::string foreign_because;  // Why the owner cannot use the file; empty if it can.
};
Opened ChooseSuperblock(const Page (&pages)[kNumSuperblocks], const Superblock& wanted);

// REQUIRES: the record has at most kMaxRecordBytes.
void Format(const SlotHeader& header, Page& page);
Parsed Parse(const Page& page, SlotHeader& header);

// XXH3-128 of the concatenated pieces.
Hash128 HashOf(absl::Span<const absl::Span<const std::byte>> pieces);

}  // namespace pagoda::slab

#endif  // PAGODA_POOLS_FILE_SLAB_FORMAT_H_
