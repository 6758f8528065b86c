#include "engine/checkpoint/gguf/gguf_arrays.h"

#include <cstring>
#include <string>
#include <variant>

#include "engine/checkpoint/gguf/gguf_cursor.h"

namespace pagoda {
namespace {

// Elements of type From as To.
template <class From, class To>
std::vector<To> Convert(const GgufSkipped& array) {
  std::vector<To> numbers(array.count);
  const std::byte* bytes = array.bytes.data();
  for (To& number : numbers) {
    From element;
    std::memcpy(&element, bytes, sizeof(From));
    bytes += sizeof(From);
    number = static_cast<To>(element);
  }
  return numbers;
}

template <class To>
std::optional<std::vector<To>> Integers(const GgufSkipped& array) {
  switch (array.type) {
    case GgufType::kUint8:
    case GgufType::kBool:
      return Convert<uint8_t, To>(array);
    case GgufType::kInt8:
      return Convert<int8_t, To>(array);
    case GgufType::kUint16:
      return Convert<uint16_t, To>(array);
    case GgufType::kInt16:
      return Convert<int16_t, To>(array);
    case GgufType::kUint32:
      return Convert<uint32_t, To>(array);
    case GgufType::kInt32:
      return Convert<int32_t, To>(array);
    case GgufType::kUint64:
      return Convert<uint64_t, To>(array);
    case GgufType::kInt64:
      return Convert<int64_t, To>(array);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<std::vector<absl::string_view>> GgufTexts(const GgufValue& value) {
  const GgufSkipped* const array = std::get_if<GgufSkipped>(&value);
  if (array == nullptr || array->type != GgufType::kString || !array->is_array) return std::nullopt;
  GgufCursor cursor(array->bytes);
  std::vector<absl::string_view> texts(array->count);
  for (absl::string_view& text : texts) text = cursor.Text();
  return texts;
}

std::optional<std::vector<int64_t>> GgufIntegers(const GgufValue& value) {
  if (const auto* kept = std::get_if<std::vector<int64_t>>(&value)) return *kept;
  const GgufSkipped* const array = std::get_if<GgufSkipped>(&value);
  return array == nullptr ? std::nullopt : Integers<int64_t>(*array);
}

std::optional<std::vector<float>> GgufFloats(const GgufValue& value) {
  if (const auto* kept = std::get_if<std::vector<int64_t>>(&value)) {
    return std::vector<float>(kept->begin(), kept->end());
  }
  const GgufSkipped* const array = std::get_if<GgufSkipped>(&value);
  if (array == nullptr) return std::nullopt;
  if (array->type == GgufType::kFloat32) return Convert<float, float>(*array);
  if (array->type == GgufType::kFloat64) return Convert<double, float>(*array);
  return Integers<float>(*array);
}

std::optional<absl::string_view> GgufText(const GgufValue& value) {
  if (const auto* kept = std::get_if<std::string>(&value)) return *kept;
  const GgufSkipped* const text = std::get_if<GgufSkipped>(&value);
  if (text == nullptr || text->type != GgufType::kString || text->is_array) return std::nullopt;
  return absl::string_view(reinterpret_cast<const char*>(text->bytes.data()), text->bytes.size());
}

}  // namespace pagoda
