#include "server/listener/accept_guard.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file_descriptor.h"
#include "server/log/log.h"

namespace pagoda::server {
namespace {

using Accept = absl::FunctionRef<int(sockaddr*, socklen_t*)>;

// The pause if neither a descriptor nor the spare one is free. It bounds the rate of attempts.
constexpr absl::Duration kNoDescriptorPause = absl::Milliseconds(10);
constexpr absl::Duration kWarningInterval = absl::Minutes(1);

// Addresses are counted by their hash. Two addresses with the same hash share a count; the hash has
// a seed of the process, so that no client can choose its neighbour.
constexpr size_t kCounts = 1 << 16;

// All of these live as long as the process, because libraries close sockets until its end. Most of
// their pages are never touched.
std::array<std::atomic<uint32_t>, kCounts> counts = {};
std::array<std::atomic<uint32_t>, kMaxOpenFiles> count_of = {};  // By descriptor: the index + 1.
std::array<std::atomic<uint32_t>, kMaxOpenFiles> calls_of = {};  // By listener.
std::array<std::atomic<bool>, kMaxOpenFiles> is_exempt = {};     // By listener.

std::atomic<uint64_t> refused_open_files = 0;
std::atomic<uint64_t> refused_per_address = 0;

bool IsInTable(int fd) { return fd >= 0 && static_cast<uint32_t>(fd) < kMaxOpenFiles; }

// Logs at most one warning a minute.
void Warn(absl::string_view why) {
  static std::atomic<int64_t> next_ns = 0;
  const int64_t now = absl::GetCurrentTimeNanos();
  int64_t next = next_ns.load(std::memory_order_relaxed);
  if (now < next ||
      !next_ns.compare_exchange_strong(next, now + absl::ToInt64Nanoseconds(kWarningInterval))) {
    return;
  }
  Log(LogLevel::kWarning, absl::StrCat("connections are refused: ", why,
                                       "; the limit of open files is ", OpenFileLimit()));
}

void RefuseForOpenFiles() {
  refused_open_files.fetch_add(1, std::memory_order_relaxed);
  Warn("a quarter of the open files is kept for the daemon's own use, and the rest is taken");
}

// The bytes that name a peer for the third part of the rule.
size_t HashOfPeer(int fd, const sockaddr_storage& peer) {
  if (peer.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &peer, sizeof(v4));
    return absl::HashOf(AF_INET, v4.sin_addr.s_addr);
  }
  if (peer.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &peer, sizeof(v6));
    uint64_t network = 0;
    uint32_t last = 0;
    std::memcpy(&network, &v6.sin6_addr, sizeof(network));
    std::memcpy(&last, v6.sin6_addr.s6_addr + 12, sizeof(last));
    // A dual-stack listener shows an IPv4 address in this form.
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return absl::HashOf(AF_INET, last);
    return absl::HashOf(AF_INET6, network);
  }
  ucred process = {};
  socklen_t size = sizeof(process);
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &size);
  return absl::HashOf(AF_UNIX, process.uid);
}

// Counts the connection for its peer. False: the peer has its share.
bool Admit(int fd, const sockaddr_storage& peer, uint32_t share) {
  const size_t index = HashOfPeer(fd, peer) % kCounts;
  if (counts[index].fetch_add(1, std::memory_order_relaxed) >= share) {
    counts[index].fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  count_of[static_cast<size_t>(fd)].store(static_cast<uint32_t>(index) + 1,
                                          std::memory_order_relaxed);
  return true;
}

// A descriptor that is given up for a moment, to accept and close a connection.
class Spare {
 public:
  // False if there is none now.
  bool Drop(Accept accept) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!fd_.valid()) return false;
    fd_ = FileDescriptor();
    const bool refused = FileDescriptor(accept(nullptr, nullptr)).valid();
    fd_ = Open();
    return refused;
  }
  void Refill() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (!fd_.valid()) fd_ = Open();
  }

 private:
  static FileDescriptor Open() { return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

  absl::Mutex mutex_;
  FileDescriptor fd_ ABSL_GUARDED_BY(mutex_);
};

Spare& TheSpare() {
  static auto& spare = *new Spare;
  return spare;
}

// What distinguishes a bound socket of this process from all others: its port, or its Unix name.
std::string KnockName(const sockaddr_storage& address, socklen_t size) {
  size_t begin = 0;
  size_t end = size;
  if (address.ss_family == AF_INET || address.ss_family == AF_INET6) {
    static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
    begin = offsetof(sockaddr_in, sin_port);
    end = begin + sizeof(in_port_t);
  }
  return std::string(reinterpret_cast<const char*>(&address) + begin, end - begin);
}

// Whether both ends of a connection have the same host.
bool IsWithinHost(int fd, const sockaddr_storage& peer) {
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return false;
  if (peer.ss_family == AF_INET) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in&>(own).sin_addr,
                       &reinterpret_cast<const sockaddr_in&>(peer).sin_addr, sizeof(in_addr)) == 0;
  }
  if (peer.ss_family != AF_INET6) return true;
  return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(own).sin6_addr,
                     &reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr, sizeof(in6_addr)) == 0;
}

