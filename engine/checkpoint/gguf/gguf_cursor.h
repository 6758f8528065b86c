// Reads the numbers and names of a GGUF file in order.
#ifndef PAGODA_ENGINE_CHECKPOINT_GGUF_GGUF_CURSOR_H_
#define PAGODA_ENGINE_CHECKPOINT_GGUF_GGUF_CURSOR_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/error.h"

namespace pagoda {

inline absl::Status InvalidCheckpoint(absl::string_view what) {
  return MakeError(Reason::kInvalidCheckpoint, std::string(what));
}

static_assert(std::endian::native == std::endian::little, "numbers are read without conversion");

// Reads from the front and keeps the first error. After an error everything is 0 and empty.
class GgufCursor {
 public:
  explicit GgufCursor(absl::Span<const std::byte> bytes) : bytes_(bytes) {}

  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }
  // All bytes that are left, without moving.
  absl::Span<const std::byte> Rest() const { return bytes_.subspan(position_); }

  // The error does not have the file's name.
  void Fail(absl::string_view what) {
    if (ok()) status_ = InvalidCheckpoint(what);
  }

  absl::Span<const std::byte> Take(uint64_t count) {
    if (count > left()) Fail("ends within its header");
    if (!ok()) return {};
    position_ += count;
    return bytes_.subspan(position_ - count, count);
  }

  template <class T>
  T Number() {
    T number{};
    const absl::Span<const std::byte> bytes = Take(sizeof(T));
    if (!bytes.empty()) std::memcpy(&number, bytes.data(), sizeof(T));
    return number;
  }

  absl::string_view Text() {
    const absl::Span<const std::byte> bytes = Take(Number<uint64_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::string Name() {
    const absl::string_view name = Text();
    constexpr uint64_t kMaxNameBytes = 65535;  // The format's own limit for keys.
    if (name.size() > kMaxNameBytes) Fail(absl::StrCat("has a name of ", name.size(), " bytes"));
    return std::string(name.substr(0, kMaxNameBytes));
  }

 private:
  const absl::Span<const std::byte> bytes_;
  uint64_t position_ = 0;
  absl::Status status_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_GGUF_GGUF_CURSOR_H_
