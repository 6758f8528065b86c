#include "manager/restart/kept_table.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/byte_codec.h"
#include "manager/restart/slot_checksum.h"

namespace pagoda {
namespace {

constexpr uint64_t kTableMagic = 0x4c'42'54'54'50'45'4b'50;  // "PKEPTTBL" in memory.
constexpr uint32_t kTableFormat = 1;
constexpr size_t kTableRestAt = 16;
constexpr size_t kTableHeadBytes = 8 + 8 + 4 + 4 + 8 + 32;
constexpr size_t kTableCopyBytes = 64 * 1024;
static_assert(kTableHeadBytes + KeptTable::kMaxBytes == kTableCopyBytes);

struct TableCopy {
  bool empty = false;  // It was never written.
  bool whole = false;
  uint32_t format = 0;
  uint64_t number = 0;
  ContentDigest fingerprint;
  absl::Span<const std::byte> table;
};

TableCopy ReadCopy(absl::Span<const std::byte> bytes) {
  TableCopy copy;
  copy.empty = std::all_of(bytes.begin(), bytes.begin() + kTableHeadBytes,
                           [](std::byte byte) { return byte == std::byte{0}; });
  ByteReader in(bytes);
  const auto magic = in.Get<uint64_t>();
  const auto checksum = in.Get<uint64_t>();
  copy.format = in.Get<uint32_t>();
  const auto size = in.Get<uint32_t>();
  copy.number = in.Get<uint64_t>();
  in.GetBytes(copy.fingerprint.bytes.data(), copy.fingerprint.bytes.size());
  if (magic != kTableMagic || size > KeptTable::kMaxBytes) return copy;
  copy.table = bytes.subspan(kTableHeadBytes, size);
  copy.whole =
      checksum == Checksum(bytes.subspan(kTableRestAt, kTableHeadBytes - kTableRestAt + size));
  return copy;
}

std::array<TableCopy, 2> ReadCopies(absl::Span<const std::byte> bytes) {
  return {ReadCopy(bytes.first(kTableCopyBytes)), ReadCopy(bytes.subspan(kTableCopyBytes))};
}

// The whole copy that was written last. 2: none is whole.
size_t Newest(const std::array<TableCopy, 2>& copies) {
  const bool first = copies[0].whole, second = copies[1].whole;
  if (first && second) return copies[1].number > copies[0].number ? 1 : 0;
  return first ? 0 : second ? 1 : 2;
}

}  // namespace

absl::StatusOr<KeptTable> KeptTable::Create(std::string shm_name,
                                            const ContentDigest& fingerprint) {
  absl::StatusOr<SharedMemory> memory =
      SharedMemory::CreateOrAdopt(std::move(shm_name), 2 * kTableCopyBytes);
  if (!memory.ok()) return memory.status();
  return KeptTable(*std::move(memory), fingerprint);
}

absl::StatusOr<std::optional<std::vector<std::byte>>> KeptTable::Read() const {
  const std::array<TableCopy, 2> copies = ReadCopies(memory_.bytes());
  const size_t newest = Newest(copies);
  if (newest == copies.size()) {
    if (copies[0].empty && copies[1].empty) return std::optional<std::vector<std::byte>>();
    return absl::DataLossError("the table that was left is damaged");
  }
  const TableCopy& copy = copies[newest];
  if (copy.format != kTableFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat("the table that was left has format ", copy.format, ", not ", kTableFormat));
  }
  if (copy.fingerprint != fingerprint_) {
    return absl::FailedPreconditionError(
        "the table that was left is of another cache, model or layout");
  }
  return std::optional(std::vector<std::byte>(copy.table.begin(), copy.table.end()));
}

// A half-written copy has a wrong checksum, whichever part of it was written.
bool KeptTable::Write(absl::Span<const std::byte> table) {
  if (table.size() > kMaxBytes) return false;
  const std::array<TableCopy, 2> copies = ReadCopies(memory_.bytes());
  const size_t newest = Newest(copies);
  std::vector<std::byte> rest;
  rest.reserve(kTableCopyBytes);
  ByteWriter out(&rest);
  out.Put(kTableFormat);
  out.Put(static_cast<uint32_t>(table.size()));
  out.Put(newest == copies.size() ? uint64_t{1} : copies[newest].number + 1);
  out.PutBytes(fingerprint_.bytes.data(), fingerprint_.bytes.size());
  out.PutBytes(table.data(), table.size());
  const uint64_t checksum = Checksum(rest);
  std::byte* const at = memory_.bytes().data() + (newest == 0 ? kTableCopyBytes : 0);
  std::memcpy(at, &kTableMagic, sizeof(kTableMagic));
  std::memcpy(at + sizeof(kTableMagic), &checksum, sizeof(checksum));
  std::memcpy(at + kTableRestAt, rest.data(), rest.size());
  return true;
}

}  // namespace pagoda
