// The memory of tables that are indexed by block id or slot.
#ifndef PAGODA_BASE_BIG_ARRAY_H_
#define PAGODA_BASE_BIG_ARRAY_H_

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <type_traits>

#include "base/check.h"

namespace pagoda {

// Memory that begins at a cache line, or at a huge page if it is large. It asks the system for huge
// pages, because random access to a million blocks otherwise waits for address translation. Stops
// the process if there is no memory. Free it with std::free.
void* AllocateBigArray(size_t bytes);

// Does what AllocateBigArray does, for memory that is read at random even while it is small: it
// asks for huge pages if the memory has at least the size of one. Its end stays in small pages.
void* AllocateScattered(size_t bytes);

// A fixed number of elements, each value-initialised. Thread-compatible.
template <class T, void* (*kAllocate)(size_t) = &AllocateBigArray>
class BigArray {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 64);

 public:
  BigArray() = default;
  explicit BigArray(size_t size)
      : elements_(static_cast<T*>(kAllocate(size * sizeof(T)))), size_(size) {
    std::uninitialized_value_construct_n(elements_.get(), size);
  }

  size_t size() const { return size_; }
  T* data() { return elements_.get(); }
  const T* data() const { return elements_.get(); }
  T& operator[](size_t i) { return elements_.get()[i]; }
  const T& operator[](size_t i) const { return elements_.get()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  struct Free {
    void operator()(T* elements) const { std::free(elements); }
  };

  std::unique_ptr<T[], Free> elements_;
  size_t size_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_BASE_BIG_ARRAY_H_
