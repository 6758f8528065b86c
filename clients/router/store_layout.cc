#include "clients/router/store_layout.h"

#include <bit>
#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace pagoda::router_store {
namespace {

static_assert(std::endian::native == std::endian::little, "integers are written as they lie");

constexpr size_t kFieldBytes = 12;
constexpr size_t kValueBytes = 9;

template <class T>
T ReadAt(absl::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

template <class T>
void Append(T value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

std::string FieldOf(BlockHash chunk, StoreNode node) {
  std::string field;
  Append(chunk.value(), field);
  Append(node, field);
  return field;
}

std::string ValueOf(uint64_t generation, Tier tier) {
  std::string value;
  Append(generation, value);
  Append(static_cast<uint8_t>(tier), value);
  return value;
}

std::optional<Record> ParseRecord(absl::string_view field, absl::string_view value) {
  if (field.size() != kFieldBytes || value.size() != kValueBytes) return std::nullopt;
  const uint8_t tier = ReadAt<uint8_t>(value, 8);
  if (tier >= kMaxTiers) return std::nullopt;
  return Record{.chunk = BlockHash(ReadAt<uint64_t>(field, 0)),
                .node = ReadAt<StoreNode>(field, 8),
                .generation = ReadAt<uint64_t>(value, 0),
                .tier = static_cast<Tier>(tier)};
}

std::string LeaseText(const Lease& lease) {
  return absl::StrCat(absl::Hex(lease.generation, absl::kZeroPad16), "\n", lease.name, "\n",
                      lease.peer_address, "\n", lease.hidden ? "hidden" : "");
}

std::optional<Lease> ParseLease(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '\n');
  Lease lease;
  if (parts.size() != 4 || !absl::SimpleHexAtoi(parts[0], &lease.generation)) return std::nullopt;
  lease.name = parts[1];
  lease.peer_address = parts[2];
  lease.hidden = !parts[3].empty();
  return lease;
}

std::string MetaKey(absl::string_view prefix) { return absl::StrCat(prefix, ":meta"); }
std::string NextNodeKey(absl::string_view prefix) { return absl::StrCat(prefix, ":next-node"); }
std::string IdsKey(absl::string_view prefix) { return absl::StrCat(prefix, ":ids"); }
std::string LeaseKey(absl::string_view prefix, StoreNode node) {
  return absl::StrCat(prefix, ":n:", node);
}
std::string BucketKey(absl::string_view prefix, uint32_t bucket) {
  return absl::StrCat(prefix, ":b:", bucket);
}
std::string EventsKey(absl::string_view prefix, StoreNode node, uint64_t epoch) {
  return absl::StrCat(prefix, ":events:", node, ":", absl::Hex(epoch, absl::kZeroPad16));
}

}  // namespace pagoda::router_store
