#include "base/thread.h"

#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"

namespace pagoda {
namespace {

// What a new thread needs. The thread owns it.
struct Work {
  std::string name;
  std::function<void()> body;
};

// noexcept: an exception could go nowhere.
void* RunWork(void* argument) noexcept {
  const std::unique_ptr<Work> work(static_cast<Work*>(argument));
  pthread_setname_np(pthread_self(), work->name.c_str());
  work->body();
  return nullptr;
}

// The first word after `key` in a file of the kernel; "" if there is none.
std::string WordAfter(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t begin = line.find_first_not_of(" \t", key.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// For people: how many threads there are, and what can limit them.
std::string ThreadsAndLimits() {
  std::string text = absl::StrCat("this process has ", WordAfter("/proc/self/status", "Threads:"),
                                  " threads; what can limit them: ulimit -u");
  rlimit limit = {};
  if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    absl::StrAppend(&text, " (", limit.rlim_cur, ")");
  }
  // The file of cgroup v2. A container sees its own group as the root.
  const std::string group =
      absl::StrCat("/sys/fs/cgroup", WordAfter("/proc/self/cgroup", "0::"), "/pids.max");
  const std::string most = WordAfter(group, "");
  return absl::StrCat(text, ", the cgroup's pids.max", most.empty() ? "" : " (", most,
                      most.empty() ? "" : ")", ", and free memory");
}

}  // namespace

absl::Status Thread::Start(std::string_view name, std::function<void()> body, size_t stack_bytes) {
  PAGODA_CHECK(!joinable(), "a thread is started once");
  // The kernel takes 15 bytes, and refuses a longer name.
  auto work = std::make_unique<Work>(Work{std::string(name.substr(0, 15)), std::move(body)});
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (stack_bytes != 0) pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_t handle = {};
  const int failed = pthread_create(&handle, &attributes, RunWork, work.get());
  pthread_attr_destroy(&attributes);
  if (failed != 0) {
    return MakeError(Reason::kThreadsExhausted,
                     absl::StrCat("the system refuses the thread ", work->name, ": ",
                                  std::strerror(failed), "; ", ThreadsAndLimits()));
  }
  static_cast<void>(work.release());  // The thread owns it.
  handle_ = handle;
  return absl::OkStatus();
}

void Thread::Join() {
  if (!joinable()) return;
  PAGODA_CHECK(pthread_join(*handle_, nullptr) == 0, "a thread does not wait for itself");
  handle_.reset();
}

void Thread::Detach() {
  if (!joinable()) return;
  pthread_detach(*handle_);
  handle_.reset();
}

absl::Status StartThreads(std::string_view name, size_t count, const std::function<void()>& body,
                          std::vector<Thread>* threads) {
  for (size_t i = 0; i < count; ++i) {
    Thread thread;
    if (absl::Status status = thread.Start(name, body); !status.ok()) return status;
    threads->push_back(std::move(thread));
  }
  return absl::OkStatus();
}

}  // namespace pagoda
