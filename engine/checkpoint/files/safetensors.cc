#include "engine/checkpoint/files/safetensors.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"
#include "engine/checkpoint/files/json_text.h"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
// The format's own limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

// Little-endian on every machine.
uint64_t ReadLength(absl::Span<const std::byte> bytes) {
  uint64_t length = 0;
  for (uint64_t i = 0; i < kLengthBytes; ++i)
    length |= std::to_integer<uint64_t>(bytes[i]) << 8 * i;
  return length;
}

// A JSON array of unsigned integers.
std::optional<std::vector<uint64_t>> ReadIntegers(const json& array) {
  if (!array.is_array()) return std::nullopt;
  std::vector<uint64_t> integers;
  for (const json& item : array) {
    if (!item.is_number_unsigned()) return std::nullopt;
    integers.push_back(item.get<uint64_t>());
  }
  return integers;
}

// The number of a tensor's elements; nothing if 64 bits cannot count them.
std::optional<uint64_t> CountOf(const std::vector<uint64_t>& shape) {
  uint64_t count = 1;
  for (const uint64_t dimension : shape) {
    if (__builtin_mul_overflow(count, dimension, &count)) return std::nullopt;
  }
  return count;
}

// An entry of the header. If the engine does not read its dtype, unread_type is the file's name of
// the dtype, and the tensor's length is not checked.
struct Entry {
  TensorInfo info;
  std::optional<std::string> unread_type;  // Can be empty text.
};

// Reads an entry of the header. `data`: the bytes behind the header. The error has neither file nor
// tensor.
absl::StatusOr<Entry> ReadEntry(const json& entry, absl::Span<const std::byte> data) {
  const auto field = [&](const char* name) {
    const auto it = entry.find(name);
    return it == entry.end() ? json() : *it;
  };
  if (!entry.is_object() || !field("dtype").is_string()) {
    return MakeError(Reason::kInvalidCheckpoint, "has no dtype");
  }
  Entry result;
  TensorInfo& info = result.info;
  const std::string dtype = field("dtype").get<std::string>();
  std::optional<std::vector<uint64_t>> shape = ReadIntegers(field("shape"));
  if (!shape.has_value()) return MakeError(Reason::kInvalidCheckpoint, "has no valid shape");
  info.shape = *std::move(shape);

  const std::optional<std::vector<uint64_t>> offsets = ReadIntegers(field("data_offsets"));
  if (!offsets.has_value() || offsets->size() != 2) {
    return MakeError(Reason::kInvalidCheckpoint, "has no valid data_offsets");
  }
  const uint64_t begin = (*offsets)[0];
  const uint64_t end = (*offsets)[1];
  if (begin > end || end > data.size()) {
    return MakeError(Reason::kInvalidCheckpoint,
                     absl::StrCat("data_offsets are ", begin, " to ", end, ", but the file has ",
                                  data.size(), " bytes of data"));
  }
  info.bytes = data.subspan(begin, end - begin);
  const std::optional<TensorType> type = TensorTypeOf(dtype);
  // This format has no type Q8_0.
  if (!type.has_value() || IsQuantised(*type)) {
    result.unread_type = dtype;
    return result;
  }
  info.type = *type;
  if (TensorBytes(info.type, info.shape) != info.bytes.size()) {
    return MakeError(Reason::kInvalidCheckpoint,
                     absl::StrCat("has ", info.bytes.size(), " bytes, not those of ", dtype, " [",
                                  absl::StrJoin(info.shape, ", "), "]"));
  }
  return result;
}

std::map<std::string, std::string> ReadMetadata(const json& entry) {
  std::map<std::string, std::string> metadata;
  if (!entry.is_object()) return metadata;
  for (const auto& [name, value] : entry.items()) {
    if (value.is_string()) metadata.emplace(name, value.get<std::string>());
  }
  return metadata;
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.status();
  const auto refuse = [&](const auto&... why) {
    return MakeError(Reason::kInvalidCheckpoint, absl::StrCat(path, ": ", why...));
  };

  const absl::Span<const std::byte> bytes = file->bytes();
  if (bytes.size() < kLengthBytes) return refuse("too short for a safetensors file");
  const uint64_t header_bytes = ReadLength(bytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - kLengthBytes) {
    return refuse("the header's length is ", header_bytes, ", the file's ", bytes.size());
  }
  const std::string_view text = file->text().substr(kLengthBytes, header_bytes);
  const absl::StatusOr<json> header = ParseJsonObject(text, path, "the header");
  if (!header.ok()) return header.status();

  TensorMap tensors;
  ByteTensorMap byte_tensors;
  TensorMap all;
  std::map<std::string, std::string> unread;
  std::map<std::string, std::string> metadata;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") {
      metadata = ReadMetadata(entry);
      continue;
    }
    absl::StatusOr<Entry> read = ReadEntry(entry, bytes.subspan(kLengthBytes + header_bytes));
    if (!read.ok()) return refuse("tensor ", name.substr(0, 200), " ", read.status().message());
    all.emplace(name, read->info);
    if (read->unread_type.has_value()) {
      if (read->unread_type == "U8" && CountOf(read->info.shape) == read->info.bytes.size()) {
        byte_tensors.emplace(name, ByteTensor{read->info.shape, read->info.bytes});
      }
      unread.emplace(name, *std::move(read->unread_type));
    } else {
      tensors.emplace(name, std::move(read->info));
    }
  }
  if (const std::optional<std::string> name = FindOverlap(all); name.has_value()) {
    return refuse("tensor ", name->substr(0, 200), " overlaps another");
  }
  return SafetensorsFile(*std::move(file), std::move(tensors), std::move(byte_tensors),
                         std::move(unread), std::move(metadata));
}

SafetensorsFile::SafetensorsFile(MappedFile file, TensorMap tensors, ByteTensorMap byte_tensors,
                                 std::map<std::string, std::string> unread,
                                 std::map<std::string, std::string> metadata)
    : file_(std::move(file)),
      tensors_(std::move(tensors)),
      byte_tensors_(std::move(byte_tensors)),
      unread_(std::move(unread)),
      metadata_(std::move(metadata)) {}

}  // namespace pagoda
