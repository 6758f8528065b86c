// File I/O on threads: preadv and pwritev, one request per thread at a time.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/thread.h"
#include "pools/file/file_engine.h"

namespace pagoda {
namespace {

constexpr uint32_t kMaxThreads = 16;

// Moves all bytes. Returns 0 or an errno.
int MoveAll(int fd, FileRequest& request) {
  while (true) {
    const auto offset = static_cast<off_t>(request.offset_bytes);
    const int count = static_cast<int>(request.pieces.size());
    const ssize_t moved = request.kind == FileRequest::Kind::kRead
                              ? preadv(fd, request.pieces.data(), count, offset)
                              : pwritev(fd, request.pieces.data(), count, offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return errno;
    if (moved == 0) return request.kind == FileRequest::Kind::kRead ? kEndOfFile : EIO;
    if (Advance(request, static_cast<uint64_t>(moved))) return 0;
  }
}

int Sync(int fd) {
  while (fdatasync(fd) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

class ThreadEngine final : public FileEngine {
 public:
  ThreadEngine(int fd, uint32_t depth) : fd_(fd), depth_(depth) {}
  ~ThreadEngine() override { Stop(); }

  absl::Status Start() {
    return StartThreads(
        "pagoda-file", std::min(depth_, kMaxThreads), [this] { Run(); }, &threads_);
  }

  void Submit(FileRequest request) override ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    PAGODA_CHECK(!stopping_ || running_ > 0, "a request after the engine's end");
    PAGODA_CHECK(unreported_ < depth_, "more requests than the engine's depth");
    ++unreported_;
    queue_.push_back(std::move(request));
  }

  void Stop() override ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      const absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    for (Thread& thread : threads_) thread.Join();
    threads_.clear();
  }

  std::string_view name() const override { return "threads"; }

 private:
  bool HasWorkOrEnds() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !queue_.empty() || (stopping_ && unreported_ == 0 && running_ == 0);
  }

  void Run() ABSL_LOCKS_EXCLUDED(mutex_) {
    while (true) {
      FileRequest request;
      {
        const absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &ThreadEngine::HasWorkOrEnds));
        if (queue_.empty()) return;
        request = std::move(queue_.front());
        queue_.pop_front();
        ++running_;
      }
      int error;
      if (request.kind == FileRequest::Kind::kSync) {
        error = Sync(fd_);
      } else {
        error = MoveAll(fd_, request);
      }
      {
        const absl::MutexLock lock(&mutex_);
        --unreported_;  // `done` may submit the next request.
      }
      request.done(error);
      const absl::MutexLock lock(&mutex_);
      --running_;
    }
  }

  const int fd_;
  const uint32_t depth_;
  absl::Mutex mutex_;
  std::deque<FileRequest> queue_ ABSL_GUARDED_BY(mutex_);
  uint32_t unreported_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t running_ ABSL_GUARDED_BY(mutex_) = 0;  // Includes running `done` calls.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileEngine>> MakeThreadEngine(int fd, uint32_t depth) {
  auto engine = std::make_unique<ThreadEngine>(fd, depth);
  if (absl::Status status = engine->Start(); !status.ok()) return status;
  return engine;
}

}  // namespace pagoda
