#include "engine/checkpoint/gguf/gguf.h"

#include <bit>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/error.h"
#include "engine/checkpoint/gguf/gguf_cursor.h"

namespace pagoda {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF".
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;

// By ggml's numbers.
constexpr std::pair<uint32_t, TensorType> kGgmlTypes[] = {
    {0, TensorType::kFloat32}, {1, TensorType::kFloat16}, {2, TensorType::kQ4_0},
    {3, TensorType::kQ4_1},    {6, TensorType::kQ5_0},    {7, TensorType::kQ5_1},
    {8, TensorType::kQ8_0},    {10, TensorType::kQ2_K},   {11, TensorType::kQ3_K},
    {12, TensorType::kQ4_K},   {13, TensorType::kQ5_K},   {14, TensorType::kQ6_K},
    {20, TensorType::kIQ4_NL}, {23, TensorType::kIQ4_XS}, {30, TensorType::kBFloat16},
    {39, TensorType::kMxfp4}};

std::optional<TensorType> TensorTypeOfGgml(uint32_t number) {
  for (const auto& [of_type, type] : kGgmlTypes) {
    if (of_type == number) return type;
  }
  return std::nullopt;
}

// "F32 (0), F16 (1), ..."
std::string SupportedTypes() {
  return absl::StrJoin(kGgmlTypes, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, TensorTypeName(entry.second), " (", entry.first, ")");
  });
}

absl::StatusOr<uint64_t> ReadAlignment(const GgufMetadata& metadata) {
  const auto it = metadata.find("general.alignment");
  if (it == metadata.end()) return kDefaultAlignment;
  const int64_t* const alignment = std::get_if<int64_t>(&it->second);
  if (alignment == nullptr || *alignment < 1 || static_cast<uint64_t>(*alignment) > kMaxAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    return InvalidCheckpoint("key general.alignment is not a power of two up to 2^20");
  }
  return static_cast<uint64_t>(*alignment);
}

struct TensorEntry {
  std::string name;
  TensorInfo info;  // Without its bytes.
  uint64_t offset = 0;
};

// The error names the tensor.
absl::StatusOr<TensorEntry> ReadEntry(GgufCursor& cursor) {
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
    cursor.Fail(
        absl::StrCat("has ggml's type ", type_number, "; supported are ", SupportedTypes()));
  }
  if (!cursor.ok()) {
    return InvalidCheckpoint(
        absl::StrCat("tensor ", entry.name.substr(0, 80), " ", cursor.status().message()));
  }
  entry.info.type = *type;
  return entry;
}

// `data`: the bytes behind the header.
absl::StatusOr<TensorInfo> Place(TensorEntry entry, uint64_t alignment,
                                 absl::Span<const std::byte> data) {
  const auto refuse = [&](const auto&... what) {
    return InvalidCheckpoint(absl::StrCat("tensor ", entry.name.substr(0, 80), " ", what...));
  };
  const std::optional<uint64_t> bytes = TensorBytes(entry.info.type, entry.info.shape);
  if (!bytes.has_value()) {
    return refuse("cannot have shape [", absl::StrJoin(entry.info.shape, ", "), "] in ",
                  TensorTypeName(entry.info.type));
  }
  if (entry.offset % alignment != 0) {
    return refuse("begins at ", entry.offset, ", not a multiple of the alignment ", alignment);
  }
  if (entry.offset > data.size() || *bytes > data.size() - entry.offset) {
    return refuse("has ", *bytes, " bytes from ", entry.offset, ", but the file has ", data.size(),
                  " bytes of data");
  }
  entry.info.bytes = data.subspan(entry.offset, *bytes);
  return entry.info;
}

absl::StatusOr<TensorMap> ReadTensors(GgufCursor& cursor, uint64_t count, uint64_t alignment,
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
    if (!is_new) return InvalidCheckpoint(absl::StrCat("tensor ", it->first, " appears twice"));
  }
  if (const std::optional<std::string> name = FindOverlap(tensors); name.has_value()) {
    return InvalidCheckpoint(absl::StrCat("tensor ", *name, " overlaps another"));
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

  GgufCursor cursor(file->bytes());
  if (cursor.Number<uint32_t>() != kMagic) return refuse("not a GGUF file");
  const auto version = cursor.Number<uint32_t>();
  if (version != 2 && version != 3) {
    return refuse(absl::StrCat("GGUF version ", version,
                               "; the engine reads versions 2 and 3, little-endian"));
  }
  const auto num_tensors = cursor.Number<uint64_t>();
  const auto num_keys = cursor.Number<uint64_t>();
  if (!cursor.ok()) return refuse(cursor.status().message());
  absl::StatusOr<GgufMetadata> metadata = ReadGgufMetadata(cursor, num_keys);
  if (!metadata.ok()) return refuse(metadata.status().message());
  const absl::StatusOr<uint64_t> alignment = ReadAlignment(*metadata);
  if (!alignment.ok()) return refuse(alignment.status().message());
  absl::StatusOr<TensorMap> tensors = ReadTensors(cursor, num_tensors, *alignment, file->bytes());
  if (!tensors.ok()) return refuse(tensors.status().message());
  return GgufFile(*std::move(file), *std::move(metadata), *std::move(tensors));
}

GgufFile::GgufFile(MappedFile file, GgufMetadata metadata, TensorMap tensors)
    : file_(std::move(file)), metadata_(std::move(metadata)), tensors_(std::move(tensors)) {}

}  // namespace pagoda
