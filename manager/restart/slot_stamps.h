// The content of the slots of one window and tier, written down beside them in shared memory. From
// it another run of the daemon finds the cached blocks again.
//
// The memory: a page of header, then one stamp a slot at a fixed stride. Integers are
// little-endian.
//
//   header  u64 magic, u64 checksum of the rest, u32 format, u32 slots, u64 stride,
//           u32 tokens_per_block, the 32 bytes of Options::fingerprint, u64 Options::note
//   stamp   u64 control = version << 1 | valid, u64 checksum of the body with its size before it,
//           u32 size of the body, the body
//   body    u64 version, u32 slot, the digests of the content and of its parent, u64 checksum of
//           the slot's bytes, the content (content_codec.h)
//
// Checksums are XXH3_64. A stamp counts if it is valid, its checksum is right, and its body names
// its own version and slot.
#ifndef PAGODA_MANAGER_RESTART_SLOT_STAMPS_H_
#define PAGODA_MANAGER_RESTART_SLOT_STAMPS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/byte_codec.h"
#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/event.h"
#include "manager/restart/content_digest.h"
#include "pools/layout.h"
#include "pools/memory/shared_memory.h"
#include "pools/types.h"

namespace pagoda {

struct SlotStamp {
  ContentDigest digest;
  ContentDigest parent;                    // The namespace's digest for a first block.
  std::optional<NamespaceKey> name_space;  // Only for a first block.
  uint64_t bytes_checksum = 0;             // ChecksumSlot.
  Priority priority = kDefaultPriority;
  std::vector<TokenId> tokens;
  std::vector<TokenExtra> extras;  // Empty, or as long as tokens.
  bool keyed = false;              // The tokens are the words of a ClientKey.

  BlockKey key() const { return {tokens, extras, keyed}; }
  bool IsWhole(size_t tokens_per_block) const { return keyed || tokens.size() == tokens_per_block; }
  friend bool operator==(const SlotStamp&, const SlotStamp&) = default;
};

// "/pagoda-<instance>-w<window>-stamps", with the suffix "-<tier>" below the first tier.
std::string StampsName(const std::string& instance, WindowSize window, Tier tier);
// Stamps of a window and tier mean something only to a cache with the same fingerprint: its name,
// its model, and the layout of the window's pools.
ContentDigest StampsFingerprint(const CacheLayout& layout, uint32_t window_index, Tier tier);
// Writes which layers a pool has, and the shape of their elements, without the kind of content. For
// fingerprints that outlive the process: the bytes must not change.
void PutShape(const PoolLayout& pool, ByteWriter& out);

// Thread-safe, except that only one Write or Publish may run for a slot at a time. The object
// belongs to one process; no client maps it.
class SlotStamps {
 public:
  // How often a slot lost its content. A slot gets content at most once under each version.
  using Version = uint64_t;

  struct Options {
    std::string shm_name;
    ContentDigest fingerprint;
    uint32_t num_slots = 0;
    uint32_t tokens_per_block = 0;
    uint64_t note = 0;  // Not used here. Peek returns it.
  };

  // Takes over a dead owner's stamps if fingerprint and shape are the same. Otherwise no slot has a
  // stamp. Stamps that were taken over stay when this object ends, until RemoveLeftover. New ones
  // are removed, unless KeepName was called. Errors: those of SharedMemory::CreateOrAdopt.
  static absl::StatusOr<std::unique_ptr<SlotStamps>> Create(Options options);

  // What stamps of that name say about themselves, if there are any. Their owner can be alive or
  // dead.
  struct Peeked {
    ContentDigest fingerprint;
    uint32_t num_slots = 0;
    uint64_t note = 0;
  };
  static std::optional<Peeked> Peek(const std::string& shm_name);

  // The memory stays when this object ends.
  void KeepName() { memory_.KeepName(); }
  // Whether the stamps are those of an earlier owner; fresh_because() says why they are not.
  bool adopted() const { return fresh_because_.empty(); }
  const std::string& fresh_because() const { return fresh_because_; }
  uint32_t num_slots() const { return options_.num_slots; }
  uint32_t tokens_per_block() const { return options_.tokens_per_block; }

  // The slot has no content from here on, even if the process dies. Returns its new version. Costs
  // one load and one store. Calls for one slot must not overlap.
  Version Invalidate(SlotIndex slot);
  // Whether the slot still has this version, and its content is not published yet.
  bool IsOpen(SlotIndex slot, Version version) const;
  bool IsValid(SlotIndex slot) const;

  // Write a stamp, the body first. It counts only after Publish. WriteBody returns false if the
  // slot has another version by now, or if the stamp is too large (a salt of more than
  // kMaxCacheSaltBytes).
  bool WriteBody(SlotIndex slot, Version version, const SlotStamp& stamp);
  void WriteChecksum(SlotIndex slot);
  // The stamp counts from here on, unless the slot was invalidated meanwhile. Returns whether it
  // does.
  bool Publish(SlotIndex slot, Version version);

  // None if the slot has no stamp. Errors: DataLoss (a damaged stamp).
  absl::StatusOr<std::optional<SlotStamp>> Read(SlotIndex slot) const;

  // All of the memory. For tests that damage it.
  absl::Span<std::byte> bytes() const { return memory_.bytes(); }
  // The bytes of the stamps of a cache of this shape.
  static uint64_t SizeBytes(uint32_t num_slots, uint32_t tokens_per_block);

 private:
  SlotStamps(Options options, SharedMemory memory);

  // Why the memory's header differs from the one for these options; empty if it does not.
  std::string WhyForeign() const;
  void Format();
  absl::Span<std::byte> StampAt(SlotIndex slot) const;
  uint64_t& control(SlotIndex slot) const;

  const Options options_;
  const uint64_t stride_bytes_;
  SharedMemory memory_;
  std::string fresh_because_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RESTART_SLOT_STAMPS_H_
