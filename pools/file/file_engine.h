// Asynchronous reads and writes of one file: what the slab file does its I/O with, and the seam
// where tests put a faulty disk.
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
  uint64_t offset_bytes = 0;             // Not of a sync.
  absl::InlinedVector<iovec, 4> pieces;  // Not of a sync. At most IOV_MAX.
  std::function<void(int error)> done;   // 0, or an errno; kEndOfFile for a read past the end.
};

// The error of a read that meets the file's end before its last byte.
inline constexpr int kEndOfFile = 61;  // ENODATA, which no file system gives for a read.

// Thread-safe.
//
// 1. Every request is reported exactly once. 0 means that all of its bytes were moved: the engine
//    continues short reads and writes itself. A write that was reported is not durable; a sync
//    makes the writes durable that were reported before its Submit.
// 2. `done` runs without any lock of the engine, on a thread of the engine's or within Submit. It
//    may call Submit, also while Stop waits, and not Stop. Completions are callbacks and not
//    polled, because the caller is a lane of copy tickets: it reports a ticket when its bytes are
//    there and has no thread of its own to poll with.
// 3. Requests end in any order. Two that overlap have no order among themselves.
class FileEngine {
 public:
  virtual ~FileEngine() = default;

  // Does not wait for I/O. The pieces' memory stays until `done` has begun. REQUIRES: fewer
  // requests than the engine's depth are unreported; Stop has not been called, or waits for the
  // `done` that this is called from.
  virtual void Submit(FileRequest request) = 0;
  // Each of them, perhaps in one call of the kernel.
  virtual void SubmitAll(std::vector<FileRequest> requests) {
    for (FileRequest& request : requests) Submit(std::move(request));
  }
  // Waits for what runs. When it has returned no `done` runs or will. A second call does nothing;
  // the destructor calls it. REQUIRES: one call at a time.
  virtual void Stop() = 0;
  // "io_uring" or "threads".
  virtual std::string_view name() const = 0;
};

enum class EngineKind : uint8_t {
  kAuto,   // io_uring where the kernel lets this process use it, else threads.
  kUring,  // An error where io_uring cannot be had.
  kThreads,
};

// `fd` stays open until the engine has ended. `depth`: how many requests may be unreported at once;
// threads are at most 16 of them. Errors: Unavailable (io_uring was demanded, and the kernel or the
// build refuses it).
absl::StatusOr<std::unique_ptr<FileEngine>> MakeFileEngine(EngineKind kind, int fd, uint32_t depth);

// The two engines. MakeUringEngine is Unimplemented in a build without liburing; else its errors
// are those of io_uring_queue_init: ENOSYS, EPERM (a container's seccomp profile), ENOMEM.
absl::StatusOr<std::unique_ptr<FileEngine>> MakeUringEngine(int fd, uint32_t depth);
std::unique_ptr<FileEngine> MakeThreadEngine(int fd, uint32_t depth);

// Drops the first `bytes` of the request, which were moved. True where nothing is left.
bool Advance(FileRequest& request, uint64_t bytes);

}  // namespace pagoda

#endif  // PAGODA_POOLS_FILE_FILE_ENGINE_H_
