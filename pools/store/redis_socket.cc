#include "pools/store/redis_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

constexpr size_t kMaxTlsRead = 1 << 20;  // In one call.
constexpr int kLowWaterMark = 512 << 10;
constexpr int kSmallLowWaterMark = 64 << 10;

absl::Status Ended(absl::string_view what) { return absl::UnavailableError(what); }
absl::Status SystemError(int error, const char* what) {
  return Ended(absl::ErrnoToStatus(error, what).message());
}

// The oldest error of OpenSSL's queue, which is empty afterwards.
std::string TlsError() {
  std::array<char, 256> text = {};
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  if (error == 0) return "no reason given";
  ERR_error_string_n(error, text.data(), text.size());
  return text.data();
}

bool IsIpAddress(const std::string& host) {
  std::array<std::byte, sizeof(in6_addr)> address;
  return inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

void SetOption(int fd, int level, int option, int value) {
  // Failures cost speed or patience, nothing else.
  static_cast<void>(setsockopt(fd, level, option, &value, sizeof value));
}

void SetOptions(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// A write that is not complete goes on with what is left then, from another array of pieces.
constexpr long kTlsMode =
    SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS;

// Uses the certificate and its key.
absl::Status UseCertificate(SSL_CTX* context, const std::string& certificate_file,
                            const std::string& key_file) {
  // Otherwise OpenSSL would ask for the password of an encrypted key at the terminal.
  SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return -1; });
  if (SSL_CTX_use_certificate_chain_file(context, certificate_file.c_str()) == 1 &&
      SSL_CTX_use_PrivateKey_file(context, key_file.c_str(), SSL_FILETYPE_PEM) == 1 &&
      SSL_CTX_check_private_key(context) == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the certificate \"", certificate_file, "\" and the key \"", key_file, "\": ", TlsError()));
}

absl::Status BadAuthorities(const std::string& file) {
  return absl::InvalidArgumentError(
      absl::StrCat("the certificate authorities in \"", file, "\": ", TlsError()));
}

absl::StatusOr<ssl_st*> StartTls(TlsContext& context, int fd, const std::string& host) {
  SSL* tls = SSL_new(context.get());
  const bool is_ip = IsIpAddress(host);
  const bool is_set = tls != nullptr && SSL_set_fd(tls, fd) == 1 &&
                      (is_ip ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host.c_str()) == 1
                             : SSL_set1_host(tls, host.c_str()) == 1 &&
                                   SSL_set_tlsext_host_name(tls, host.c_str()));
  if (!is_set) {
    SSL_free(tls);
    return Ended(absl::StrCat("TLS cannot start: ", TlsError()));
  }
  SSL_set_connect_state(tls);
  SSL_set_mode(tls, kTlsMode);
  return tls;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::Load(const RedisTls& options) {
  auto context = absl::WrapUnique(new TlsContext(SSL_CTX_new(TLS_client_method())));
  SSL_CTX* const raw = context->get();
  if (raw == nullptr) return absl::InternalError(TlsError());
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nullptr);
  const bool has_authorities =
      options.ca_file.empty()
          ? SSL_CTX_set_default_verify_paths(raw) == 1
          : SSL_CTX_load_verify_locations(raw, options.ca_file.c_str(), nullptr) == 1;
  if (!has_authorities) {
    return BadAuthorities(options.ca_file);
  }
  if (options.certificate_file.empty() != options.key_file.empty()) {
    return absl::InvalidArgumentError(
        "a certificate file needs a key file, and a key file needs a "
        "certificate file");
  }
  if (!options.certificate_file.empty()) {
    const absl::Status status = UseCertificate(raw, options.certificate_file, options.key_file);
    if (!status.ok()) return status;
  }
  return context;
}

