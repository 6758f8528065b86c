#include "tests/clients/cutting_proxy.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/check.h"

namespace pagoda {
namespace {

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  PAGODA_CHECK(path.size() < sizeof(address.sun_path), "a socket's path is short");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

int NewSocket() {
  const int end = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  PAGODA_CHECK(end >= 0, "there are sockets");
  return end;
}

int Listen(const std::string& path) {
  const int listener = NewSocket();
  const sockaddr_un address = AddressOf(path);
  PAGODA_CHECK(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
               "the path is free");
  PAGODA_CHECK(listen(listener, SOMAXCONN) == 0, "a bound socket listens");
  return listener;
}

bool SendAll(int end, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(end, data, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace

CuttingProxy::CuttingProxy(const std::string& path, const std::string& target)
    : target_(target), listener_(Listen(path)), acceptor_([this] { Accept(); }) {}

// Shutting a socket down ends the calls that block in it. The descriptors stay open until their
// threads have ended.
CuttingProxy::~CuttingProxy() {
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  std::vector<std::thread> threads;
  std::vector<int> ends;
  {
    absl::MutexLock lock(&mutex_);
    threads.swap(threads_);
    ends.swap(ends_);
  }
  for (const int end : ends) shutdown(end, SHUT_RDWR);
  for (std::thread& thread : threads) thread.join();
  for (const int end : ends) close(end);
  close(listener_);
}

void CuttingProxy::Accept() {
  const sockaddr_un address = AddressOf(target_);
  for (;;) {
    const int near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (near < 0) return;
    const int far = NewSocket();
    if (connect(far, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      close(near);
      close(far);
      continue;
    }
    absl::MutexLock lock(&mutex_);
    ends_.insert(ends_.end(), {near, far});
    threads_.emplace_back([this, near, far] { Forward(near, far); });
    threads_.emplace_back([this, near, far] { Forward(far, near); });
  }
}

void CuttingProxy::Forward(int from, int to) {
  std::array<char, 1 << 16> piece;
  for (;;) {
    const ssize_t size = recv(from, piece.data(), piece.size(), 0);
    if (size <= 0) break;
    if (Loses()) {
      ++cuts_;
      break;
    }
    if (!SendAll(to, piece.data(), static_cast<size_t>(size))) break;
  }
  shutdown(from, SHUT_RDWR);
  shutdown(to, SHUT_RDWR);
}

bool CuttingProxy::Loses() {
  const uint32_t one_in = lose_one_in_;
  if (one_in == 0) return false;
  absl::MutexLock lock(&mutex_);
  return random_() % one_in == 0;
}

}  // namespace pagoda
