// The daemon's side of TLS, from files that may be replaced while it runs.
#ifndef PAGODA_SERVER_RPC_TLS_CREDENTIALS_H_
#define PAGODA_SERVER_RPC_TLS_CREDENTIALS_H_

#include <grpc/grpc_security.h>

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/security/server_credentials.h"
#include "server/callers/watched_file.h"
#include "server/config/config.h"

namespace pagoda::server {

// What a handshake needs, as PEM.
struct TlsMaterial {
  std::string certificate;
  std::string key;
  std::string client_ca;  // Empty: no client is asked for a certificate.
  friend bool operator==(const TlsMaterial&, const TlsMaterial&) = default;
};

// Reads the files. Errors: INVALID_ARGUMENT with the path: a file cannot be read, holds no
// certificate or no key, the key is not the certificate's, or other users may read the key.
absl::StatusOr<TlsMaterial> LoadTlsMaterial(const Config::Server::Tls& files, Exposure exposure);

// Looks at the files before each handshake, and reads them when they are others. What is read takes
// the place of what was served before only as a whole and only where it is good; else that stays,
// and the log says why. Connections that are open stay as they are. Thread-safe.
class TlsCredentials final : public grpc::ServerCredentials {
 public:
  // Errors: those of LoadTlsMaterial.
  static absl::StatusOr<std::shared_ptr<TlsCredentials>> Create(const Config::Server::Tls& files,
                                                                Exposure exposure);
  ~TlsCredentials() override;

  // Not served.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  using Stamps = std::array<FileStamp, 3>;

  TlsCredentials(const Config::Server::Tls& files, Exposure exposure);

  int AddPortToServer(const std::string& address, grpc_server* server) override;

  // gRPC asks before each handshake; `self` outlives the server.
  static grpc_ssl_certificate_config_reload_status Fetch(void* self,
                                                         grpc_ssl_server_certificate_config** out);
  // What is to be served from now on; nothing where that is what is served already.
  std::optional<TlsMaterial> Next() ABSL_LOCKS_EXCLUDED(mutex_);
  Stamps StampsNow() const;

  const Config::Server::Tls files_;
  const Exposure exposure_;
  grpc_server_credentials* credentials_ = nullptr;

  absl::Mutex mutex_;  // Taken under gRPC's own; files are read and the log is written under it.
  Stamps stamps_ ABSL_GUARDED_BY(mutex_);  // Of the files that were read last.
  TlsMaterial material_ ABSL_GUARDED_BY(mutex_);
  bool served_ ABSL_GUARDED_BY(mutex_) = false;  // gRPC has it.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_TLS_CREDENTIALS_H_
