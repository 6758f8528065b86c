#include "tests/bench/service/process_use.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"

namespace pagoda::bench {
namespace {

double TicksToSeconds(uint64_t ticks) {
  return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// User and system time of a process.
double ProcessSeconds(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  // The program's name, in parentheses, may hold anything; twelve fields stand between it and
  // utime.
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  uint64_t user = 0, system = 0;
  fields >> user >> system;
  return TicksToSeconds(user + system);
}

// The time of all processors that is not idle, including time that other machines have stolen.
double BusySeconds() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  uint64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  file >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  return TicksToSeconds(user + nice + system + irq + softirq + steal);
}

}  // namespace

double ResidentBytes(pid_t pid) {
  uint64_t size = 0, resident = 0;
  std::ifstream(absl::StrCat("/proc/", pid, "/statm")) >> size >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double SettledResidentBytes(pid_t pid) {
  constexpr int kSameReadings = 10;
  constexpr int kMostReadings = 1200;
  double last = ResidentBytes(pid);
  for (int readings = 0, same = 0; same < kSameReadings; ++readings) {
    PAGODA_CHECK(readings < kMostReadings, "an idle process's memory settles");
    absl::SleepFor(absl::Milliseconds(50));
    const double now = ResidentBytes(pid);
    same = now == last ? same + 1 : 0;
    last = now;
  }
  return last;
}

double ProcessorSeconds(pid_t pid) {
  double nanoseconds = 0;
  for (const auto& thread :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"))) {
    double one = 0;
    std::ifstream(thread.path() / "schedstat") >> one;
    nanoseconds += one;
  }
  return nanoseconds / 1e9;
}

double ForeignUse::Seconds() const {
  double own = 0;
  for (const pid_t pid : own_) own += ProcessSeconds(pid);
  return BusySeconds() - own;
}

double ForeignUse::Take() {
  const double now = Seconds();
  const double taken = now - last_;
  last_ = now;
  return taken;
}

}  // namespace pagoda::bench
