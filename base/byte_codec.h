// Fixed layouts for memory that outlives a process: consecutive little-endian integers, without
// padding.
#ifndef PAGODA_BASE_BYTE_CODEC_H_
#define PAGODA_BASE_BYTE_CODEC_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"

namespace pagoda {

static_assert(std::endian::native == std::endian::little, "integers are copied as they lie");

// Appends to a buffer.
class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>* out) : out_(out) {}

  template <class T>
  void Put(T value) {
    static_assert(std::is_integral_v<T>, "a class may have padding");
    PutBytes(&value, sizeof(value));
  }
  void PutBytes(const void* data, size_t size) {
    if (size == 0) return;
    const size_t begin = out_->size();
    out_->resize(begin + size);
    std::memcpy(out_->data() + begin, data, size);
  }
  // The length as 32 bits, then the bytes.
  void PutText(const std::string& text) {
    Put(static_cast<uint32_t>(text.size()));
    PutBytes(text.data(), text.size());
  }

 private:
  std::vector<std::byte>* const out_;
};

// Reads data of ByteWriter. A read beyond the end gives zeros, and ok() is false from then on.
class ByteReader {
 public:
  explicit ByteReader(absl::Span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }

  template <class T>
  T Get() {
    static_assert(std::is_integral_v<T>, "a class may have padding");
    T value = 0;
    GetBytes(&value, sizeof(value));
    return value;
  }
  void GetBytes(void* data, size_t size) {
    if (size > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
    }
    if (!ok_ || size == 0) return;
    std::memcpy(data, bytes_.data(), size);
    bytes_.remove_prefix(size);
  }
  // Reads a text of at most `max_size` bytes. After a longer one ok() is false.
  std::string GetText(size_t max_size) {
    const auto size = Get<uint32_t>();
    ok_ = ok_ && size <= max_size && size <= bytes_.size();
    std::string text(ok_ ? size : 0, '\0');
    GetBytes(text.data(), text.size());
    return text;
  }

 private:
  absl::Span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace pagoda

#endif  // PAGODA_BASE_BYTE_CODEC_H_
