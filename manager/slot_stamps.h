// What the slots of one window and tier hold, written down beside them in shared memory, so that
// another run of the daemon finds the cached blocks again.
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
// Checksums are XXH3_64. A stamp counts where it is valid, its checksum is right, and its body
// names the version and the slot that it lies at.
#ifndef PAGODA_MANAGER_SLOT_STAMPS_H_
#define PAGODA_MANAGER_SLOT_STAMPS_H_

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
#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/event.h"
#include "manager/content_digest.h"
#include "pools/layout.h"
#include "pools/shared_memory.h"
#include "pools/types.h"

namespace pagoda {

struct SlotStamp {
  ContentDigest digest;
  ContentDigest parent;                    // Of the namespace, where it is the first.
  std::optional<NamespaceKey> name_space;  // Where it is the first.
  uint64_t bytes_checksum = 0;             // ChecksumSlot.
  Priority priority = kDefaultPriority;
  std::vector<TokenId> tokens;
  std::vector<TokenExtra> extras;  // Empty, or as long as tokens.
  bool keyed = false;              // The tokens are the words of a ClientKey.

  BlockKey key() const { return {tokens, extras, keyed}; }
  bool IsWhole(size_t tokens_per_block) const { return keyed || tokens.size() == tokens_per_block; }
  friend bool operator==(const SlotStamp&, const SlotStamp&) = default;
};

// "/pagoda-<instance>-w<window>-stamps", with "-secondary" after it for that tier.
std::string StampsName(const std::string& instance, WindowSize window, Tier tier);
// What must be the same for the stamps of a window and tier to mean anything: the cache's name,
// model, and the layout of the window's pools.
ContentDigest StampsFingerprint(const CacheLayout& layout, uint32_t window_index, Tier tier);

// Thread-safe, where of Write and Publish at most one runs for a slot at a time. The object is one
// process's; no client maps it.
class SlotStamps {
 public:
  // How often a slot lost its content; it may get new content under a version only once.
  using Version = uint64_t;

  struct Options {
    std::string shm_name;
    ContentDigest fingerprint;
    uint32_t num_slots = 0;
    uint32_t tokens_per_block = 0;
    uint64_t note = 0;  // Means nothing here: for whoever reads it back with Peek.
  };

  // Takes over a dead owner's stamps if they are of the same fingerprint and shape; else no slot
  // has one. What was there stays when this ends, until RemoveLeftover; what was made goes, unless
  // KeepName says otherwise.
  // Errors: those of SharedMemory::CreateOrAdopt.
  static absl::StatusOr<std::unique_ptr<SlotStamps>> Create(Options options);

  // What the stamps of a dead or living owner say of themselves, where there are any of that name.
  struct Peeked {
    ContentDigest fingerprint;
    uint32_t num_slots = 0;
    uint64_t note = 0;
  };
  static std::optional<Peeked> Peek(const std::string& shm_name);

  // The memory stays when this ends.
  void KeepName() { memory_.KeepName(); }
  // Whether the stamps are those of an earlier owner, and if not, why.
  bool adopted() const { return fresh_because_.empty(); }
  const std::string& fresh_because() const { return fresh_because_; }
  uint32_t num_slots() const { return options_.num_slots; }
  uint32_t tokens_per_block() const { return options_.tokens_per_block; }

  // The slot has no content any more, whenever the process dies from here on. Returns its new
  // version. One load and one store. Calls for one slot come one after another.
  Version Invalidate(SlotIndex slot);
  // Whether the slot's version is still this one, and what it has is not published.
  bool IsOpen(SlotIndex slot, Version version) const;
  bool IsValid(SlotIndex slot) const;

  // Write a stamp, body first, which counts for nothing before Publish. False where the slot has
  // another version by now, or where the stamp is larger than stamps are here (a salt of more than
  // kMaxCacheSaltBytes).
  bool WriteBody(SlotIndex slot, Version version, const SlotStamp& stamp);
  void WriteChecksum(SlotIndex slot);
  // The stamp counts from here on, unless the slot was invalidated meanwhile. Returns whether it
  // does.
  bool Publish(SlotIndex slot, Version version);

  // None where the slot has no stamp. Errors: DataLoss where it has one that is damaged.
  absl::StatusOr<std::optional<SlotStamp>> Read(SlotIndex slot) const;

  // All of the memory, for tests that damage it.
  absl::Span<std::byte> bytes() const { return memory_.bytes(); }
  // Bytes that the stamps of a cache of this shape take.
  static uint64_t SizeBytes(uint32_t num_slots, uint32_t tokens_per_block);

 private:
  SlotStamps(Options options, SharedMemory memory);

  // Why the memory's header is not the one that the options make; empty where it is.
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

#endif  // PAGODA_MANAGER_SLOT_STAMPS_H_
