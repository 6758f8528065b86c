// A pagodad process, which a test can kill or stop.
#ifndef PAGODA_TESTS_CLIENTS_ROUTER_DAEMON_PROCESS_H_
#define PAGODA_TESTS_CLIENTS_ROUTER_DAEMON_PROCESS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "clients/cpp/channel.h"
#include "tests/clients/fixtures/temp_directory.h"
#include "tests/clients/router/await.h"

namespace pagoda {

// A small cache in host memory, served at a Unix socket. If the test dies, the kernel kills it.
class DaemonProcess {
 public:
  // `name`: of its cache; unique on the machine. `program`: the path of pagodad.
  DaemonProcess(const std::string& name, const std::string& program) : program_(program) {
    std::ofstream(directory_.File("pagodad.yaml"))
        << "cache: {name: " << name << "-" << getpid()
        << ", tokens_per_block: 4, kv_dtype: float32, primary: 64, primary_memory: host, "
           "huge_pages: off, layers: {count: 1, num_kv_heads: 1, head_dim: 8}}\n"
        << "server: {unix_socket: " << socket() << ", grpc_address: '', http_address: ''}\n"
        << "events: {progress_interval: 50ms, flush_interval: 1ms}\n";
    Start();
  }
  ~DaemonProcess() { Kill(); }
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  std::string socket() const { return directory_.File("pagodad.sock"); }
  std::string endpoint() const { return absl::StrCat("unix:", socket()); }

  // Waits until it answers.
  void Start() {
    const std::string config = directory_.File("pagodad.yaml"), log = directory_.File("log");
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(out, STDOUT_FILENO);
      dup2(out, STDERR_FILENO);
      execl(program_.c_str(), program_.c_str(), "--config", config.c_str(), nullptr);
      _exit(127);
    }
    Await([&] { return Connect(endpoint(), absl::Seconds(1)).ok(); }, "the daemon starts");
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
    pid_ = 0;
  }
  void Signal(int signal) const { EXPECT_EQ(kill(pid_, signal), 0); }

 private:
  const std::string program_;
  const TempDirectory directory_;
  pid_t pid_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_CLIENTS_ROUTER_DAEMON_PROCESS_H_
