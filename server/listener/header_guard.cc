#include "server/listener/header_guard.h"

#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "server/listener/accept_guard.h"
#include "server/listener/connection_limit.h"

namespace pagoda::server {
namespace {

ConnectionLimit::Time Now() { return std::chrono::steady_clock::now(); }

// The library's function of this name.
template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// The accepted sockets, by descriptor. Thread-safe.
class AcceptedSockets {
 public:
  // One socket. gRPC reads and writes it on different threads.
  class Socket {
   public:
    void Begin(int fd) ABSL_LOCKS_EXCLUDED(mutex_) {
      absl::MutexLock lock(&mutex_);
      // The limit is gone before `fd` is closed.
      limit_.emplace(ConnectionLimit::Sees::kBlocked, Now(), [fd] { shutdown(fd, SHUT_RDWR); });
      accepted_.store(true, std::memory_order_release);
    }
    void End() ABSL_LOCKS_EXCLUDED(mutex_) {
      if (!accepted_.load(std::memory_order_acquire)) return;
      absl::MutexLock lock(&mutex_);
      accepted_.store(false, std::memory_order_release);
      limit_.reset();
    }

    // False: the connection must end.
    bool Receive(const msghdr& message, size_t count) ABSL_LOCKS_EXCLUDED(mutex_) {
      return Follow(message, count, [](ConnectionLimit& limit, absl::Span<const uint8_t> bytes) {
        return limit.Receive(bytes, Now());
      });
    }
    // False: the connection must end.
    bool Send(const msghdr& message, size_t count) ABSL_LOCKS_EXCLUDED(mutex_) {
      return Follow(message, count, [](ConnectionLimit& limit, absl::Span<const uint8_t> bytes) {
        limit.SetBlocked(false, Now());
        return limit.Send(bytes, Now());
      });
    }
    // The system takes no more bytes now.
    void Block() ABSL_LOCKS_EXCLUDED(mutex_) {
      absl::MutexLock lock(&mutex_);
      if (limit_.has_value()) limit_->SetBlocked(true, Now());
    }

   private:
    // Passes the first `count` bytes of the message on, until one piece is refused.
    template <class Take>
    bool Follow(const msghdr& message, size_t count, Take take) ABSL_LOCKS_EXCLUDED(mutex_) {
      if (!accepted_.load(std::memory_order_acquire)) return true;
      absl::MutexLock lock(&mutex_);
      if (!limit_.has_value()) return true;
      for (size_t i = 0; i < message.msg_iovlen && count > 0; ++i) {
        const iovec& part = message.msg_iov[i];
        const size_t bytes = std::min(part.iov_len, count);
        count -= bytes;
        if (!take(*limit_, {static_cast<const uint8_t*>(part.iov_base), bytes})) return false;
      }
      return true;
    }

    std::atomic<bool> accepted_ = false;
    absl::Mutex mutex_;
    std::optional<ConnectionLimit> limit_ ABSL_GUARDED_BY(mutex_);
  };

  // Null if no socket with a descriptor in this chunk was ever accepted.
  Socket* Find(int fd) {
    Chunk* chunk = InRange(fd) ? chunks_[ChunkOf(fd)].load(std::memory_order_acquire) : nullptr;
    return chunk == nullptr ? nullptr : &(*chunk)[static_cast<size_t>(fd) % kChunkSockets];
  }

  // Null if `fd` is outside the table's range.
  Socket* FindOrMake(int fd) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!InRange(fd)) return nullptr;
    if (Socket* found = Find(fd); found != nullptr) return found;
    absl::MutexLock lock(&mutex_);
    if (chunks_[ChunkOf(fd)].load(std::memory_order_relaxed) == nullptr) {
      // Lives as long as the process, like the table.
      chunks_[ChunkOf(fd)].store(new Chunk, std::memory_order_release);
    }
    return Find(fd);
  }

 private:
  static constexpr size_t kChunkSockets = 1024;
  static constexpr size_t kChunks = kMaxOpenFiles / kChunkSockets;
  using Chunk = std::array<Socket, kChunkSockets>;

  static bool InRange(int fd) {
    return fd >= 0 && static_cast<size_t>(fd) < kChunkSockets * kChunks;
  }
  static size_t ChunkOf(int fd) { return static_cast<size_t>(fd) / kChunkSockets; }

  absl::Mutex mutex_;  // Held while a chunk is created.
  std::array<std::atomic<Chunk*>, kChunks> chunks_ = {};
};

AcceptedSockets& Sockets() {
  static auto& sockets = *new AcceptedSockets;
  return sockets;
}

// The index of a connection's limit in its SSL object, which destroys it.
int LimitIndex() {
  static const int index = SSL_get_ex_new_index(
      0, nullptr, nullptr, nullptr, [](void*, void* limit, CRYPTO_EX_DATA*, int, long, void*) {
        delete static_cast<ConnectionLimit*>(limit);
      });
  return index;
}

