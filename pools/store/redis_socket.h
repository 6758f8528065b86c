// A socket that does not block, plain or with TLS.
#ifndef PAGODA_POOLS_STORE_REDIS_SOCKET_H_
#define PAGODA_POOLS_STORE_REDIS_SOCKET_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "pools/store/redis_options.h"

// OpenSSL's. Its headers stay in the .cc files.
struct ssl_ctx_st;
struct ssl_st;

namespace pagoda {

// The files of a server, in PEM.
struct ServerTls {
  std::string certificate_file;  // The chain.
  std::string key_file;
  std::string client_ca_file;  // Clients must show a certificate of these. Empty: they need none.
};

// Certificates and keys, read once. Thread-safe after Load. Sockets can outlive it.
class TlsContext {
 public:
  // For a client. InvalidArgument: a file cannot be read, or certificate and key do not fit.
  static absl::StatusOr<std::unique_ptr<TlsContext>> Load(const RedisTls& options);
  // For a server. Errors: as Load.
  static absl::StatusOr<std::unique_ptr<TlsContext>> LoadServer(const ServerTls& options);
  ~TlsContext();

  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}

  ssl_ctx_st* const context_;
};

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
};

// Connects to a server or takes a client's connection, and moves bytes without blocking. SIGPIPE
// must be blocked or ignored on the calling thread. Not thread-safe.
class RedisSocket {
 public:
  // Begins to connect. `tls` may be null. `host`: the name that the server's certificate must have.
  static absl::StatusOr<std::unique_ptr<RedisSocket>> Connect(const SocketAddress& address,
                                                              TlsContext* tls,
                                                              const std::string& host);
  // Takes a connection that was accepted, whose descriptor does not block. `tls`: for a server, or
  // null.
  static absl::StatusOr<std::unique_ptr<RedisSocket>> Accept(FileDescriptor fd, TlsContext* tls);
  ~RedisSocket();

  int fd() const { return fd_.get(); }

  // Goes on with the connect and the TLS handshake. True: both are done. False: call it again when
  // the socket is readable, or writable if wants_write().
  absl::StatusOr<bool> Handshake();
  // Moves as many bytes as it can now, to or from the pieces in their order; 0: wait. Unavailable:
  // the connection ended.
  absl::StatusOr<size_t> Read(absl::Span<const iovec> pieces);
  absl::StatusOr<size_t> Write(absl::Span<const iovec> pieces);

  // At least that many bytes will come: 1, or the rest of a value. The socket becomes readable when
  // a good part of them has arrived, instead of at each packet. Only for speed. Call it after each
  // series of reads: an old number can be too large, and then the socket never becomes readable.
  void Expect(uint64_t bytes);

  // Whether the last Handshake, Read or Write waits for the socket to be writable. With TLS, a read
  // can wait for that too.
  bool wants_write() const { return wants_write_; }
  // Whether bytes were received that epoll does not see, because TLS has them.
  bool has_received() const;

 private:
  RedisSocket(FileDescriptor fd, ssl_st* tls) : fd_(std::move(fd)), tls_(tls) {}

  absl::StatusOr<size_t> AfterTls(int result, size_t moved, const char* what);

  const FileDescriptor fd_;
  ssl_st* const tls_;  // Null: plain.
  bool is_connected_ = false;
  bool wants_write_ = true;
  int low_water_mark_ = 1;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_STORE_REDIS_SOCKET_H_
