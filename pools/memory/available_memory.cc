#include "pools/memory/available_memory.h"

#include <algorithm>
#include <fstream>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace pagoda {
namespace {

// Without a limit, files of version 1 hold a number beyond any memory.
constexpr uint64_t kNoMemoryLimit = uint64_t{1} << 60;

// The names of a version of cgroups.
struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* active_files;  // In memory.stat.
  const char* inactive_files;
};
constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_active_file", "total_inactive_file"};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", "active_file", "inactive_file"};

// Returns nullopt for "max", and for a file that is missing or has no number.
std::optional<uint64_t> NumberOf(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  uint64_t number = 0;
  if (!(file >> text) || !absl::SimpleAtoi(text, &number)) return std::nullopt;
  return number;
}

// A row of memory.stat.
std::optional<uint64_t> StatOf(const std::string& folder, std::string_view key) {
  std::ifstream file(absl::StrCat(folder, "/memory.stat"));
  std::string name;
  uint64_t number = 0;
  while (file >> name >> number) {
    if (name == key) return number;
  }
  return std::nullopt;
}

// The path of the process's cgroup in a hierarchy.
std::optional<std::string> CgroupPath(const std::string& root, bool version_2) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // "0::/a/b", "4:cpu,memory:/a/b"
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    const bool has_memory =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    if (version_2 ? fields[0] == "0" && fields[1].empty() : has_memory) return fields[2];
  }
  return std::nullopt;
}

void Consider(const std::string& root, const std::string& folder, const CgroupFiles& files,
              std::optional<CgroupLimit>& least) {
  uint64_t limit = NumberOf(absl::StrCat(root, folder, "/", files.limit)).value_or(kNoMemoryLimit);
  std::string file = absl::StrCat(folder, "/", files.limit);
  // Version 2 has no such row.
  const std::optional<uint64_t> whole = StatOf(root + folder, "hierarchical_memory_limit");
  if (whole.value_or(kNoMemoryLimit) < limit) {
    limit = *whole;
    file = absl::StrCat(folder, "/memory.stat");
  }
  if (limit >= kNoMemoryLimit) return;
  const uint64_t usage = NumberOf(absl::StrCat(root, folder, "/", files.usage)).value_or(0);
  const uint64_t droppable = StatOf(root + folder, files.active_files).value_or(0) +
                             StatOf(root + folder, files.inactive_files).value_or(0);
  const uint64_t used = usage - std::min(usage, droppable);
  const uint64_t available = limit - std::min(limit, used);
  if (least.has_value() && least->available_bytes <= available) return;
  least = CgroupLimit{.file = file, .limit_bytes = limit, .available_bytes = available};
}

}  // namespace

std::optional<CgroupLimit> TightestCgroupLimit(const std::string& root) {
  std::optional<CgroupLimit> least;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  std::string line;
  while (std::getline(mounts, line)) {
    // "35 31 0:32 /a /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory"
    const std::vector<std::string> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (halves.size() != 2) continue;
    const std::vector<std::string> front = absl::StrSplit(halves[0], ' ');
    const std::vector<std::string> back = absl::StrSplit(halves[1], ' ');
    if (front.size() < 5 || back.size() < 3) continue;
    const bool version_2 = back[0] == "cgroup2";
    const std::vector<std::string> options = absl::StrSplit(back[2], ',');
    const bool version_1 =
        back[0] == "cgroup" && std::find(options.begin(), options.end(), "memory") != options.end();
    if (!version_1 && !version_2) continue;
    std::string path = CgroupPath(root, version_2).value_or("/");
    // The mount can show a part of the hierarchy only: a container's own cgroup, for example.
    const std::string& shown = front[3];
    if (shown != "/") {
      const bool inside = path == shown || path.rfind(shown + "/", 0) == 0;
      path = inside ? path.substr(shown.size()) : "";
    }
    // From the process's cgroup up to the mount's top. A folder that the mount does not show is
    // passed over.
    while (!path.empty() && path.back() == '/') path.pop_back();
    while (true) {
      Consider(root, front[4] + path, version_2 ? kVersion2 : kVersion1, least);
      if (path.empty()) break;
      const size_t slash = path.rfind('/');
      path.resize(slash == std::string::npos ? 0 : slash);
    }
  }
  return least;
}

absl::StatusOr<uint64_t> AvailableMemoryBytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    unsigned long long kibibytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kibibytes) != 1) continue;
    const std::optional<CgroupLimit> cgroup = TightestCgroupLimit(root);
    const uint64_t machine = uint64_t{kibibytes} * 1024;
    return cgroup.has_value() ? std::min(machine, cgroup->available_bytes) : machine;
  }
  return absl::NotFoundError("/proc/meminfo has no MemAvailable");
}

}  // namespace pagoda
