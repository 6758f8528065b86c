#include "engine/checkpoint/gguf/gguf_values.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/error.h"

namespace pagoda {
namespace {

constexpr uint64_t kMaxKeptElements = 4096;
constexpr uint64_t kMaxKeptTextBytes = 65536;

// The size of types with a fixed size; 0 for others.
uint64_t ValueBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

int64_t ReadInteger(GgufCursor& cursor, GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return cursor.Number<uint8_t>();
    case GgufType::kInt8:
      return cursor.Number<int8_t>();
    case GgufType::kBool:
      return cursor.Number<uint8_t>() != 0 ? 1 : 0;
    case GgufType::kUint16:
      return cursor.Number<uint16_t>();
    case GgufType::kInt16:
      return cursor.Number<int16_t>();
    case GgufType::kUint32:
      return cursor.Number<uint32_t>();
    case GgufType::kInt32:
      return cursor.Number<int32_t>();
    case GgufType::kInt64:
      return cursor.Number<int64_t>();
    default: {
      const auto number = cursor.Number<uint64_t>();
      if (number > std::numeric_limits<int64_t>::max()) cursor.Fail("has a number above 2^63");
      return static_cast<int64_t>(number);
    }
  }
}

GgufValue ReadArray(GgufCursor& cursor) {
  const auto type = static_cast<GgufType>(cursor.Number<uint32_t>());
  const auto count = cursor.Number<uint64_t>();
  if (type == GgufType::kString) {
    // Each takes at least eight bytes, so this ends with the file.
    const uint64_t left = cursor.left();
    const absl::Span<const std::byte> rest = cursor.Rest();
    for (uint64_t i = 0; i < count && cursor.ok(); ++i) cursor.Text();
    return GgufSkipped{true, type, count, rest.first(left - cursor.left())};
  }
  const uint64_t element_bytes = ValueBytes(type);
  if (element_bytes == 0) {
    cursor.Fail(absl::StrCat("is an array of type ", static_cast<uint32_t>(type)));
    return GgufSkipped();
  }
  if (count > cursor.left() / element_bytes) {
    cursor.Fail(absl::StrCat("is an array of ", count, " elements, more than the file has"));
    return GgufSkipped();
  }
  const bool is_float = type == GgufType::kFloat32 || type == GgufType::kFloat64;
  if (is_float || count > kMaxKeptElements) {
    return GgufSkipped{true, type, count, cursor.Take(count * element_bytes)};
  }
  std::vector<int64_t> integers;
  for (uint64_t i = 0; i < count; ++i) integers.push_back(ReadInteger(cursor, type));
  return integers;
}

GgufValue ReadValue(GgufCursor& cursor) {
  const auto type = static_cast<GgufType>(cursor.Number<uint32_t>());
  switch (type) {
    case GgufType::kFloat32:
      return double{cursor.Number<float>()};
    case GgufType::kFloat64:
      return cursor.Number<double>();
    case GgufType::kString: {
      const absl::string_view text = cursor.Text();
      if (text.size() > kMaxKeptTextBytes) {
        return GgufSkipped{
            false, type, 1, {reinterpret_cast<const std::byte*>(text.data()), text.size()}};
      }
      return std::string(text);
    }
    case GgufType::kArray:
      return ReadArray(cursor);
    default:
      break;
  }
  if (ValueBytes(type) == 0) {
    cursor.Fail(absl::StrCat("has the unknown type ", static_cast<uint32_t>(type)));
  }
  return ReadInteger(cursor, type);
}

}  // namespace

absl::StatusOr<GgufMetadata> ReadGgufMetadata(GgufCursor& cursor, uint64_t count) {
  GgufMetadata metadata;
  // Each takes some bytes, so this ends with the file, whatever the count.
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = cursor.Name();
    GgufValue value = ReadValue(cursor);
    if (!cursor.ok()) {
      return InvalidCheckpoint(
          absl::StrCat("key ", key.substr(0, 80), " ", cursor.status().message()));
    }
    const auto [it, is_new] = metadata.emplace(std::move(key), std::move(value));
    if (!is_new) return InvalidCheckpoint(absl::StrCat("key ", it->first, " appears twice"));
  }
  return metadata;
}

}  // namespace pagoda
