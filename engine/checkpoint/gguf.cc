#include "engine/checkpoint/gguf.h"

#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "pools/error.h"

namespace pagoda {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

constexpr uint32_t kMagic = 0x46554747;    // "GGUF".
constexpr uint64_t kMaxNameBytes = 65535;  // The format's own limit for keys.
constexpr uint64_t kMaxKeptElements = 4096;
constexpr uint64_t kMaxKeptTextBytes = 65536;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;

// As the format numbers them.
enum class ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// Of types whose size is fixed; 0 for others.
uint64_t ValueBytes(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

// ggml's numbers.
std::optional<TensorType> TensorTypeOfGgml(uint32_t number) {
  switch (number) {
    case 0:
      return TensorType::kFloat32;
    case 1:
      return TensorType::kFloat16;
    case 8:
      return TensorType::kQ8_0;
    case 30:
      return TensorType::kBFloat16;
    default:
      return std::nullopt;
  }
}

absl::Status Damage(absl::string_view what) {
  return MakeError(Reason::kInvalidCheckpoint, std::string(what));
}

// Reads from the front and keeps the first error: behind it, everything is 0 and empty.
class Cursor {
 public:
  explicit Cursor(absl::Span<const std::byte> bytes) : bytes_(bytes) {}

  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  void Fail(absl::string_view what) {
    if (ok()) status_ = Damage(what);
  }

  absl::Span<const std::byte> Take(uint64_t count) {
    if (count > left()) Fail("ends within its header");
    if (!ok()) return {};
    position_ += count;
    return bytes_.subspan(position_ - count, count);
  }

  template <class T>
  T Number() {
    T number{};
    const absl::Span<const std::byte> bytes = Take(sizeof(T));
    if (!bytes.empty()) std::memcpy(&number, bytes.data(), sizeof(T));
    return number;
  }

  absl::string_view Text() {
    const absl::Span<const std::byte> bytes = Take(Number<uint64_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::string Name() {
    const absl::string_view name = Text();
    if (name.size() > kMaxNameBytes) Fail(absl::StrCat("has a name of ", name.size(), " bytes"));
    return std::string(name.substr(0, kMaxNameBytes));
  }

 private:
  const absl::Span<const std::byte> bytes_;
  uint64_t position_ = 0;
  absl::Status status_;
};

int64_t ReadInteger(Cursor& cursor, ValueType type) {
  switch (type) {
    case ValueType::kUint8:
      return cursor.Number<uint8_t>();
    case ValueType::kInt8:
      return cursor.Number<int8_t>();
    case ValueType::kBool:
      return cursor.Number<uint8_t>() != 0 ? 1 : 0;
    case ValueType::kUint16:
      return cursor.Number<uint16_t>();
    case ValueType::kInt16:
      return cursor.Number<int16_t>();
    case ValueType::kUint32:
      return cursor.Number<uint32_t>();
    case ValueType::kInt32:
      return cursor.Number<int32_t>();
    case ValueType::kInt64:
      return cursor.Number<int64_t>();
    default: {
      const auto number = cursor.Number<uint64_t>();
      if (number > std::numeric_limits<int64_t>::max()) cursor.Fail("has a number above 2^63");
      return static_cast<int64_t>(number);
    }
  }
}

GgufValue ReadArray(Cursor& cursor) {
  const auto type = static_cast<ValueType>(cursor.Number<uint32_t>());
  const auto count = cursor.Number<uint64_t>();
  if (type == ValueType::kString) {
    // Each takes its eight bytes at least, so this ends with the file.
    for (uint64_t i = 0; i < count && cursor.ok(); ++i) cursor.Text();
    return GgufSkipped();
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
  const bool is_float = type == ValueType::kFloat32 || type == ValueType::kFloat64;
  if (is_float || count > kMaxKeptElements) {
    cursor.Take(count * element_bytes);
    return GgufSkipped();
  }
  std::vector<int64_t> integers;
  for (uint64_t i = 0; i < count; ++i) integers.push_back(ReadInteger(cursor, type));
  return integers;
}

GgufValue ReadValue(Cursor& cursor) {
  const auto type = static_cast<ValueType>(cursor.Number<uint32_t>());
  switch (type) {
    case ValueType::kFloat32:
      return double{cursor.Number<float>()};
    case ValueType::kFloat64:
      return cursor.Number<double>();
    case ValueType::kString: {
      const absl::string_view text = cursor.Text();
      if (text.size() > kMaxKeptTextBytes) return GgufSkipped();
      return std::string(text);
    }
    case ValueType::kArray:
      return ReadArray(cursor);
    default:
      break;
  }
  if (ValueBytes(type) == 0) {
    cursor.Fail(absl::StrCat("has the unknown type ", static_cast<uint32_t>(type)));
  }
  return ReadInteger(cursor, type);
}

absl::StatusOr<std::map<std::string, GgufValue>> ReadMetadata(Cursor& cursor, uint64_t count) {
  std::map<std::string, GgufValue> metadata;
  // Each takes some bytes, so this ends with the file, whatever the count.
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = cursor.Name();
    GgufValue value = ReadValue(cursor);
    if (!cursor.ok()) {
      return Damage(absl::StrCat("key ", key.substr(0, 80), " ", cursor.status().message()));
    }
    const auto [it, is_new] = metadata.emplace(std::move(key), std::move(value));
    if (!is_new) return Damage(absl::StrCat("key ", it->first, " is there twice"));
  }
  return metadata;
}

absl::StatusOr<uint64_t> ReadAlignment(const std::map<std::string, GgufValue>& metadata) {
  const auto it = metadata.find("general.alignment");
  if (it == metadata.end()) return kDefaultAlignment;
  const int64_t* const alignment = std::get_if<int64_t>(&it->second);
  if (alignment == nullptr || *alignment < 1 || static_cast<uint64_t>(*alignment) > kMaxAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    return Damage("key general.alignment is no power of two up to 2^20");
  }
  return static_cast<uint64_t>(*alignment);
}

struct TensorEntry {
  std::string name;
  TensorInfo info;  // Without its bytes.
  uint64_t offset = 0;
};

// The error is without the tensor's name.
absl::StatusOr<TensorEntry> ReadEntry(Cursor& cursor) {
  TensorEntry entry;
  entry.name = cursor.Name();
  const auto num_dimensions = cursor.Number<uint32_t>();
  if (num_dimensions > kMaxDimensions) {
    cursor.Fail(absl::StrCat("has ", num_dimensions, " dimensions"));
  }
  // The innermost comes first.
  for (uint32_t i = 0; i < num_dimensions && cursor.ok(); ++i) {
    entry.info.shape.insert(entry.info.shape.begin(), cursor.Number<uint64_t>());
  }
  const auto type_number = cursor.Number<uint32_t>();
  const std::optional<TensorType> type = TensorTypeOfGgml(type_number);
  entry.offset = cursor.Number<uint64_t>();
  if (!type.has_value()) {
    cursor.Fail(absl::StrCat("has ggml's type ", type_number,
                             "; F32 (0), F16 (1), Q8_0 (8) and BF16 (30) are read"));
  }
  if (!cursor.ok()) {
    return Damage(
        absl::StrCat("tensor ", entry.name.substr(0, 80), " ", cursor.status().message()));
  }
  entry.info.type = *type;
  return entry;
}

// `data` is what follows the header.
absl::StatusOr<TensorInfo> Place(TensorEntry entry, uint64_t alignment,
                                 absl::Span<const std::byte> data) {
  const auto refuse = [&](const auto&... what) {
    return Damage(absl::StrCat("tensor ", entry.name.substr(0, 80), " ", what...));
  };
  const std::optional<uint64_t> bytes = TensorBytes(entry.info.type, entry.info.shape);
  if (!bytes.has_value()) {
    return refuse("cannot have shape [", absl::StrJoin(entry.info.shape, ", "), "] in ",
                  TensorTypeName(entry.info.type));
  }
  if (entry.offset % alignment != 0) {
    return refuse("begins at ", entry.offset, ", no multiple of the alignment ", alignment);
  }
  if (entry.offset > data.size() || *bytes > data.size() - entry.offset) {
    return refuse("has ", *bytes, " bytes from ", entry.offset, ", the file has ", data.size(),
                  " bytes of data");
  }
  entry.info.bytes = data.subspan(entry.offset, *bytes);
  return entry.info;
}

absl::StatusOr<TensorMap> ReadTensors(Cursor& cursor, uint64_t count, uint64_t alignment,
                                      absl::Span<const std::byte> bytes) {
  std::vector<TensorEntry> entries;
  for (uint64_t i = 0; i < count; ++i) {
    absl::StatusOr<TensorEntry> entry = ReadEntry(cursor);
    if (!entry.ok()) return entry.status();
    entries.push_back(*std::move(entry));
  }
  const uint64_t data_begin = (cursor.position() + alignment - 1) / alignment * alignment;
  const absl::Span<const std::byte> data =
      data_begin < bytes.size() ? bytes.subspan(data_begin) : absl::Span<const std::byte>();
  TensorMap tensors;
  for (TensorEntry& entry : entries) {
    std::string name = entry.name;
    absl::StatusOr<TensorInfo> info = Place(std::move(entry), alignment, data);
    if (!info.ok()) return info.status();
    const auto [it, is_new] = tensors.emplace(std::move(name), *std::move(info));
    if (!is_new) return Damage(absl::StrCat("tensor ", it->first, " is there twice"));
  }
  if (const std::optional<std::string> name = FindOverlap(tensors); name.has_value()) {
    return Damage(absl::StrCat("tensor ", *name, " overlaps another"));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  const auto refuse = [&](absl::string_view why) {
    return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": ", why));
  };

  Cursor cursor(file->bytes());
  if (cursor.Number<uint32_t>() != kMagic) return refuse("no GGUF file");
  const auto version = cursor.Number<uint32_t>();
  if (version != 2 && version != 3) {
    return refuse(absl::StrCat("GGUF version ", version,
                               "; 2 and 3 are read, little-endian as most files are"));
  }
  const auto num_tensors = cursor.Number<uint64_t>();
  const auto num_keys = cursor.Number<uint64_t>();
  if (!cursor.ok()) return refuse(cursor.status().message());
  absl::StatusOr<std::map<std::string, GgufValue>> metadata = ReadMetadata(cursor, num_keys);
  if (!metadata.ok()) return refuse(metadata.status().message());
  const absl::StatusOr<uint64_t> alignment = ReadAlignment(*metadata);
  if (!alignment.ok()) return refuse(alignment.status().message());
  absl::StatusOr<TensorMap> tensors = ReadTensors(cursor, num_tensors, *alignment, file->bytes());
  if (!tensors.ok()) return refuse(tensors.status().message());
  return GgufFile(*std::move(file), *std::move(metadata), *std::move(tensors));
}

GgufFile::GgufFile(MappedFile file, std::map<std::string, GgufValue> metadata, TensorMap tensors)
    : file_(std::move(file)), metadata_(std::move(metadata)), tensors_(std::move(tensors)) {}

}  // namespace pagoda
