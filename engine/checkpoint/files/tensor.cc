#include "engine/checkpoint/files/tensor.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "engine/checkpoint/files/quantised_blocks.h"
#include "kernels/numeric.h"

namespace pagoda {
namespace {

template <class T>
T Read(const std::byte* bytes) {
  T element;
  std::memcpy(&element, bytes, sizeof(T));
  return element;
}

template <class T>
std::vector<float> Convert(absl::Span<const std::byte> bytes) {
  std::vector<float> floats(bytes.size() / sizeof(T));
  for (size_t i = 0; i < floats.size(); ++i) {
    floats[i] = kernels::ToFloat(Read<T>(bytes.data() + i * sizeof(T)));
  }
  return floats;
}

// What tensor.h says of each type, in the order of TensorType.
struct TypeRow {
  absl::string_view name;
  BlockLayout layout;
};
constexpr TypeRow kTypes[] = {
    {"F32", {1, 4}},      {"F16", {1, 2}},      {"BF16", {1, 2}},       {"Q8_0", {32, 34}},
    {"Q4_0", {32, 18}},   {"Q4_1", {32, 20}},   {"Q5_0", {32, 22}},     {"Q5_1", {32, 24}},
    {"Q2_K", {256, 84}},  {"Q3_K", {256, 110}}, {"Q4_K", {256, 144}},   {"Q5_K", {256, 176}},
    {"Q6_K", {256, 210}}, {"IQ4_NL", {32, 18}}, {"IQ4_XS", {256, 136}}, {"MXFP4", {32, 17}},
};
static_assert(std::size(kTypes) == std::size(kTensorTypes));

const TypeRow& RowOf(TensorType type) {
  const auto index = static_cast<size_t>(type);
  PAGODA_CHECK(index < std::size(kTypes), "a tensor has a type");
  return kTypes[index];
}

}  // namespace

BlockLayout LayoutOf(TensorType type) { return RowOf(type).layout; }
absl::string_view TensorTypeName(TensorType type) { return RowOf(type).name; }

std::optional<TensorType> TensorTypeOf(absl::string_view name) {
  for (const TensorType type : kTensorTypes) {
    if (TensorTypeName(type) == name) return type;
  }
  return std::nullopt;
}

std::optional<uint64_t> TensorBytes(TensorType type, absl::Span<const uint64_t> shape) {
  uint64_t elements = 1;
  for (const uint64_t dimension : shape) {
    if (__builtin_mul_overflow(elements, dimension, &elements)) return std::nullopt;
  }
  const BlockLayout layout = LayoutOf(type);
  if (layout.elements > 1 && (shape.empty() || shape.back() % layout.elements != 0)) {
    return std::nullopt;
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(elements / layout.elements, layout.bytes, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

std::vector<float> ToFloats(const TensorInfo& tensor) {
  switch (tensor.type) {
    case TensorType::kFloat32:
      return Convert<float>(tensor.bytes);
    case TensorType::kFloat16:
      return Convert<kernels::Half>(tensor.bytes);
    case TensorType::kBFloat16:
      return Convert<kernels::BFloat16>(tensor.bytes);
    default:
      break;
  }
  const BlockLayout layout = LayoutOf(tensor.type);
  const uint64_t blocks = tensor.bytes.size() / layout.bytes;
  std::vector<float> floats(blocks * layout.elements);
  DequantiseBlocks(tensor.type, tensor.bytes.data(), blocks, floats.data());
  return floats;
}

TensorInfo RowsOf(const TensorInfo& matrix, uint64_t first, uint64_t count) {
  PAGODA_CHECK(
      matrix.shape.size() == 2 && first <= matrix.shape[0] && count <= matrix.shape[0] - first,
      "the rows are the matrix's");
  if (count == 0) return {.type = matrix.type, .shape = {0, matrix.shape[1]}, .bytes = {}};
  const uint64_t row_bytes = matrix.bytes.size() / matrix.shape[0];
  return {.type = matrix.type,
          .shape = {count, matrix.shape[1]},
          .bytes = matrix.bytes.subspan(first * row_bytes, count * row_bytes)};
}

TensorInfo PartOf(const TensorInfo& tensor, uint64_t index) {
  PAGODA_CHECK(tensor.shape.size() >= 2 && index < tensor.shape[0], "the part is the tensor's");
  const uint64_t bytes = tensor.bytes.size() / tensor.shape[0];
  return {.type = tensor.type,
          .shape = {tensor.shape.begin() + 1, tensor.shape.end()},
          .bytes = tensor.bytes.subspan(index * bytes, bytes)};
}

std::optional<std::string> FindOverlap(const TensorMap& tensors) {
  std::vector<TensorMap::const_pointer> order;
  for (const auto& entry : tensors) {
    if (!entry.second.bytes.empty()) order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return a->second.bytes.data() < b->second.bytes.data();
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const absl::Span<const std::byte> before = order[i - 1]->second.bytes;
    if (order[i]->second.bytes.data() < before.data() + before.size()) return order[i]->first;
  }
  return std::nullopt;
}

}  // namespace pagoda
