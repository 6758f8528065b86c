// Counts the bytes of a rendering's values.
#ifndef PAGODA_ENGINE_TEXT_JINJA_VALUES_MEMORY_H_
#define PAGODA_ENGINE_TEXT_JINJA_VALUES_MEMORY_H_

#include <cstddef>
#include <utility>

namespace pagoda::jinja {

// The bytes that live values hold, and their limit. Thread-compatible. It outlives its Charges.
class Memory {
 public:
  explicit Memory(size_t limit) : limit_(limit) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  bool Fits(size_t bytes) const { return bytes <= limit_ - used_; }
  size_t used() const { return used_; }

 private:
  friend class Charge;
  const size_t limit_;
  size_t used_ = 0;
};

// Holds bytes of a Memory until it dies. A default one holds nothing: the values of a parsed
// template belong to no rendering.
class Charge {
 public:
  Charge() = default;
  // REQUIRES: memory->Fits(bytes).
  Charge(Memory* memory, size_t bytes) : memory_(memory), bytes_(bytes) { memory_->used_ += bytes; }
  Charge(Charge&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() {
    if (memory_ != nullptr) memory_->used_ -= bytes_;
  }

  // REQUIRES: the Memory fits them.
  void Add(size_t bytes) {
    bytes_ += bytes;
    memory_->used_ += bytes;
  }

 private:
  Memory* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_VALUES_MEMORY_H_
