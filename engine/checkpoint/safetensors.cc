#include "engine/checkpoint/safetensors.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "pools/error.h"

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

// Bytes of an element of the types that the engine reads; 0 for others.
uint64_t ElementBytesOf(const std::string& dtype) {
  if (dtype == "F32") return 4;
  return dtype == "F16" || dtype == "BF16" ? 2 : 0;
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

// Bytes of a tensor of that shape, or nothing where they are more than 64 bits can count.
std::optional<uint64_t> ShapeBytes(const std::vector<uint64_t>& shape, uint64_t element_bytes) {
  uint64_t bytes = element_bytes;
  for (const uint64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return bytes;
}

// One entry of the header; `data` is what follows the header. The error is without file and tensor.
absl::StatusOr<TensorView> ReadEntry(const json& entry, absl::Span<const std::byte> data) {
  const auto field = [&](const char* name) {
    const auto it = entry.find(name);
    return it == entry.end() ? json() : *it;
  };
  if (!entry.is_object() || !field("dtype").is_string()) {
    return MakeError(Reason::kInvalidCheckpoint, "has no dtype");
  }
  TensorView view;
  view.dtype = field("dtype").get<std::string>();
  std::optional<std::vector<uint64_t>> shape = ReadIntegers(field("shape"));
  if (!shape.has_value()) return MakeError(Reason::kInvalidCheckpoint, "has no valid shape");
  view.shape = *std::move(shape);

  const std::optional<std::vector<uint64_t>> offsets = ReadIntegers(field("data_offsets"));
  if (!offsets.has_value() || offsets->size() != 2) {
    return MakeError(Reason::kInvalidCheckpoint, "has no valid data_offsets");
  }
  const uint64_t begin = (*offsets)[0];
  const uint64_t end = (*offsets)[1];
  if (begin > end || end > data.size()) {
    return MakeError(Reason::kInvalidCheckpoint,
                     absl::StrCat("data_offsets are ", begin, " to ", end, ", the file has ",
                                  data.size(), " bytes of data"));
  }
  view.bytes = data.subspan(begin, end - begin);
  const uint64_t element_bytes = ElementBytesOf(view.dtype);
  if (element_bytes != 0 && ShapeBytes(view.shape, element_bytes) != view.bytes.size()) {
    return MakeError(Reason::kInvalidCheckpoint,
                     absl::StrCat("has ", view.bytes.size(), " bytes, not those of ", view.dtype,
                                  " [", absl::StrJoin(view.shape, ", "), "]"));
  }
  return view;
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
  const json header = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return refuse("the header is no JSON object");

  std::map<std::string, TensorView> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    absl::StatusOr<TensorView> view = ReadEntry(entry, bytes.subspan(kLengthBytes + header_bytes));
    if (!view.ok()) return refuse("tensor ", name, " ", view.status().message());
    tensors.emplace(name, *std::move(view));
  }
  return SafetensorsFile(*std::move(file), std::move(tensors));
}

SafetensorsFile::SafetensorsFile(MappedFile file, std::map<std::string, TensorView> tensors)
    : file_(std::move(file)), tensors_(std::move(tensors)) {}

}  // namespace pagoda
