// A small table that outlives the daemon in shared memory, and is written again and again.
//
// The memory has two copies at fixed places, and a write replaces the older one. So a process that
// dies during a write leaves the copy before it. Integers are little-endian.
//
//   copy  u64 magic, u64 checksum of the rest, u32 format, u32 size of the table, u64 number of the
//         write, 32 bytes of fingerprint, the table
//
// Checksums are XXH3_64.
#ifndef PAGODA_MANAGER_RESTART_KEPT_TABLE_H_
#define PAGODA_MANAGER_RESTART_KEPT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/restart/content_digest.h"
#include "pools/memory/shared_memory.h"

namespace pagoda {

// The memory belongs to one process at a time; no client maps it. Thread-compatible. Movable.
class KeptTable {
 public:
  static constexpr size_t kMaxBytes = 64 * 1024 - 64;

  // Takes over the memory of that name that a dead daemon left, or makes it. Memory that was taken
  // over stays when this object ends; new memory is removed then, unless KeepName was called.
  // Errors: those of SharedMemory::CreateOrAdopt.
  static absl::StatusOr<KeptTable> Create(std::string shm_name, const ContentDigest& fingerprint);

  // The table of the last write that ended; none if there was no write. Errors: DataLoss (no copy
  // is whole), FailedPrecondition (the last write had another fingerprint or another format).
  absl::StatusOr<std::optional<std::vector<std::byte>>> Read() const;
  // False, and nothing changes, if it has more than kMaxBytes.
  bool Write(absl::Span<const std::byte> table);

  // The memory stays when this object ends.
  void KeepName() { memory_.KeepName(); }
  // All of the memory. For tests that damage it.
  absl::Span<std::byte> bytes() const { return memory_.bytes(); }

 private:
  KeptTable(SharedMemory memory, const ContentDigest& fingerprint)
      : memory_(std::move(memory)), fingerprint_(fingerprint) {}

  SharedMemory memory_;
  ContentDigest fingerprint_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RESTART_KEPT_TABLE_H_
