#ifndef PAGODA_CLIENTS_PYTHON_NATIVE_WIRE_READER_H_
#define PAGODA_CLIENTS_PYTHON_NATIVE_WIRE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pagoda::python {

// Reads the fields of a serialized protobuf message, one after another. The bytes can be anything.
// It reads varints and length-delimited fields only: the messages that it is for have no others.
class WireReader {
 public:
  // The bytes outlive this object.
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  // Moves to the next field. False at the end of the bytes, and at a field that it cannot read.
  bool Next();
  // After Next has returned false: whether all bytes were read.
  bool at_end() const { return rest_.empty() && !failed_; }

  // The field's number and kind, as in the message: number * 8 + wire type.
  uint64_t tag() const { return tag_; }
  static constexpr uint64_t Varint(uint64_t number) { return number * 8; }
  static constexpr uint64_t Bytes(uint64_t number) { return number * 8 + 2; }

  // The value of a varint field. REQUIRES: the field is one.
  uint64_t value() const { return value_; }
  // A field of type uint32 has the low bits, as protobuf reads it.
  uint32_t value32() const { return static_cast<uint32_t>(value_); }
  // The content of a length-delimited field. REQUIRES: the field is one.
  std::string_view bytes() const { return bytes_; }

 private:
  // Protobuf accepts tags and lengths of at most 5 bytes, and values of at most 10.
  static constexpr size_t kTagBytes = 5;
  static constexpr size_t kValueBytes = 10;
  bool ReadVarint(size_t most_bytes, uint64_t* value);

  std::string_view rest_;
  bool failed_ = false;
  uint64_t tag_ = 0;
  uint64_t value_ = 0;
  std::string_view bytes_;
};

inline bool WireReader::ReadVarint(size_t most_bytes, uint64_t* value) {
  if (!rest_.empty() && rest_[0] >= 0) [[likely]] {
    *value = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return true;
  }
  *value = 0;
  for (size_t i = 0; i < rest_.size() && i < most_bytes; ++i) {
    const auto byte = static_cast<uint8_t>(rest_[i]);
    *value |= uint64_t{byte & 0x7fu} << (7 * i);
    if (byte < 0x80) {
      rest_.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

inline bool WireReader::Next() {
  if (rest_.empty()) return false;
  failed_ = true;
  if (!ReadVarint(kTagBytes, &tag_) || tag_ >> 3 == 0) return false;
  if ((tag_ & 7) == 0) {
    failed_ = !ReadVarint(kValueBytes, &value_);
  } else if ((tag_ & 7) == 2) {
    uint64_t size;
    if (!ReadVarint(kTagBytes, &size) || size > rest_.size()) return false;
    bytes_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    failed_ = false;
  }
  return !failed_;
}

}  // namespace pagoda::python

#endif  // PAGODA_CLIENTS_PYTHON_NATIVE_WIRE_READER_H_
