#include "tests/events/heap_in_use.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace pagoda {
namespace {

std::atomic<size_t> bytes_in_use = 0;
std::atomic<size_t> allocations = 0;

// Before each piece of memory: its size.
constexpr size_t kHeader = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

size_t HeapInUse() { return bytes_in_use; }
size_t HeapAllocations() { return allocations; }

}  // namespace pagoda

void* operator new(size_t bytes) {
  char* const piece = static_cast<char*>(std::malloc(bytes + pagoda::kHeader));
  if (piece == nullptr) throw std::bad_alloc();
  new (piece) size_t(bytes);
  pagoda::bytes_in_use += bytes;
  ++pagoda::allocations;
  return piece + pagoda::kHeader;
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  char* const piece = static_cast<char*>(memory) - pagoda::kHeader;
  pagoda::bytes_in_use -= *reinterpret_cast<size_t*>(piece);
  std::free(piece);
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
