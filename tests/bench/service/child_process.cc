#include "tests/bench/service/child_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

namespace pagoda::bench {

ChildProcess::ChildProcess(const std::vector<std::string>& arguments) {
  int in[2], out[2];
  // The ends are closed in other children too: a child must not hold another child's input open.
  PAGODA_CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "there are pipes");
  std::vector<std::string> strings = {"service_bench"};
  strings.insert(strings.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& string : strings) argv.push_back(string.data());
  argv.push_back(nullptr);
  pid_ = fork();
  PAGODA_CHECK(pid_ >= 0, "a process can be forked");
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  stdin_ = in[1];
  stdout_ = fdopen(out[0], "r");
}

void ChildProcess::TellToEnd() {
  if (stdin_ >= 0) close(stdin_);
  stdin_ = -1;
}

ChildProcess::~ChildProcess() {
  TellToEnd();
  int status = 0;
  waitpid(pid_, &status, 0);
  std::fclose(stdout_);
}

std::string ChildProcess::ReadLine() {
  std::string line;
  int c;
  while ((c = std::fgetc(stdout_)) != EOF && c != '\n') line.push_back(static_cast<char>(c));
  PAGODA_CHECK(c == '\n', "a child says what it has to say");
  return line;
}

void WaitUntilStdinCloses() {
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

}  // namespace pagoda::bench
