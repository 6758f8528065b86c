// Asynchronous reads and writes of one file. The slab file uses it for its I/O; tests put a faulty
// disk here.
#ifndef PAGODA_POOLS_FILE_FILE_ENGINE_H_
#define PAGODA_POOLS_FILE_FILE_ENGINE_H_

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"

namespace pagoda {

// One read or write at an offset, or one fdatasync of the file.
struct FileRequest {
  enum class Kind : uint8_t { kRead, kWrite, kSync };

  Kind kind = Kind::kRead;
  uint64_t offset_bytes = 0;             // Unused by a sync.
  absl::InlinedVector<iovec, 4> pieces;  // At most IOV_MAX. Unused by a sync.
  std::function<void(int error)> done;   // 0, or an errno; kEndOfFile for a read past the end.
};

// The error of a read that reaches the end of the file before its last byte.
inline constexpr int kEndOfFile = 61;  // ENODATA; no file system reports it for a read.

// Carries out requests. Thread-safe.
//
// 1. Every request is reported exactly once. 0 means that all of its bytes were moved: the engine
//    continues short reads and writes itself. A reported write is not yet durable. A sync makes the
//    writes durable that were reported before its Submit.
// 2. `done` runs without any lock of the engine, on a thread of the engine or inside Submit. It may
//    call Submit, even while Stop waits, but not Stop. Completions are callbacks, not polled: the
//    caller is a lane of copy tickets, which reports a ticket when its bytes are there and has no
//    thread to poll with.
// 3. Requests end in any order. Overlapping requests have no order among themselves.
class FileEngine {
 public:
  virtual ~FileEngine() = default;

  // Does not wait for I/O. The pieces' memory must stay valid until `done` begins. REQUIRES: fewer
  // requests than the engine's depth are unreported. Stop has not been called, or the call comes
  // from a `done` that Stop waits for.
  virtual void Submit(FileRequest request) = 0;
  // Submits each request, perhaps all in one call of the kernel.
  virtual void SubmitAll(std::vector<FileRequest> requests) {
    for (FileRequest& request : requests) Submit(std::move(request));
  }
  // Waits for the running requests. When it has returned, no `done` runs or will run. A second call
  // does nothing. The destructor calls it. REQUIRES: one call at a time.
  virtual void Stop() = 0;
  // "io_uring" or "threads".
  virtual std::string_view name() const = 0;
};

enum class EngineKind : uint8_t {
  kAuto,   // io_uring if the kernel lets this process use it, else threads.
  kUring,  // io_uring, or an error.
  kThreads,
};

// `fd` must stay open until the engine is destroyed. `depth`: the largest number of unreported
// requests; at most 16 of them have a thread. Errors: Unavailable (kUring, and the kernel or the
// build has no io_uring).
absl::StatusOr<std::unique_ptr<FileEngine>> MakeFileEngine(EngineKind kind, int fd, uint32_t depth);

// The two engines. MakeUringEngine returns Unimplemented in a build without liburing; otherwise its
// errors are those of io_uring_queue_init: ENOSYS, EPERM (a container's seccomp profile), ENOMEM.
// Both also have those of Thread::Start.
absl::StatusOr<std::unique_ptr<FileEngine>> MakeUringEngine(int fd, uint32_t depth);
absl::StatusOr<std::unique_ptr<FileEngine>> MakeThreadEngine(int fd, uint32_t depth);

// Drops the first `bytes` of the request, which were moved. Returns whether nothing is left.
bool Advance(FileRequest& request, uint64_t bytes);

}  // namespace pagoda

#endif  // PAGODA_POOLS_FILE_FILE_ENGINE_H_
