// How a block is written into a store: a header that says which block it is, then its bytes.
//
//   magic           8 bytes  "PAGODAKV"
//   version         u32      1
//   header bytes    u32      144
//   layout         32 bytes  as the key
//   digest         32 bytes  as the key
//   window size     u32      as the key
//   flags           u32      1: the authentication code is present; other bits are 0
//   block bytes     u64
//   checksum       16 bytes  XXH3-128 of the block's bytes, canonical
//   authentication 32 bytes  HMAC-SHA-256 of the 112 bytes above and the block's bytes; else zeros
//
// Integers are little-endian. The checksum finds accidents. It does not stop an attacker: who can
// write to the store can compute it. With a secret, nobody without it can make a value that is
// accepted, nor learn from its name what a value holds.
#ifndef PAGODA_POOLS_STORE_STORED_VALUE_H_
#define PAGODA_POOLS_STORE_STORED_VALUE_H_

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "pools/store/store.h"

namespace pagoda {

inline constexpr size_t kStoredHeaderBytes = 144;
using StoredHeader = std::array<std::byte, kStoredHeaderBytes>;

// The name under which a store keeps a block: "<prefix>v1:<32 hex digits of the
// layout>:<window>:<64 hex digits>". The last digits are of the digest, or with a secret those of
// an HMAC of the digest. The name has the version of the value, so daemons of two versions do not
// replace each other's values.
std::string StoredName(absl::string_view prefix, absl::string_view secret, const StoreKey& key);

// What a name says.
struct ParsedName {
  std::array<std::byte, 16> layout = {};  // The first half of the layout's digest.
  uint32_t window_size = 0;
  std::array<std::byte, 32> digest = {};  // The result of NameDigest.
  friend bool operator==(const ParsedName&, const ParsedName&) = default;
};
// Parses what StoredName returns; nullopt for any other text, also for another spelling of it.
std::optional<ParsedName> ParseStoredName(absl::string_view prefix, absl::string_view name);
// The digest in a block's name: the block's own, or with a secret an HMAC of it.
std::array<std::byte, 32> NameDigest(absl::string_view secret,
                                     const std::array<std::byte, 32>& digest);

// XXH3-128 of the bytes, canonical. It finds accidents, not attackers.
std::array<std::byte, 16> ChecksumOf(absl::Span<const std::byte> bytes);

// The header of a block. `secret` may be empty.
StoredHeader MakeStoredHeader(const StoreKey& key, absl::string_view secret,
                              absl::Span<const absl::Span<const std::byte>> pieces);

// Checks a value while it arrives. The caller reads bytes to the places that Places returns, and
// reports them by Advance. So each byte is hashed while it is in the processor's cache. Not
// thread-safe.
class StoredValueReader {
 public:
  // The pieces must outlive this object, or be dropped by Drop. `secret` may be empty; then a value
  // with an authentication code is accepted without checking the code.
  StoredValueReader(const StoreKey& key, absl::string_view secret,
                    absl::Span<const absl::Span<std::byte>> pieces);
  StoredValueReader(const StoredValueReader&) = delete;
  StoredValueReader& operator=(const StoredValueReader&) = delete;
  ~StoredValueReader();

  uint64_t block_bytes() const { return block_bytes_; }
  // A value with that many bytes comes. Call it before the first Places, and again if the value
  // comes anew.
  void Begin(uint64_t value_bytes);
  // Writes to `places` where the next bytes go, and returns how many entries it wrote. First that
  // is only the header: a block whose header does not fit is not written to the pieces. 0: the next
  // bytes are not needed, because all have arrived or the value has a fault.
  size_t Places(absl::Span<iovec> places);
  // The first `bytes` of Places are written.
  void Advance(size_t bytes);
  // The memory is the caller's again. Places returns 0 from now on.
  void Drop();
  // What is wrong with the value. kTruncated if bytes are missing. Call it after the last byte.
  ValueFault Finish();

 private:
  struct Hashes;

  void CheckHeader();
  void TakeBytes(absl::Span<const std::byte> bytes);

  const StoreKey key_;
  const absl::string_view secret_;
  absl::Span<const absl::Span<std::byte>> pieces_;
  const uint64_t block_bytes_;
  StoredHeader header_;
  size_t header_bytes_ = 0;  // Read so far.
  size_t piece_ = 0;         // The piece that is read now.
  size_t offset_ = 0;        // The bytes read of it.
  ValueFault fault_ = ValueFault::kTruncated;
  bool is_done_ = false;  // Nothing is read any more.
  bool is_dropped_ = false;
  std::unique_ptr<Hashes> hashes_;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_STORE_STORED_VALUE_H_