absl::StatusOr<std::unique_ptr<TlsContext>> TlsContext::LoadServer(const ServerTls& options) {
  auto context = absl::WrapUnique(new TlsContext(SSL_CTX_new(TLS_server_method())));
  SSL_CTX* const raw = context->get();
  if (raw == nullptr) return absl::InternalError(TlsError());
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION);
  // Without a context of their own, sessions of clients with certificates cannot be resumed.
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  if (!options.client_ca_file.empty()) {
    if (SSL_CTX_load_verify_locations(raw, options.client_ca_file.c_str(), nullptr) != 1) {
      return BadAuthorities(options.client_ca_file);
    }
    SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  const absl::Status status = UseCertificate(raw, options.certificate_file, options.key_file);
  if (!status.ok()) return status;
  return context;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

absl::StatusOr<std::unique_ptr<RedisSocket>> RedisSocket::Connect(const SocketAddress& address,
                                                                  TlsContext* tls,
                                                                  const std::string& host) {
  FileDescriptor fd(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return SystemError(errno, "socket");
  SetOptions(fd.get());
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 &&
      errno != EINPROGRESS) {
    return SystemError(errno, "connect");
  }
  ssl_st* session = nullptr;
  if (tls != nullptr) {
    absl::StatusOr<ssl_st*> started = StartTls(*tls, fd.get(), host);
    if (!started.ok()) return started.status();
    session = *started;
  }
  return absl::WrapUnique(new RedisSocket(std::move(fd), session));
}

absl::StatusOr<std::unique_ptr<RedisSocket>> RedisSocket::Accept(FileDescriptor fd,
                                                                 TlsContext* tls) {
  SetOptions(fd.get());
  ssl_st* session = nullptr;
  if (tls != nullptr) {
    session = SSL_new(tls->get());
    if (session == nullptr || SSL_set_fd(session, fd.get()) != 1) {
      SSL_free(session);
      return Ended(absl::StrCat("TLS cannot start: ", TlsError()));
    }
    SSL_set_accept_state(session);
    SSL_set_mode(session, kTlsMode);
  }
  return absl::WrapUnique(new RedisSocket(std::move(fd), session));
}

RedisSocket::~RedisSocket() { SSL_free(tls_); }

void RedisSocket::Expect(uint64_t bytes) {
  // Each wake-up costs the sender more than the copy of a packet, if both are on one machine.
  const int mark = tls_ != nullptr               ? 1
                   : bytes >= kLowWaterMark      ? kLowWaterMark
                   : bytes >= kSmallLowWaterMark ? kSmallLowWaterMark
                                                 : 1;
  if (mark == low_water_mark_) return;
  low_water_mark_ = mark;
  SetOption(fd(), SOL_SOCKET, SO_RCVLOWAT, mark);
}

bool RedisSocket::has_received() const { return tls_ != nullptr && SSL_has_pending(tls_) == 1; }

absl::StatusOr<bool> RedisSocket::Handshake() {
  if (!is_connected_) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return SystemError(error, "connect");
    // There may be no peer yet: this was called before the socket was writable.
    sockaddr_storage peer;
    socklen_t peer_size = sizeof peer;
    if (getpeername(fd(), reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) return false;
    is_connected_ = true;
    wants_write_ = false;
  }
  if (tls_ == nullptr || SSL_is_init_finished(tls_) == 1) return true;
  ERR_clear_error();
  const int result = SSL_do_handshake(tls_);
  if (result == 1) return true;
  const long verified = SSL_get_verify_result(tls_);
  if (verified != X509_V_OK) {
    return Ended(absl::StrCat("the peer's certificate: ", X509_verify_cert_error_string(verified)));
  }
  absl::StatusOr<size_t> waits = AfterTls(result, 0, "TLS handshake");
  if (!waits.ok()) return waits.status();
  return false;
}

// What a call of OpenSSL means that moved no byte.
absl::StatusOr<size_t> RedisSocket::AfterTls(int result, size_t moved, const char* what) {
  const int system_error = errno;
  const int error = SSL_get_error(tls_, result);
  wants_write_ = error == SSL_ERROR_WANT_WRITE;
  // An error after some bytes comes again.
  if (error == SSL_ERROR_WANT_READ || wants_write_ || moved > 0) return moved;
  if (error == SSL_ERROR_ZERO_RETURN) return Ended("the peer closed the connection");
  if (error == SSL_ERROR_SYSCALL && system_error != 0) return SystemError(system_error, what);
  return Ended(absl::StrCat(what, ": ", TlsError()));
}

absl::StatusOr<size_t> RedisSocket::Read(absl::Span<const iovec> pieces) {
  wants_write_ = false;
  if (tls_ == nullptr) {
    const ssize_t result = readv(fd(), pieces.data(), static_cast<int>(pieces.size()));
    if (result > 0) return static_cast<size_t>(result);
    if (result == 0) return Ended("the peer closed the connection");
    if (errno != EAGAIN && errno != EINTR) return SystemError(errno, "read");
    return 0;
  }
  size_t moved = 0;
  for (const iovec& piece : pieces) {
    for (size_t at = 0; at < piece.iov_len;) {
      size_t read = 0;
      ERR_clear_error();
      errno = 0;
      const int result =
          SSL_read_ex(tls_, static_cast<char*>(piece.iov_base) + at, piece.iov_len - at, &read);
      if (result != 1) return AfterTls(result, moved, "TLS read");
      moved += read;
      at += read;
      if (moved >= kMaxTlsRead) return moved;
    }
  }
  return moved;
}

absl::StatusOr<size_t> RedisSocket::Write(absl::Span<const iovec> pieces) {
  wants_write_ = false;
  if (tls_ == nullptr) {
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    const ssize_t result = sendmsg(fd(), &message, MSG_NOSIGNAL);
    if (result >= 0) return static_cast<size_t>(result);
    if (errno != EAGAIN && errno != EINTR) return SystemError(errno, "write");
    wants_write_ = true;
    return 0;
  }
  size_t moved = 0;
  for (const iovec& piece : pieces) {
    for (size_t at = 0; at < piece.iov_len;) {
      size_t written = 0;
      ERR_clear_error();
      errno = 0;
      const int result = SSL_write_ex(tls_, static_cast<const char*>(piece.iov_base) + at,
                                      piece.iov_len - at, &written);
      if (result != 1) return AfterTls(result, moved, "TLS write");
      moved += written;
      at += written;
    }
  }
  return moved;
}

}  // namespace pagoda