// The limit of a connection's plaintext; nullptr if there is no memory. Thread-compatible, like
// OpenSSL's objects: gRPC holds its lock.
ConnectionLimit* LimitOf(SSL* ssl) {
  if (void* limit = SSL_get_ex_data(ssl, LimitIndex()); limit != nullptr) {
    return static_cast<ConnectionLimit*>(limit);
  }
  auto made = std::make_unique<ConnectionLimit>(ConnectionLimit::Sees::kNothing, Now());
  return SSL_set_ex_data(ssl, LimitIndex(), made.get()) == 1 ? made.release() : nullptr;
}

absl::Span<const uint8_t> AsBytes(const void* bytes, int count) {
  return {static_cast<const uint8_t*>(bytes), static_cast<size_t>(count)};
}

}  // namespace

absl::Status CheckHeaderGuard() {
  const std::pair<const char*, void*> functions[] = {
      {"accept", reinterpret_cast<void*>(&accept)},
      {"accept4", reinterpret_cast<void*>(&accept4)},
      {"recvmsg", reinterpret_cast<void*>(&recvmsg)},
      {"sendmsg", reinterpret_cast<void*>(&sendmsg)},
      {"close", reinterpret_cast<void*>(&close)},
      {"SSL_read", reinterpret_cast<void*>(&SSL_read)},
      {"SSL_write", reinterpret_cast<void*>(&SSL_write)}};
  for (const auto& [name, function] : functions) {
    if (dlsym(RTLD_DEFAULT, name) == function && dlsym(RTLD_NEXT, name) != function) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("gRPC's calls of ", name, " do not reach the daemon's function"));
  }
  return absl::OkStatus();
}

uint64_t HeaderGuardRefusals() { return ConnectionLimit::NumEnded(); }

}  // namespace pagoda::server

extern "C" {

int accept4(int fd, sockaddr* addr, socklen_t* addr_len, int flags) {
  static auto* const next = pagoda::server::Next<decltype(accept4)>("accept4");
  const int accepted = pagoda::server::AcceptByRule(
      fd, addr, addr_len, [fd, flags](sockaddr* peer, socklen_t* peer_size) {
        return next(fd, peer, peer_size, flags);
      });
  if (auto* const socket = pagoda::server::Sockets().FindOrMake(accepted); socket != nullptr) {
    socket->Begin(accepted);
  }
  return accepted;
}

int accept(int fd, sockaddr* addr, socklen_t* addr_len) {
  static auto* const next = pagoda::server::Next<decltype(accept)>("accept");
  return pagoda::server::AcceptByRule(
      fd, addr, addr_len,
      [fd](sockaddr* peer, socklen_t* peer_size) { return next(fd, peer, peer_size); });
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const next = pagoda::server::Next<decltype(recvmsg)>("recvmsg");
  const ssize_t count = next(fd, message, flags);
  if (count <= 0 || (flags & (MSG_PEEK | MSG_ERRQUEUE)) != 0) return count;
  auto* const socket = pagoda::server::Sockets().Find(fd);
  if (socket == nullptr || socket->Receive(*message, static_cast<size_t>(count))) return count;
  errno = ECONNRESET;
  return -1;
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static auto* const next = pagoda::server::Next<decltype(sendmsg)>("sendmsg");
  const ssize_t count = next(fd, message, flags);
  auto* const socket = pagoda::server::Sockets().Find(fd);
  if (socket == nullptr) return count;
  if (count > 0 && !socket->Send(*message, static_cast<size_t>(count))) {
    errno = ECONNRESET;
    return -1;
  }
  if (count < 0 && errno == EAGAIN) {
    socket->Block();
    errno = EAGAIN;
  }
  return count;
}

int close(int fd) {
  static auto* const next = pagoda::server::Next<decltype(close)>("close");
  // Before another connection can get the same descriptor.
  if (auto* const socket = pagoda::server::Sockets().Find(fd); socket != nullptr) socket->End();
  pagoda::server::ForgetAccepted(fd);
  return next(fd);
}

int SSL_read(SSL* ssl, void* buf, int num) {
  static auto* const next = pagoda::server::Next<decltype(SSL_read)>("SSL_read");
  const int count = next(ssl, buf, num);
  if (count <= 0 || SSL_is_server(ssl) == 0) return count;
  auto* const limit = pagoda::server::LimitOf(ssl);
  if (limit != nullptr &&
      limit->Receive(pagoda::server::AsBytes(buf, count), pagoda::server::Now()))
    return count;
  ERR_raise(ERR_LIB_USER, ERR_R_OPERATION_FAIL);
  return -1;
}

int SSL_write(SSL* ssl, const void* buf, int num) {
  static auto* const next = pagoda::server::Next<decltype(SSL_write)>("SSL_write");
  const int count = next(ssl, buf, num);
  if (count <= 0 || SSL_is_server(ssl) == 0) return count;
  auto* const limit = pagoda::server::LimitOf(ssl);
  if (limit == nullptr || limit->Send(pagoda::server::AsBytes(buf, count), pagoda::server::Now()))
    return count;
  ERR_raise(ERR_LIB_USER, ERR_R_OPERATION_FAIL);
  return -1;
}

}  // extern "C"