// The announced connections that were not accepted yet. Thread-safe.
class Knocks {
 public:
  void Add(int client) ABSL_LOCKS_EXCLUDED(mutex_) {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    if (getsockname(client, reinterpret_cast<sockaddr*>(&address), &size) != 0) return;
    absl::MutexLock lock(&mutex_);
    names_.emplace(client, KnockName(address, size));
    size_.store(names_.size(), std::memory_order_release);
  }
  void Remove(int client) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    names_.erase(client);
    size_.store(names_.size(), std::memory_order_release);
  }
  // Whether an accepted connection was announced. Each counts once.
  bool Take(int fd, const sockaddr_storage& peer, socklen_t size) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (size_.load(std::memory_order_acquire) == 0 || !IsWithinHost(fd, peer)) return false;
    const std::string name = KnockName(peer, size);
    absl::MutexLock lock(&mutex_);
    const auto found = std::find_if(names_.begin(), names_.end(),
                                    [&](const auto& knock) { return knock.second == name; });
    if (found == names_.end()) return false;
    names_.erase(found);
    size_.store(names_.size(), std::memory_order_release);
    return true;
  }

 private:
  std::atomic<size_t> size_ = 0;  // The size of names_, to be read without the lock.
  absl::Mutex mutex_;
  std::map<int, std::string> names_ ABSL_GUARDED_BY(mutex_);  // By the client's descriptor.
};

Knocks& TheKnocks() {
  static auto& knocks = *new Knocks;
  return knocks;
}

bool ConnectionWaits(int listener) {
  pollfd waiting = {.fd = listener, .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, 0) > 0;
}

bool IsLack(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

// Errors of the listener, or of the call, and no error of a connection.
bool IsListeners(int error) {
  return error == EAGAIN || error == EINTR || error == EBADF || error == EFAULT ||
         error == EINVAL || error == ENOTSOCK;
}

int NobodyWaits() {
  errno = EAGAIN;
  return -1;
}

// The address of a connection, cut to the caller's size as accept does.
void CopyAddress(const sockaddr_storage& peer, socklen_t peer_size, sockaddr* address,
                 socklen_t* size) {
  if (address == nullptr || size == nullptr) return;
  std::memcpy(address, &peer, std::min(peer_size, *size));
  *size = peer_size;
}

}  // namespace

int AcceptByRule(int listener, sockaddr* address, socklen_t* size, Accept next) {
  if (!IsInTable(listener)) return next(address, size);
  calls_of[static_cast<size_t>(listener)].fetch_add(1, std::memory_order_relaxed);
  if (is_exempt[static_cast<size_t>(listener)].load(std::memory_order_relaxed)) {
    return next(address, size);
  }
  TheSpare().Refill();
  while (true) {
    sockaddr_storage peer = {};
    socklen_t peer_size = sizeof(peer);
    const int fd = next(reinterpret_cast<sockaddr*>(&peer), &peer_size);
    const uint32_t limit = OpenFileLimit();
    if (fd < 0 && IsListeners(errno)) return -1;
    if (fd < 0 && IsLack(errno)) {
      if (!TheSpare().Drop(next)) {
        // The connection goes on waiting. Every later one makes the listener check again; one comes
        // each second (ListenerWatch).
        absl::SleepFor(kNoDescriptorPause);
        return NobodyWaits();
      }
      RefuseForOpenFiles();
    } else if (fd >= 0 && TheKnocks().Take(fd, peer, peer_size)) {
      close(fd);
    } else if (fd >= 0 && static_cast<uint32_t>(fd) >= limit - limit / 4) {
      close(fd);
      RefuseForOpenFiles();
    } else if (fd >= 0 && !Admit(fd, peer, std::max(1u, limit / 4))) {
      close(fd);
      refused_per_address.fetch_add(1, std::memory_order_relaxed);
      Warn("one address has a quarter of the open files");
    } else if (fd >= 0) {
      CopyAddress(peer, peer_size, address, size);
      return fd;
    }
    // gRPC learns of the next connection only if it has seen that none waits.
    if (!ConnectionWaits(listener)) return NobodyWaits();
  }
}

void ForgetAccepted(int fd) {
  if (!IsInTable(fd)) return;
  const auto i = static_cast<size_t>(fd);
  if (is_exempt[i].load(std::memory_order_relaxed)) is_exempt[i] = false;
  if (count_of[i].load(std::memory_order_relaxed) == 0) return;
  if (const uint32_t index = count_of[i].exchange(0, std::memory_order_relaxed); index != 0) {
    counts[index - 1].fetch_sub(1, std::memory_order_relaxed);
  }
}

void ExemptFromAcceptRule(int listener) {
  if (IsInTable(listener)) is_exempt[static_cast<size_t>(listener)] = true;
}

uint32_t AcceptCalls(int listener) {
  return IsInTable(listener) ? calls_of[static_cast<size_t>(listener)].load() : 0;
}

void ExpectKnock(int client) { TheKnocks().Add(client); }

void ForgetKnock(int client) { TheKnocks().Remove(client); }

RefusedConnections CountRefusedConnections() {
  return {.open_files = refused_open_files.load(std::memory_order_relaxed),
          .per_address = refused_per_address.load(std::memory_order_relaxed)};
}

uint32_t OpenFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMaxOpenFiles;
  return static_cast<uint32_t>(std::min<rlim_t>(limit.rlim_cur, kMaxOpenFiles));
}

void RaiseOpenFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, kMaxOpenFiles);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace pagoda::server
