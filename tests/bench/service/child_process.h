// Runs the benchmark's own program again, as another process with another task.
#ifndef PAGODA_TESTS_BENCH_SERVICE_CHILD_PROCESS_H_
#define PAGODA_TESTS_BENCH_SERVICE_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace pagoda::bench {

// Runs until it is destroyed, or until this process ends in any way: then the child's standard
// input is closed, which tells it to end. Not thread-safe.
class ChildProcess {
 public:
  // Runs this program with `arguments`.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  // Waits until the child has ended.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // The next line of the child's standard output, without its line end. Stops the process if there
  // is none; the child has then printed the reason on standard error.
  std::string ReadLine();
  // Closes the child's standard input, which tells it to end. What it prints can still be read.
  void TellToEnd();

 private:
  pid_t pid_;
  int stdin_;
  std::FILE* stdout_;
};

// Blocks until standard input is closed. A child calls it when it is ready.
void WaitUntilStdinCloses();

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_SERVICE_CHILD_PROCESS_H_
