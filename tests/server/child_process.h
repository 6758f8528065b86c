// A process that a test starts and kills.
#ifndef PAGODA_TESTS_SERVER_CHILD_PROCESS_H_
#define PAGODA_TESTS_SERVER_CHILD_PROCESS_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace pagoda::server {

// A fork of the test process. It runs a function, reports that it has, and waits until it is
// killed.
class ChildProcess {
 public:
  // A child that inherits the daemon's files also holds their locks.
  enum class Files { kInherited, kNone };

  explicit ChildProcess(const std::function<void()>& body, Files files = Files::kInherited) {
    int done[2];
    EXPECT_EQ(pipe(done), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (files == Files::kNone) {
        dup2(done[1], 3);
        done[1] = 3;
        close_range(4, ~0U, 0);
      }
      body();
      const bool told = write(done[1], "", 1) == 1;
      while (told) pause();
      _exit(1);
    }
    close(done[1]);
    char byte;
    EXPECT_EQ(read(done[0], &byte, 1), 1) << "the child has died";
    close(done[0]);
  }
  ~ChildProcess() { Kill(); }
  ChildProcess(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // When this returns, the process is dead and reaped.
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_TESTS_SERVER_CHILD_PROCESS_H_
