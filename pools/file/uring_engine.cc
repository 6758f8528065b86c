// File I/O over io_uring. Callers fill the submission queue under a lock; one thread reaps.
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/thread.h"
#include "pools/file/file_engine.h"

#ifdef PAGODA_HAS_LIBURING

#include <liburing.h>

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"

namespace pagoda {
namespace {

// The kernel is temporarily short of memory or of space for completions.
bool IsTransient(int error) {
  return error == EINTR || error == EAGAIN || error == EBUSY || error == ENOMEM;
}

// The kernel has not carried out the request, but can if a thread that stays submits it. The kernel
// cancels requests of a thread that ends, or ends them with EFAULT.
bool IsWorthRetrying(int error) {
  return error == EINTR || error == EAGAIN || error == ECANCELED || error == EFAULT;
}

class UringEngine final : public FileEngine {
 public:
  // Takes over a ring of at least `depth` + 1 entries. The last entry is for Stop.
  UringEngine(int fd, uint32_t depth, const io_uring& ring) : fd_(fd), depth_(depth), ring_(ring) {}
  ~UringEngine() override {
    Stop();
    io_uring_queue_exit(&ring_);
  }

  absl::Status Start() {
    return reaper_.Start("pagoda-uring", [this] { Reap(); });
  }

  void Submit(FileRequest request) override ABSL_LOCKS_EXCLUDED(mutex_) {
    auto running = std::make_unique<Running>(Running{.request = std::move(request)});
    const absl::MutexLock lock(&mutex_);
    Begin();
    Queue(running.release());
    Flush();
  }

  void SubmitAll(std::vector<FileRequest> requests) override ABSL_LOCKS_EXCLUDED(mutex_) {
    const absl::MutexLock lock(&mutex_);
    for (FileRequest& request : requests) {
      auto running = std::make_unique<Running>(Running{.request = std::move(request)});
      Begin();
      Queue(running.release());
    }
    Flush();
  }

  void Stop() override ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!reaper_.joinable()) return;
    {
      const absl::MutexLock lock(&mutex_);
      if (stopping_) return;
      stopping_ = true;
      mutex_.Await(absl::Condition(this, &UringEngine::IsIdle));
      Queue(nullptr);
      Flush();
    }
    reaper_.Join();
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  static constexpr int kMaxRetries = 100;

  struct Running {
    FileRequest request;
    int retries = 0;  // Since the last bytes were moved.
  };

  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_ == 0; }

  void Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    PAGODA_CHECK(!stopping_ || running_ > 0, "a request after the engine's end");
    PAGODA_CHECK(unreported_ < depth_, "more requests than the engine's depth");
    ++unreported_;
    ++running_;
  }

  // The kernel owns the request until its completion. Null ends the reaper.
  void Queue(Running* running) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    PAGODA_CHECK(sqe != nullptr, "the submission queue has an entry for each request");
    if (running == nullptr) {
      io_uring_prep_nop(sqe);
    } else {
      Prepare(*sqe, running->request);
    }
    io_uring_sqe_set_data(sqe, running);
  }

  // Submits the queued requests to the kernel.
  void Flush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (io_uring_sq_ready(&ring_) > 0) {
      const int submitted = io_uring_submit(&ring_);
      PAGODA_CHECK(submitted >= 0 || IsTransient(-submitted),
                   "the kernel takes what is in the submission queue");
      if (submitted < 0) absl::SleepFor(absl::Microseconds(100));
    }
  }

  void Prepare(io_uring_sqe& sqe, const FileRequest& request) const {
    const auto count = static_cast<unsigned>(request.pieces.size());
    switch (request.kind) {
      case FileRequest::Kind::kRead:
        return io_uring_prep_readv(&sqe, fd_, request.pieces.data(), count, request.offset_bytes);
      case FileRequest::Kind::kWrite:
        return io_uring_prep_writev(&sqe, fd_, request.pieces.data(), count, request.offset_bytes);
      case FileRequest::Kind::kSync:
        return io_uring_prep_fsync(&sqe, fd_, IORING_FSYNC_DATASYNC);
    }
  }

  void Reap() ABSL_LOCKS_EXCLUDED(mutex_) {
    while (true) {
      io_uring_cqe* cqe = nullptr;
      const int waited = io_uring_wait_cqe(&ring_, &cqe);
      if (waited < 0) {
        PAGODA_CHECK(IsTransient(-waited), "completions can be waited for");
        continue;
      }
      std::unique_ptr<Running> running(static_cast<Running*>(io_uring_cqe_get_data(cqe)));
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (running == nullptr) return;
      Complete(std::move(running), result);
    }
  }

  void Complete(std::unique_ptr<Running> running, int result) ABSL_LOCKS_EXCLUDED(mutex_) {
    FileRequest& request = running->request;
    int error = 0;
    bool again = false;
    if (result < 0) {
      again = IsWorthRetrying(-result) && running->retries++ < kMaxRetries;
      error = -result;
    } else if (request.kind != FileRequest::Kind::kSync) {
      if (result == 0) {
        error = request.kind == FileRequest::Kind::kRead ? kEndOfFile : EIO;
      } else {
        again = !Advance(request, static_cast<uint64_t>(result));
        running->retries = 0;
      }
    }
    {
      const absl::MutexLock lock(&mutex_);
      if (again) {
        Queue(running.release());
        Flush();
        return;
      }
      --unreported_;  // `done` may submit the next request.
    }
    request.done(error);
    const absl::MutexLock lock(&mutex_);
    --running_;
  }

  const int fd_;
  const uint32_t depth_;
  absl::Mutex mutex_;  // Guards the submission queue; the completion queue belongs to the reaper.
  io_uring ring_;
  uint32_t unreported_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t running_ ABSL_GUARDED_BY(mutex_) = 0;  // Includes running `done` calls.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread reaper_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileEngine>> MakeUringEngine(int fd, uint32_t depth) {
  io_uring ring;
  const int result = io_uring_queue_init(depth + 1, &ring, 0);
  if (result < 0) return absl::ErrnoToStatus(-result, absl::StrCat("io_uring_queue_init"));
  auto engine = std::make_unique<UringEngine>(fd, depth, ring);
  if (absl::Status status = engine->Start(); !status.ok()) return status;
  return engine;
}

}  // namespace pagoda

#else

namespace pagoda {

absl::StatusOr<std::unique_ptr<FileEngine>> MakeUringEngine(int, uint32_t) {
  return absl::UnimplementedError("this build has no liburing");
}

}  // namespace pagoda

#endif
