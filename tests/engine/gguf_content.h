// The bytes of a GGUF file, valid or invalid.
#ifndef PAGODA_TESTS_ENGINE_GGUF_CONTENT_H_
#define PAGODA_TESTS_ENGINE_GGUF_CONTENT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace pagoda {

// Types of values and tensors are the format's numbers.
struct GgufTensorEntry {
  std::string name;
  std::vector<uint64_t> dimensions;  // Innermost first.
  uint32_t type = 0;
  uint64_t offset = 0;
};

// Numbers and texts in the format, little-endian.
std::string GgufNumber(uint64_t number, int bytes);
std::string GgufText(const std::string& text);

// Keys with their values.
std::string GgufUint32(const std::string& key, uint32_t value);
std::string GgufFloat32(const std::string& key, float value);
std::string GgufString(const std::string& key, const std::string& value);
std::string GgufArray(const std::string& key, uint32_t type, uint64_t count,
                      const std::string& elements);

// A file of these keys and tensors. The data follow at the next multiple of 32.
std::string GgufContent(const std::vector<std::string>& keys,
                        const std::vector<GgufTensorEntry>& tensors, const std::string& data);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_GGUF_CONTENT_H_
