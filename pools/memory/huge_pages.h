// The pages of host memory: the requested sizes, the sizes that memory has, and the system's
// settings.
#ifndef PAGODA_POOLS_MEMORY_HUGE_PAGES_H_
#define PAGODA_POOLS_MEMORY_HUGE_PAGES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda {

// The requested pages. If the system lacks them, memory takes the next smaller ones.
enum class HugePages : uint8_t {
  kAuto,  // The largest that the system offers without a change of its settings.
  k2MiB,
  k1GiB,
  kOff,  // The system's base pages.
};

// The pages of some memory, smallest first.
enum class MemoryPages : uint8_t {
  kPlain,        // The system's base pages.
  kTransparent,  // Shared memory for which the kernel takes huge pages if it finds free ones.
  k2MiB,         // Pages of the kernel's pool of huge pages (hugetlb).
  k1GiB,
};
inline constexpr int kNumMemoryPages = 4;

// "plain", "transparent", "2MiB" or "1GiB".
std::string_view PagesName(MemoryPages pages);
// For people: "plain pages", "transparent huge pages", "huge pages of 2 MiB" or "of 1 GiB".
std::string_view PagesText(MemoryPages pages);
// The size of a page of the kernel's pool of huge pages; 0 for other pages.
uint64_t HugetlbPageBytes(MemoryPages pages);

// The size of a transparent huge page. Smaller memory has none.
inline constexpr uint64_t kTransparentPageBytes = uint64_t{2} << 20;

// The system's state and settings of huge pages. Tests replace it. Thread-safe.
class HugePageProbe {
 public:
  virtual ~HugePageProbe() = default;
  // This machine's state. It reads /proc and /sys at each call.
  static const HugePageProbe& System();

  // The number of huge pages of that size that the kernel can still reserve; 0 if the kernel does
  // not support that size.
  virtual uint64_t FreePages(uint64_t page_bytes) const = 0;
  // The kernel's setting for shared memory without a name, shmem_enabled: "always", "within_size",
  // "advise", "never", "deny" or "force"; "" if the kernel has no such setting.
  virtual std::string ShmemEnabled() const = 0;
  // The setting of /dev/shm, its mount option `huge`: "always", "within_size", "advise" or "never".
  virtual std::string ShmMount() const = 0;
  // Whether the system can refuse a reserved huge page of that size when this process touches it,
  // because of its cgroup, its cpuset or its memory policy. Such a touch would be a SIGBUS.
  virtual bool LimitsFaults(uint64_t page_bytes) const = 0;
};

// When memory takes its pages.
enum class Reservation : uint8_t {
  kWhole,   // At the start. Huge pages of the kernel's pool are reserved then, and taken when
            // touched.
  kSparse,  // When they are touched. Memory of any size opens in milliseconds.
};

// How memory takes its pages.
struct PageRequest {
  HugePages huge_pages = HugePages::kOff;
  Reservation reservation = Reservation::kWhole;
  const HugePageProbe* probe = nullptr;  // Null: the system. Must outlive the call.

  const HugePageProbe& system() const {
    return probe == nullptr ? HugePageProbe::System() : *probe;
  }
};

// Whether the kernel gives transparent huge pages to memory that asks for them (MADV_HUGEPAGE): to
// memory without a name, and to memory in /dev/shm.
bool TransparentWithoutName(const HugePageProbe& probe);
bool TransparentInShm(const HugePageProbe& probe);

}  // namespace pagoda

#endif  // PAGODA_POOLS_MEMORY_HUGE_PAGES_H_
