// What processes use of the machine, as /proc tells it.
#ifndef PAGODA_TESTS_BENCH_PROCESS_USE_H_
#define PAGODA_TESTS_BENCH_PROCESS_USE_H_

#include <sys/types.h>

#include <vector>

namespace pagoda::bench {

// Bytes of memory that are resident.
double ResidentBytes(pid_t pid);
// As ResidentBytes, once it has not changed for half a second: what a process does after a call
// (closing connections, giving memory back) is over then. Stops the process after a minute.
double SettledResidentBytes(pid_t pid);

// Tells how much of the processors others than the benchmark's own processes have taken, of this
// machine and, where it is a virtual one, from it. In steps of 10 ms.
class ForeignUse {
 public:
  // `own`: the benchmark's processes.
  explicit ForeignUse(std::vector<pid_t> own) : own_(std::move(own)), last_(Seconds()) {}
  // Processor seconds since the last call, or since the beginning.
  double Take();

 private:
  double Seconds() const;

  const std::vector<pid_t> own_;
  double last_;
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_PROCESS_USE_H_
