// What a ReuseSample learned, for the next run of the daemon.
#ifndef PAGODA_MANAGER_POLICY_REUSE_TABLE_H_
#define PAGODA_MANAGER_POLICY_REUSE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/policy/reuse_index.h"

namespace pagoda {

// Without the sampled contents: the next run finds new ones. It means the same in a cache of
// another size, because a re-use takes as many accesses there.
struct ReuseTable {
  uint32_t shift = 0;  // A step of its ages is 2^shift accesses.
  ReuseIndex::CountTable counts = {};
  // How the guard saw the index last; see ReuseSample.
  float lead = 0;
  float variance = 0;
  bool trusts_index = false;
};

// The format of an encoded table:
//
//   u32 format, u32 classes, u32 bins, u32 shift, then for each class and bin the counts reached
//   and reused, then lead, variance, u32 trusts_index
//
// Integers are little-endian, and counts are the 32 bits of a float.
std::vector<std::byte> Encode(const ReuseTable& table);
// Errors: INVALID_ARGUMENT (another format, other classes, or numbers that no table has).
absl::StatusOr<ReuseTable> DecodeReuseTable(absl::Span<const std::byte> bytes);

// The bytes of the tables, one after the other.
std::vector<std::byte> Encode(absl::Span<const ReuseTable> tables);
// At least one table. Errors: as DecodeReuseTable.
absl::StatusOr<std::vector<ReuseTable>> DecodeReuseTables(absl::Span<const std::byte> bytes);

// The same table with ages in steps of 2^shift accesses. A factor of two is three bins. What was
// seen in the first bin is spread evenly over the bins that it becomes, because nothing is known of
// the ages within a bin. Ages beyond the last bin go into it. REQUIRES: both shifts are below 64.
ReuseTable Rescaled(const ReuseTable& table, uint32_t shift);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_REUSE_TABLE_H_
