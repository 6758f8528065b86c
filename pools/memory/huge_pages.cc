#include "pools/memory/huge_pages.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

constexpr char kShm[] = "/dev/shm";
constexpr char kShmemEnabled[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
constexpr char kCgroups[] = "/sys/fs/cgroup";

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

uint64_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? number : 0;
}

// The word in brackets of "always [madvise] never".
std::string ChosenWord(const std::string& line) {
  const size_t begin = line.find('[');
  const size_t end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  return line.substr(begin + 1, end - begin - 1);
}

// The numbers in a list such as "0-3,8".
std::set<int> NodeList(const std::string& list) {
  std::set<int> nodes;
  std::istringstream parts(list);
  std::string part;
  while (std::getline(parts, part, ',')) {
    int first = 0;
    int last = 0;
    const int found = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    for (int node = first; found > 0 && node <= (found == 2 ? last : first); ++node) {
      nodes.insert(node);
    }
  }
  return nodes;
}

// Whether the process can take memory of some nodes only.
bool HasFewerNodes() {
  std::ifstream status("/proc/self/status");
  constexpr std::string_view kKey = "Mems_allowed_list:";
  std::string line;
  while (std::getline(status, line)) {
    if (line.compare(0, kKey.size(), kKey) != 0) continue;
    const std::set<int> allowed = NodeList(line.substr(kKey.size()));
    const std::set<int> all = NodeList(FirstLine("/sys/devices/system/node/has_memory"));
    return !std::includes(allowed.begin(), allowed.end(), all.begin(), all.end());
  }
  return false;
}

// Whether the thread has a memory policy.
bool HasMemoryPolicy() {
  int mode = 0;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 && mode != 0;
}

// Whether the process's cgroup, or a parent of it, limits huge pages of that size. The file is
// "hugetlb.2MB.max" in version 2 of cgroups and "hugetlb.2MB.limit_in_bytes" in version 1. Without
// a limit, the latter holds a number beyond any memory.
bool HasCgroupLimit(uint64_t page_bytes) {
  const std::string size = page_bytes < uint64_t{1} << 30 ? absl::StrCat(page_bytes >> 20, "MB")
                                                          : absl::StrCat(page_bytes >> 30, "GB");
  constexpr uint64_t kNoLimit = uint64_t{1} << 60;
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {  // "0::/a/b", "4:hugetlb:/a/b"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "hugetlb") continue;
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    while (true) {
      const std::string folder = controllers.empty() ? absl::StrCat(kCgroups, path)
                                                     : absl::StrCat(kCgroups, "/hugetlb", path);
      const std::string file =
          absl::StrCat(folder, "/hugetlb.", size, controllers.empty() ? ".max" : ".limit_in_bytes");
      const std::string limit = FirstLine(file);
      if (!limit.empty() && limit != "max" && NumberIn(file) < kNoLimit) return true;
      if (path.empty()) break;
      path.resize(path.rfind('/'));
    }
  }
  return false;
}

class SystemProbe final : public HugePageProbe {
 public:
  // Free pages that are not reserved, and pages that the kernel can still make from other memory.
  uint64_t FreePages(uint64_t page_bytes) const override {
    const std::string folder =
        absl::StrCat("/sys/kernel/mm/hugepages/hugepages-", page_bytes >> 10, "kB/");
    const uint64_t free = NumberIn(folder + "free_hugepages");
    const uint64_t reserved = NumberIn(folder + "resv_hugepages");
    const uint64_t more = NumberIn(folder + "nr_overcommit_hugepages");
    const uint64_t made = NumberIn(folder + "surplus_hugepages");
    return free - std::min(free, reserved) + (more - std::min(more, made));
  }

  std::string ShmemEnabled() const override { return ChosenWord(FirstLine(kShmemEnabled)); }

  std::string ShmMount() const override {
    std::ifstream mounts("/proc/self/mounts");
    std::string line;
    std::string huge = "never";
    while (std::getline(mounts, line)) {  // Only the last mount on a folder is visible.
      std::istringstream fields(line);
      std::string device, folder, type, options;
      fields >> device >> folder >> type >> options;
      if (folder != kShm || type != "tmpfs") continue;
      huge = "never";
      std::istringstream parts(options);
      std::string option;
      while (std::getline(parts, option, ',')) {
        if (option.compare(0, 5, "huge=") == 0) huge = option.substr(5);
      }
    }
    return huge;
  }

  bool LimitsFaults(uint64_t page_bytes) const override {
    return HasCgroupLimit(page_bytes) || HasFewerNodes() || HasMemoryPolicy();
  }
};

bool Gives(const std::string& setting) {
  return setting == "always" || setting == "within_size" || setting == "advise";
}

}  // namespace

std::string_view PagesName(MemoryPages pages) {
  switch (pages) {
    case MemoryPages::kPlain:
      return "plain";
    case MemoryPages::kTransparent:
      return "transparent";
    case MemoryPages::k2MiB:
      return "2MiB";
    case MemoryPages::k1GiB:
      return "1GiB";
  }
  return "unknown";
}

std::string_view PagesText(MemoryPages pages) {
  switch (pages) {
    case MemoryPages::kPlain:
      return "plain pages";
    case MemoryPages::kTransparent:
      return "transparent huge pages";
    case MemoryPages::k2MiB:
      return "huge pages of 2 MiB";
    case MemoryPages::k1GiB:
      return "huge pages of 1 GiB";
  }
  return "unknown";
}

uint64_t HugetlbPageBytes(MemoryPages pages) {
  if (pages == MemoryPages::k2MiB) return uint64_t{2} << 20;
  return pages == MemoryPages::k1GiB ? uint64_t{1} << 30 : 0;
}

const HugePageProbe& HugePageProbe::System() {
  static const SystemProbe system;
  return system;
}

bool TransparentWithoutName(const HugePageProbe& probe) {
  const std::string setting = probe.ShmemEnabled();
  return setting == "force" || Gives(setting);
}

// "deny" and "force" apply to every mount.
bool TransparentInShm(const HugePageProbe& probe) {
  const std::string setting = probe.ShmemEnabled();
  return setting == "force" || (setting != "deny" && !setting.empty() && Gives(probe.ShmMount()));
}

}  // namespace pagoda
