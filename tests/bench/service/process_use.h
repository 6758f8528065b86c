// The processes' use of the machine, from /proc.
#ifndef PAGODA_TESTS_BENCH_SERVICE_PROCESS_USE_H_
#define PAGODA_TESTS_BENCH_SERVICE_PROCESS_USE_H_

#include <sys/types.h>

#include <vector>

namespace pagoda::bench {

// The resident bytes of memory.
double ResidentBytes(pid_t pid);
// Returns ResidentBytes once it has not changed for half a second. By then a process has finished
// its work after a call (closing connections, giving memory back). Stops the process after a
// minute.
double SettledResidentBytes(pid_t pid);

// The processor seconds that the threads of the process have taken.
double ProcessorSeconds(pid_t pid);

// Measures how much processor time was taken by others than the benchmark's own processes: by other
// processes of this machine, and by the host if the machine is virtual. In steps of 10 ms.
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

#endif  // PAGODA_TESTS_BENCH_SERVICE_PROCESS_USE_H_
