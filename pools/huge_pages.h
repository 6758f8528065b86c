// The pages that host memory consists of: what is asked for, what there is, and what the system
// says about both.
#ifndef PAGODA_POOLS_HUGE_PAGES_H_
#define PAGODA_POOLS_HUGE_PAGES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda {

// What is asked for. Where the system does not have it, memory takes the next smaller pages.
enum class HugePages : uint8_t {
  kAuto,  // The largest that the system offers without being changed.
  k2MiB,
  k1GiB,
  kOff,  // The system's small pages.
};

// What memory consists of, the smallest first.
enum class MemoryPages : uint8_t {
  kPlain,        // The system's small pages.
  kTransparent,  // Shared memory for which the kernel takes huge pages where it finds them.
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

// The size of a transparent huge page. Memory below it has none.
inline constexpr uint64_t kTransparentPageBytes = uint64_t{2} << 20;

// What the system says about huge pages. A test says something else. Thread-safe.
class HugePageProbe {
 public:
  virtual ~HugePageProbe() = default;
  // This machine's, which reads /proc and /sys at each call.
  static const HugePageProbe& System();

  // The huge pages of that size that the kernel can still reserve; 0 where it has no such size.
  virtual uint64_t FreePages(uint64_t page_bytes) const = 0;
  // The kernel's setting for shared memory without a name, shmem_enabled: "always", "within_size",
  // "advise", "never", "deny" or "force"; "" where it has none.
  virtual std::string ShmemEnabled() const = 0;
  // The setting of /dev/shm, its mount option `huge`: "always", "within_size", "advise" or "never".
  virtual std::string ShmMount() const = 0;
  // Whether a reserved huge page of that size may be refused to this process when it touches it: by
  // its cgroup, its cpuset or its memory policy. Then such a touch would be a SIGBUS.
  virtual bool LimitsFaults(uint64_t page_bytes) const = 0;
};

// When memory takes its pages.
enum class Reservation : uint8_t {
  kWhole,   // At the start. Huge pages of the kernel's pool are reserved then, and taken when
            // touched.
  kSparse,  // When they are touched. It opens in milliseconds, whatever its size.
};

// How memory is to be made.
struct PageRequest {
  HugePages huge_pages = HugePages::kOff;
  Reservation reservation = Reservation::kWhole;
  const HugePageProbe* probe = nullptr;  // Null: the system. Outlives the call.

  const HugePageProbe& system() const {
    return probe == nullptr ? HugePageProbe::System() : *probe;
  }
};

// Whether the kernel gives transparent huge pages to memory that asks for them (MADV_HUGEPAGE):
// without a name, and in /dev/shm.
bool TransparentWithoutName(const HugePageProbe& probe);
bool TransparentInShm(const HugePageProbe& probe);

}  // namespace pagoda

#endif  // PAGODA_POOLS_HUGE_PAGES_H_
