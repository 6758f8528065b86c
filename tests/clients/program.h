// Runs pagodactl as a process.
#ifndef PAGODA_TESTS_CLIENTS_PROGRAM_H_
#define PAGODA_TESTS_CLIENTS_PROGRAM_H_

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/clients/temp_directory.h"

namespace pagoda {

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// Runs pagodactl through the shell, so that `arguments` may hold quotes and redirections of its
// input. `environment` holds arguments of env(1).
inline Outcome RunProgram(const std::string& arguments, const std::string& environment = "") {
  const TempDirectory directory;
  const std::string out = directory.File("out");
  const std::string err = directory.File("err");
  const std::string command =
      absl::StrCat("env ", environment, " ", PAGODACTL, " ", arguments, " >", out, " 2>", err);
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(out), ReadFile(err)};
}

inline std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_CLIENTS_PROGRAM_H_
