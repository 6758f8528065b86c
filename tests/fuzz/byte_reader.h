// A fuzzer's input, read as a list of decisions.
#ifndef PAGODA_TESTS_FUZZ_BYTE_READER_H_
#define PAGODA_TESTS_FUZZ_BYTE_READER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace pagoda::fuzz {

// After the last byte every decision is 0. Refers to the bytes.
class ByteReader {
 public:
  explicit ByteReader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_.remove_prefix(1);
    return byte;
  }
  // From 0 to count - 1; `count` is at most 256.
  uint32_t Below(uint32_t count) { return Byte() % count; }
  bool OneIn(uint32_t count) { return Below(count) == count - 1; }
  // The next `count` bytes, or fewer at the end.
  absl::Span<const uint8_t> Take(size_t count) {
    const absl::Span<const uint8_t> taken = bytes_.subspan(0, std::min(count, bytes_.size()));
    bytes_.remove_prefix(taken.size());
    return taken;
  }

 private:
  absl::Span<const uint8_t> bytes_;
};

}  // namespace pagoda::fuzz

#endif  // PAGODA_TESTS_FUZZ_BYTE_READER_H_
