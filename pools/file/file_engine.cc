#include "pools/file/file_engine.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace pagoda {

static_assert(kEndOfFile == ENODATA);

absl::StatusOr<std::unique_ptr<FileEngine>> MakeFileEngine(EngineKind kind, int fd,
                                                           uint32_t depth) {
  if (kind == EngineKind::kThreads) return MakeThreadEngine(fd, depth);
  absl::StatusOr<std::unique_ptr<FileEngine>> uring = MakeUringEngine(fd, depth);
  if (uring.ok()) return uring;
  if (kind == EngineKind::kAuto) return MakeThreadEngine(fd, depth);
  return absl::UnavailableError(
      absl::StrCat("io_uring was requested but is not available: ", uring.status().message()));
}

bool Advance(FileRequest& request, uint64_t bytes) {
  size_t whole = 0;
  while (whole < request.pieces.size() && bytes >= request.pieces[whole].iov_len) {
    bytes -= request.pieces[whole].iov_len;
    request.offset_bytes += request.pieces[whole].iov_len;
    ++whole;
  }
  request.pieces.erase(request.pieces.begin(), request.pieces.begin() + whole);
  if (request.pieces.empty()) return true;
  iovec& first = request.pieces.front();
  first.iov_base = static_cast<std::byte*>(first.iov_base) + bytes;
  first.iov_len -= bytes;
  request.offset_bytes += bytes;
  return false;
}

}  // namespace pagoda
