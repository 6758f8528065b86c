#include "base/big_array.h"

#include <sys/mman.h>

namespace pagoda {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
// Smaller arrays get no huge pages: the unfilled part of the last one would weigh too much.
constexpr size_t kLarge = 4 * kHugePage;

}  // namespace

void* AllocateBigArray(size_t bytes) {
  const bool large = bytes >= kLarge;
  const size_t alignment = large ? kHugePage : kCacheLine;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  PAGODA_CHECK(memory != nullptr, "there is memory for the tables of the blocks");
  // Only a hint: if the kernel refuses, the memory works too, more slowly.
  if (large) static_cast<void>(madvise(memory, rounded, MADV_HUGEPAGE));
  return memory;
}

void* AllocateScattered(size_t bytes) {
  const size_t whole_pages = bytes / kHugePage * kHugePage;
  if (whole_pages == 0) return AllocateBigArray(bytes);
  void* memory = std::aligned_alloc(kHugePage, bytes);
  PAGODA_CHECK(memory != nullptr, "there is memory for the tables of the blocks");
  static_cast<void>(madvise(memory, whole_pages, MADV_HUGEPAGE));
  return memory;
}

}  // namespace pagoda
