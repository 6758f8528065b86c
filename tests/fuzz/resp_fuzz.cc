// The reply of a server that a store asks, in pieces, and a value that it returns.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "pools/store/cluster_map.h"
#include "pools/store/resp.h"
#include "pools/store/stored_value.h"
#include "tests/fuzz/byte_reader.h"
#include "tests/fuzz/planted.h"

namespace pagoda::fuzz {
namespace {

const RedisAddress kAsked = {"asked", 1};

void CheckValue(const resp::Value& value) {
  if (const std::optional<Redirection> moved = ParseRedirection(value.text, kAsked)) {
    PAGODA_CHECK(
        moved->slot < kHashSlots && !moved->address.host.empty() && moved->address.port > 0,
        "a redirection names a server and a slot");
  }
  const absl::StatusOr<ClusterMap> map = ParseClusterSlots(value, kAsked);
  if (!map.ok()) return;
  PAGODA_CHECK(map->shard_of_slot.size() == kHashSlots, "a map has all slots");
  for (const uint16_t shard : map->shard_of_slot) {
    PAGODA_CHECK(shard == ClusterMap::kNoShard || shard < map->shards.size(),
                 "a slot's servers are in the map");
  }
}

// The scanner finds the value's end as the parser does, however the bytes come.
void CheckReply(ByteReader& reader, const std::string& bytes) {
  const absl::StatusOr<std::optional<resp::Parsed>> parsed = resp::Parse(bytes);
  resp::Scanner scanner;
  absl::StatusOr<bool> is_complete = false;
  for (size_t size = 0; is_complete.ok() && !*is_complete && size < bytes.size();) {
    size = std::min(bytes.size(), size + 1 + reader.Below(64));
    is_complete = scanner.Scan(absl::string_view(bytes).substr(0, size));
  }
  if (!parsed.ok()) {
    // A bulk without its line end is found by the parser only.
    return;
  }
  PAGODA_CHECK(is_complete.ok(), "the scanner accepts what the parser accepts");
  PAGODA_CHECK(*is_complete == parsed->has_value(), "both find the same end");
  if (!parsed->has_value()) return;
  const size_t end = (*parsed)->bytes + (Planted("EndElsewhere") ? 1 : 0);
  PAGODA_CHECK(scanner.end() == end, "both find the same end");
  CheckValue((*parsed)->value);
}

// A value that is not the block is not accepted, and nothing is written outside the block.
void CheckStored(ByteReader& reader, const std::string& bytes) {
  StoreKey key;
  key.digest[0] = std::byte{reader.Byte()};
  const std::vector<std::byte> expected(reader.Below(64), std::byte{7});
  const absl::Span<const std::byte> pieces[] = {expected};
  const StoredHeader header = MakeStoredHeader(key, "", pieces);
  std::string value(reinterpret_cast<const char*>(header.data()), header.size());
  value.append(reinterpret_cast<const char*>(expected.data()), expected.size());
  // The fuzzer's bytes change it from some place on.
  const size_t at = reader.Below(256) % (value.size() + 1);
  if (!reader.OneIn(8)) value.replace(at, std::min(bytes.size(), value.size() - at), bytes);
  std::vector<std::byte> block(expected.size());
  const absl::Span<std::byte> places[] = {absl::MakeSpan(block)};
  StoredValueReader stored(key, "", places);
  stored.Begin(value.size());
  for (size_t read = 0; read < value.size();) {
    iovec place;
    if (stored.Places(absl::MakeSpan(&place, 1)) == 0) break;
    const size_t size = std::min(value.size() - read, place.iov_len);
    std::memcpy(place.iov_base, value.data() + read, size);
    stored.Advance(size);
    read += size;
  }
  if (stored.Finish() == ValueFault::kNone) {
    PAGODA_CHECK(block == expected, "an accepted block has the bytes of its checksum");
  }
}

}  // namespace
}  // namespace pagoda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using pagoda::fuzz::ByteReader;
  ByteReader reader({data, size});
  const bool is_reply = reader.OneIn(2);
  const absl::Span<const uint8_t> taken = reader.Take(size / 2);
  const std::string bytes(taken.begin(), taken.end());
  is_reply ? pagoda::fuzz::CheckReply(reader, bytes) : pagoda::fuzz::CheckStored(reader, bytes);
  return 0;
}
