#ifndef PAGODA_TESTS_CLIENTS_TEMP_DIRECTORY_H_
#define PAGODA_TESTS_CLIENTS_TEMP_DIRECTORY_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/check.h"
#include "gtest/gtest.h"

namespace pagoda {

// A new folder, removed with its content at the end. Tests that run at the same time, or ran
// earlier as another user, do not collide.
class TempDirectory {
 public:
  TempDirectory() : path_(testing::TempDir() + "/pagoda-XXXXXX") {
    PAGODA_CHECK(mkdtemp(path_.data()) != nullptr, "a temporary directory can be made");
  }
  ~TempDirectory() { std::filesystem::remove_all(path_); }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }
  // The path of a file in it.
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_CLIENTS_TEMP_DIRECTORY_H_
