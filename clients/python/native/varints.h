#ifndef PAGODA_CLIENTS_PYTHON_NATIVE_VARINTS_H_
#define PAGODA_CLIENTS_PYTHON_NATIVE_VARINTS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pagoda::python {

// PutVarint writes so many bytes, of which the varint is the first part.
inline constexpr size_t kVarintBytes = 8;

// Writes `value` as a protobuf varint of 1 to 5 bytes. Returns the end of the varint. Without
// branches, because the sizes of token ids are random.
inline char* PutVarint(uint32_t value, char* out) {
  static_assert(std::endian::native == std::endian::little);
  const uint64_t wide = value;
  uint64_t spread = (wide & 0x7f) | (wide & 0x3f80) << 1 | (wide & 0x1fc000) << 2 |
                    (wide & 0xfe00000) << 3 | (wide & 0xf0000000) << 4;
  const int more = std::bit_width(value | 1) * 9 / 64;  // (bits - 1) / 7.
  spread |= 0x8080808080 & ((uint64_t{1} << 8 * more) - 1);
  std::memcpy(out, &spread, kVarintBytes);
  return out + more + 1;
}

}  // namespace pagoda::python

#endif  // PAGODA_CLIENTS_PYTHON_NATIVE_VARINTS_H_
