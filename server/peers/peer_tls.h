// The certificate that the daemon shows to other daemons, from files that can be replaced.
#ifndef PAGODA_SERVER_PEERS_PEER_TLS_H_
#define PAGODA_SERVER_PEERS_PEER_TLS_H_

#include <array>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "pools/store/redis_socket.h"
#include "server/callers/watched_file.h"

namespace pagoda::server {

// Thread-compatible.
class PeerTls {
 public:
  // Errors: those of TlsContext::LoadServer; those of ReadSecretFile for the key.
  static absl::StatusOr<std::unique_ptr<PeerTls>> Load(ServerTls files, Exposure exposure);

  // What the next connection uses. If the files have changed, they are read again: they are used
  // only as a whole and only if they are valid. Otherwise the earlier ones stay, and the log gives
  // the reason. Valid until the next call; sockets that were made with it live on.
  TlsContext* Current();

 private:
  using Stamps = std::array<FileStamp, 3>;

  PeerTls(ServerTls files, Exposure exposure) : files_(std::move(files)), exposure_(exposure) {}
  absl::StatusOr<std::unique_ptr<TlsContext>> Read() const;
  Stamps StampsNow() const;

  const ServerTls files_;
  const Exposure exposure_;
  Stamps stamps_;  // The stamps at the last read.
  std::unique_ptr<TlsContext> context_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PEERS_PEER_TLS_H_
