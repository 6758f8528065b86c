#include "pools/file/slab_format.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/counted.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pagoda::slab {
namespace {

static_assert(std::endian::native == std::endian::little, "integers are stored as they are");

constexpr uint64_t kSuperblockMagic = 0x42414c53474150ull;  // "PAGSLAB"
constexpr uint64_t kSlotMagic = 0x544f4c53474150ull;        // "PAGSLOT"
constexpr size_t kHashAt = kPageBytes - sizeof(Hash128);

struct RawSuperblock {
  uint64_t magic;
  uint32_t format;
  uint32_t zero;
  Identity identity;
  FileId file_id;
  uint64_t num_slots;
  uint64_t payload_bytes;
  uint64_t generation;
};
static_assert(sizeof(RawSuperblock) == 88);

struct RawHeader {
  uint64_t magic;
  uint32_t format;
  uint32_t record_bytes;
  FileId file_id;
  uint64_t slot;
  uint64_t generation;
  uint64_t payload_bytes;
  Hash128 payload_hash;
};
static_assert(sizeof(RawHeader) == 72);
static_assert(sizeof(RawHeader) + kMaxRecordBytes <= kHashAt);

Hash128 Canonical(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  return std::bit_cast<Hash128>(canonical.digest);
}

Hash128 HashOfPage(const Page& page) { return Canonical(XXH3_128bits(page.data(), kHashAt)); }

void Seal(Page& page) {
  const Hash128 hash = HashOfPage(page);
  std::memcpy(page.data() + kHashAt, hash.data(), hash.size());
}

template <class Raw>
Parsed Open(const Page& page, uint64_t magic, Raw& raw) {
  std::memcpy(&raw, page.data(), sizeof(raw));
  if (raw.magic != magic) {
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    return std::all_of(page.begin(), page.end(), is_zero) ? Parsed::kEmpty : Parsed::kForeign;
  }
  const Hash128 hash = HashOfPage(page);
  if (std::memcmp(page.data() + kHashAt, hash.data(), hash.size()) != 0) return Parsed::kDamaged;
  return raw.format == kFormat ? Parsed::kOk : Parsed::kOtherFormat;
}

}  // namespace

uint64_t RoundUpToPage(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

uint64_t StrideBytes(uint64_t payload_bytes) { return kPageBytes + RoundUpToPage(payload_bytes); }

uint64_t FileBytes(uint64_t num_slots, uint64_t payload_bytes) {
  return SlotOffset(num_slots, payload_bytes);
}

uint64_t SlotOffset(uint64_t slot, uint64_t payload_bytes) {
  return kNumSuperblocks * kPageBytes + slot * StrideBytes(payload_bytes);
}

void Format(const Superblock& superblock, Page& page) {
  page.fill(std::byte{0});
  const RawSuperblock raw = {.magic = kSuperblockMagic,
                             .format = kFormat,
                             .zero = 0,
                             .identity = superblock.identity,
                             .file_id = superblock.file_id,
                             .num_slots = superblock.num_slots,
                             .payload_bytes = superblock.payload_bytes,
                             .generation = superblock.generation};
  std::memcpy(page.data(), &raw, sizeof(raw));
  Seal(page);
}

Parsed Parse(const Page& page, Superblock& superblock) {
  RawSuperblock raw;
  const Parsed parsed = Open(page, kSuperblockMagic, raw);
  if (parsed != Parsed::kOk) return parsed;
  superblock = {.identity = raw.identity,
                .file_id = raw.file_id,
                .num_slots = raw.num_slots,
                .payload_bytes = raw.payload_bytes,
                .generation = raw.generation};
  return Parsed::kOk;
}

Opened ChooseSuperblock(const Page (&pages)[kNumSuperblocks], const Superblock& wanted) {
  Superblock superblocks[kNumSuperblocks];
  const Parsed first = Parse(pages[0], superblocks[0]);
  const Parsed second = Parse(pages[1], superblocks[1]);
  Opened opened;
  if (first != Parsed::kOk && second != Parsed::kOk) {
    // The second superblock is written when the first is durable. Zeros there thus mean that no
    // block was ever written.
    opened.is_unfinished =
        second == Parsed::kEmpty && (first == Parsed::kEmpty || first == Parsed::kDamaged);
    if (first == Parsed::kOtherFormat || second == Parsed::kOtherFormat) {
      opened.foreign_because = absl::StrCat("has another format than ", kFormat);
    } else if (first == Parsed::kDamaged || second == Parsed::kDamaged) {
      opened.foreign_because = "has two damaged superblocks";
    } else {
      opened.foreign_because = "is no slab file";
    }
    return opened;
  }
  const bool takes_first =
      second != Parsed::kOk ||
      (first == Parsed::kOk && superblocks[0].generation >= superblocks[1].generation);
  opened.superblock = superblocks[takes_first ? 0 : 1];
  opened.needs_repair = first != second || superblocks[0] != superblocks[1];
  if (opened.superblock.identity != wanted.identity) {
    opened.foreign_because = "holds the blocks of another identity";
  } else if (opened.superblock.num_slots != wanted.num_slots ||
             opened.superblock.payload_bytes != wanted.payload_bytes) {
    opened.foreign_because =
        absl::StrCat("has ", Counted(opened.superblock.num_slots, "slot"), " of ",
                     opened.superblock.payload_bytes, " bytes and not ", wanted.num_slots, " of ",
                     wanted.payload_bytes);
  }
  return opened;
}

void Format(const SlotHeader& header, Page& page) {
  PAGODA_CHECK(header.record.size() <= kMaxRecordBytes, "a record fits its header");
  page.fill(std::byte{0});
  const RawHeader raw = {.magic = kSlotMagic,
                         .format = kFormat,
                         .record_bytes = static_cast<uint32_t>(header.record.size()),
                         .file_id = header.file_id,
                         .slot = header.slot,
                         .generation = header.generation,
                         .payload_bytes = header.payload_bytes,
                         .payload_hash = header.payload_hash};
  std::memcpy(page.data(), &raw, sizeof(raw));
  std::copy(header.record.begin(), header.record.end(), page.begin() + sizeof(raw));
  Seal(page);
}

Parsed Parse(const Page& page, SlotHeader& header) {
  RawHeader raw;
  const Parsed parsed = Open(page, kSlotMagic, raw);
  if (parsed != Parsed::kOk) return parsed;
  if (raw.record_bytes > kMaxRecordBytes) return Parsed::kDamaged;
  header = {.file_id = raw.file_id,
            .slot = raw.slot,
            .generation = raw.generation,
            .payload_bytes = raw.payload_bytes,
            .payload_hash = raw.payload_hash,
            .record = absl::MakeConstSpan(page).subspan(sizeof(raw), raw.record_bytes)};
  return Parsed::kOk;
}

Hash128 HashOf(absl::Span<const absl::Span<const std::byte>> pieces) {
  if (pieces.size() == 1) return Canonical(XXH3_128bits(pieces[0].data(), pieces[0].size()));
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const absl::Span<const std::byte> piece : pieces) {
    XXH3_128bits_update(&state, piece.data(), piece.size());
  }
  return Canonical(XXH3_128bits_digest(&state));
}

}  // namespace pagoda::slab
