// The daemon's side of TLS, from files that can be replaced while it runs.
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

// The PEM texts that a handshake needs.
struct TlsMaterial {
  std::string certificate;
  std::string key;
  std::string client_ca;  // Empty: clients are not asked for a certificate.
  friend bool operator==(const TlsMaterial&, const TlsMaterial&) = default;
};

// Reads the files. Errors: INVALID_ARGUMENT with the path if a file cannot be read or holds no
// certificate or key, if the key does not belong to the certificate, or if other users can read it.
absl::StatusOr<TlsMaterial> LoadTlsMaterial(const Config::Server::Tls& files, Exposure exposure);

// Checks the files before each handshake, and reads them if they have changed. The new contents
// replace the served ones only as a whole and only if they are valid. Otherwise the served ones
// stay, and the log gives the reason. Open connections are not affected. Thread-safe.
class TlsCredentials final : public grpc::ServerCredentials {
 public:
  // Errors: those of LoadTlsMaterial.
  static absl::StatusOr<std::shared_ptr<TlsCredentials>> Create(const Config::Server::Tls& files,
                                                                Exposure exposure);
  ~TlsCredentials() override;

  // Not supported.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  using Stamps = std::array<FileStamp, 3>;

  TlsCredentials(const Config::Server::Tls& files, Exposure exposure);

  int AddPortToServer(const std::string& address, grpc_server* server) override;

  // gRPC calls this before each handshake. `self` must outlive the server.
  static grpc_ssl_certificate_config_reload_status Fetch(void* self,
                                                         grpc_ssl_server_certificate_config** out);
  // The material to serve from now on; nullopt if it has not changed.
  std::optional<TlsMaterial> Next() ABSL_LOCKS_EXCLUDED(mutex_);
  Stamps StampsNow() const;

  const Config::Server::Tls files_;
  const Exposure exposure_;
  grpc_server_credentials* credentials_ = nullptr;

  absl::Mutex mutex_;  // Locked inside gRPC's own locks; files and the log are accessed under it.
  Stamps stamps_ ABSL_GUARDED_BY(mutex_);  // The stamps of the files as last read.
  TlsMaterial material_ ABSL_GUARDED_BY(mutex_);
  bool served_ ABSL_GUARDED_BY(mutex_) = false;  // gRPC has it.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_TLS_CREDENTIALS_H_
