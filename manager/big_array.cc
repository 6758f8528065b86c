#include "manager/big_array.h"

#include <sys/mman.h>

namespace pagoda {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
// Below this, the last huge page that is begun and not filled would count.
constexpr size_t kLarge = 4 * kHugePage;

}  // namespace

void* AllocateBigArray(size_t bytes) {
  const bool large = bytes >= kLarge;
  const size_t alignment = large ? kHugePage : kCacheLine;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  PAGODA_CHECK(memory != nullptr, "there is memory for the tables of the blocks");
  // A wish: a kernel that refuses serves as well, more slowly.
  if (large) static_cast<void>(madvise(memory, rounded, MADV_HUGEPAGE));
  return memory;
}

}  // namespace pagoda
