#include "tests/engine/gguf_content.h"

#include <bit>

namespace pagoda {

std::string GgufNumber(uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> 8 * i);
  return text;
}

std::string GgufText(const std::string& text) { return GgufNumber(text.size(), 8) + text; }

std::string GgufUint32(const std::string& key, uint32_t value) {
  return GgufText(key) + GgufNumber(4, 4) + GgufNumber(value, 4);
}

std::string GgufFloat32(const std::string& key, float value) {
  return GgufText(key) + GgufNumber(6, 4) + GgufNumber(std::bit_cast<uint32_t>(value), 4);
}

std::string GgufString(const std::string& key, const std::string& value) {
  return GgufText(key) + GgufNumber(8, 4) + GgufText(value);
}

std::string GgufArray(const std::string& key, uint32_t type, uint64_t count,
                      const std::string& elements) {
  return GgufText(key) + GgufNumber(9, 4) + GgufNumber(type, 4) + GgufNumber(count, 8) + elements;
}

std::string GgufContent(const std::vector<std::string>& keys,
                        const std::vector<GgufTensorEntry>& tensors, const std::string& data) {
  std::string content = "GGUF" + GgufNumber(3, 4);
  content += GgufNumber(tensors.size(), 8) + GgufNumber(keys.size(), 8);
  for (const std::string& key : keys) content += key;
  for (const GgufTensorEntry& tensor : tensors) {
    content += GgufText(tensor.name) + GgufNumber(tensor.dimensions.size(), 4);
    for (const uint64_t dimension : tensor.dimensions) content += GgufNumber(dimension, 8);
    content += GgufNumber(tensor.type, 4) + GgufNumber(tensor.offset, 8);
  }
  content.resize((content.size() + 31) / 32 * 32);
  return content + data;
}

}  // namespace pagoda
