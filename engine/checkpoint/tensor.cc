#include "engine/checkpoint/tensor.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
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

std::vector<float> Dequantise(absl::Span<const std::byte> bytes) {
  std::vector<float> floats;
  floats.reserve(bytes.size() / kQ8_0BlockBytes * kQ8_0BlockElements);
  for (size_t block = 0; block < bytes.size(); block += kQ8_0BlockBytes) {
    const std::byte* const data = bytes.data() + block;
    const float scale = kernels::ToFloat(Read<kernels::Half>(data));
    for (uint64_t i = 0; i < kQ8_0BlockElements; ++i) {
      floats.push_back(scale * static_cast<float>(Read<int8_t>(data + sizeof(uint16_t) + i)));
    }
  }
  return floats;
}

}  // namespace

absl::string_view TensorTypeName(TensorType type) {
  switch (type) {
    case TensorType::kFloat32:
      return "F32";
    case TensorType::kFloat16:
      return "F16";
    case TensorType::kBFloat16:
      return "BF16";
    case TensorType::kQ8_0:
      return "Q8_0";
  }
  PAGODA_CHECK(false, "a tensor has a type");
}

std::optional<TensorType> TensorTypeOf(absl::string_view name) {
  for (const TensorType type :
       {TensorType::kFloat32, TensorType::kFloat16, TensorType::kBFloat16, TensorType::kQ8_0}) {
    if (TensorTypeName(type) == name) return type;
  }
  return std::nullopt;
}

std::optional<uint64_t> TensorBytes(TensorType type, absl::Span<const uint64_t> shape) {
  uint64_t elements = 1;
  for (const uint64_t dimension : shape) {
    if (__builtin_mul_overflow(elements, dimension, &elements)) return std::nullopt;
  }
  uint64_t bytes = 0;
  if (type == TensorType::kQ8_0) {
    if (shape.empty() || shape.back() % kQ8_0BlockElements != 0) return std::nullopt;
    elements /= kQ8_0BlockElements;
    if (__builtin_mul_overflow(elements, kQ8_0BlockBytes, &bytes)) return std::nullopt;
    return bytes;
  }
  const uint64_t element_bytes = type == TensorType::kFloat32 ? 4 : 2;
  if (__builtin_mul_overflow(elements, element_bytes, &bytes)) return std::nullopt;
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
    case TensorType::kQ8_0:
      return Dequantise(tensor.bytes);
  }
  PAGODA_CHECK(false, "a tensor has a type");
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
