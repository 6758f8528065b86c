#include "server/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "server/metric_family.h"

namespace pagoda::server {
namespace {

// The second number of /proc/self/statm is the resident set in memory pages.
double ResidentMemoryBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

double OpenFds() {
  std::error_code error;
  const std::filesystem::directory_iterator fds("/proc/self/fd", error);
  return static_cast<double>(std::distance(begin(fds), end(fds)));
}

double MaxFds() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

std::vector<prometheus::MetricFamily> CollectProcessMetrics() {
  return {
      Gauge("process_resident_memory_bytes", "Resident memory size in bytes.",
            ResidentMemoryBytes()),
      Counter("process_cpu_seconds_total", "Total user and system CPU time in seconds.",
              CpuSeconds()),
      Gauge("process_open_fds", "Number of open file descriptors.", OpenFds()),
      Gauge("process_max_fds", "Maximum number of open file descriptors.", MaxFds()),
  };
}

}  // namespace pagoda::server
