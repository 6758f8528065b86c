// Writes messages of protobuf as bytes, without building their objects.
#ifndef PAGODA_WIRE_BYTES_BACKWARD_WRITER_H_
#define PAGODA_WIRE_BYTES_BACKWARD_WRITER_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/types/span.h"
#include "google/protobuf/message_lite.h"

namespace pagoda {

// Writes from the end to the front, because a message's length precedes its contents and is known
// only once they are written. Fields are written in falling order, so that they appear in rising
// order. Thread-compatible.
class BackwardWriter {
 public:
  // Writes into `memory`, which outlives this object, and into memory of its own when that is full.
  explicit BackwardWriter(absl::Span<char> memory)
      : begin_(memory.data()), end_(begin_ + memory.size()), at_(end_) {}
  BackwardWriter(const BackwardWriter&) = delete;
  BackwardWriter& operator=(const BackwardWriter&) = delete;

  // What was written; valid until the next call.
  const char* data() const { return at_; }
  size_t size() const { return static_cast<size_t>(end_ - at_); }

  void Varint(uint64_t value) {
    char* out = Take(VarintSize(value));
    for (; value >= 0x80; value >>= 7) *out++ = static_cast<char>(value | 0x80);
    *out = static_cast<char>(value);
  }
  void Tag(int field, int type) {
    Varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
  }

  // A field; left out if it has the default value.
  void Number(int field, uint64_t value) {
    if (value != 0) Present(field, value);
  }
  void Present(int field, uint64_t value) {
    Varint(value);
    Tag(field, kVarint);
  }
  void Fixed(int field, uint64_t value) {
    if (value != 0) PresentFixed(field, value);
  }
  void PresentFixed(int field, uint64_t value) {
    FixedBytes(value);
    Tag(field, kFixed64);
  }
  void FixedBytes(uint64_t value) {
    static_assert(std::endian::native == std::endian::little, "the wire is little-endian");
    std::memcpy(Take(sizeof(value)), &value, sizeof(value));
  }
  void Text(int field, std::string_view text) {
    if (text.empty()) return;
    std::memcpy(Take(text.size()), text.data(), text.size());
    Varint(text.size());
    Tag(field, kBytes);
  }
  // A packed field of fixed32.
  void FixedWords(int field, absl::Span<const uint32_t> words) {
    Text(field, {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint32_t)});
  }
  // A message that exists as an object.
  void Embed(int field, const google::protobuf::MessageLite& message) {
    Message(field, [&] {
      const size_t bytes = message.ByteSizeLong();
      message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(Take(bytes)));
    });
  }
  // `contents` writes the message's contents. An empty message is left out if `keep_empty` is
  // false.
  template <class Contents>
  void Message(int field, Contents contents, bool keep_empty = true) {
    const size_t before = size();
    contents();
    if (size() == before && !keep_empty) return;
    Varint(size() - before);
    Tag(field, kBytes);
  }

 private:
  static constexpr int kVarint = 0;
  static constexpr int kFixed64 = 1;
  static constexpr int kBytes = 2;

  static size_t VarintSize(uint64_t value) {
    // A byte holds 7 bits. For 1 to 64 bits this is the quotient by 7, rounded up.
    return (static_cast<size_t>(std::bit_width(value | 1)) * 9 + 64) / 64;
  }

  // The place of the next bytes.
  char* Take(size_t bytes) {
    if (static_cast<size_t>(at_ - begin_) < bytes) [[unlikely]]
      Grow(bytes);
    return at_ -= bytes;
  }
  void Grow(size_t bytes) {
    const size_t used = size();
    const size_t capacity = std::max(2 * static_cast<size_t>(end_ - begin_), used + bytes);
    auto larger = std::make_unique_for_overwrite<char[]>(capacity);
    if (used != 0) std::memcpy(larger.get() + capacity - used, at_, used);
    own_ = std::move(larger);
    begin_ = own_.get();
    end_ = begin_ + capacity;
    at_ = end_ - used;
  }

  std::unique_ptr<char[]> own_;
  char* begin_;
  char* end_;
  char* at_;
};

}  // namespace pagoda

#endif  // PAGODA_WIRE_BYTES_BACKWARD_WRITER_H_
