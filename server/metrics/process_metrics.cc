#include "server/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "server/calls/metric_family.h"

namespace pagoda::server {
namespace {

struct Memory {
  double virtual_bytes;
  double resident_bytes;
};

// The first two numbers of /proc/self/statm, in memory pages.
Memory MemoryNow() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  return {static_cast<double>(total) * page, static_cast<double>(resident) * page};
}

double Entries(const char* folder) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  return static_cast<double>(std::distance(begin(entries), end(entries)));
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

double MaxFds() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

std::vector<prometheus::MetricFamily> CollectProcessMetrics() {
  const Memory memory = MemoryNow();
  return {
      Gauge("process_resident_memory_bytes", "Resident memory size in bytes.",
            memory.resident_bytes),
      Gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", memory.virtual_bytes),
      Counter("process_cpu_seconds_total", "Total user and system CPU time in seconds.",
              CpuSeconds()),
      Gauge("process_open_fds", "Number of open file descriptors.", Entries("/proc/self/fd")),
      Gauge("process_max_fds", "Maximum number of open file descriptors.", MaxFds()),
      Gauge("process_threads", "Number of threads.", Entries("/proc/self/task")),
  };
}

}  // namespace pagoda::server
