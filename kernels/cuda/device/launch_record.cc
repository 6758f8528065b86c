#include "kernels/cuda/device/launch_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"

namespace pagoda::kernels::cuda {
namespace {

thread_local LaunchRecord* current = nullptr;

std::string DifferenceOf(const RecordedLaunch& one, const RecordedLaunch& other) {
  if (one.name != other.name) return absl::StrCat("was ", one.name, ", is ", other.name);
  if (one.blocks != other.blocks) {
    return absl::StrCat("had ", Counted(one.blocks, "block"), ", has ", other.blocks);
  }
  if (one.threads != other.threads) {
    return absl::StrCat("had ", Counted(one.threads, "thread"), ", has ", other.threads);
  }
  if (one.shared_bytes != other.shared_bytes) {
    return absl::StrCat("had ", one.shared_bytes, " bytes of shared memory, has ",
                        other.shared_bytes);
  }
  const auto [at, there] = std::mismatch(one.arguments.begin(), one.arguments.end(),
                                         other.arguments.begin(), other.arguments.end());
  return absl::StrCat("byte ", at - one.arguments.begin(), " of its arguments");
}

}  // namespace

std::string DifferenceOf(const LaunchRecord& one, const LaunchRecord& other) {
  const size_t common = std::min(one.size(), other.size());
  for (size_t i = 0; i < common; ++i) {
    if (one[i] == other[i]) continue;
    return absl::StrCat("launch ", i, ", ", one[i].name, ": ", DifferenceOf(one[i], other[i]));
  }
  if (one.size() == other.size()) return "";
  return absl::StrCat("there were ", one.size(), " launches, there are ", other.size());
}

ScopedLaunchRecord::ScopedLaunchRecord(LaunchRecord* record)
    : before_(std::exchange(current, record)) {}

ScopedLaunchRecord::~ScopedLaunchRecord() { current = before_; }

LaunchRecord* CurrentLaunchRecord() { return current; }

}  // namespace pagoda::kernels::cuda
