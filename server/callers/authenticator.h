// Identifies the caller of a call by its credentials.
#ifndef PAGODA_SERVER_CALLERS_AUTHENTICATOR_H_
#define PAGODA_SERVER_CALLERS_AUTHENTICATOR_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/server_context.h"
#include "server/callers/identity.h"
#include "server/callers/tokens_file.h"
#include "server/callers/watched_file.h"
#include "server/config/config.h"

namespace pagoda::server {

// The credentials that a call carries.
struct ShownCredentials {
  // The metadata entry: "Bearer TOKEN".
  std::optional<absl::string_view> authorization;
  // The common name and the alternative names in the client's certificate, which TLS has verified.
  std::vector<absl::string_view> names;
};

// The token in "Bearer TOKEN". Empty if the text has another form.
absl::string_view BearerToken(absl::string_view authorization);
// The token that a call shows. Empty if it shows none.
std::string BearerToken(const grpc::ServerContextBase& context);

// The error that ends an open call when its token has been revoked: UNAUTHENTICATED.
absl::Status RevokedError();

// A token identifies the caller. Without a token, the names in the certificate do. If the
// configuration has no tenants and no operators, every caller is an operator and needs no
// credentials. Thread-safe.
class Authenticator {
 public:
  // Reads the token files.
  // Errors: those of ReadTokensFile, INVALID_ARGUMENT for a token that stands for two callers.
  static absl::StatusOr<std::unique_ptr<Authenticator>> Create(const Config& config);

  // Errors: UNAUTHENTICATED if there are no credentials, if none is known, or if the certificate's
  // names stand for two callers. An unknown token is an error even with a known certificate. Cost:
  // a SHA-256 and a look-up, or nothing if callers need no credentials.
  absl::StatusOr<Identity> Identify(const grpc::ServerContextBase& context) const;
  absl::StatusOr<Identity> Identify(const ShownCredentials& shown) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether the credential that `caller` showed still stands for it. Only tokens can be revoked
  // while the daemon runs.
  bool StillKnows(const Identity& caller) const ABSL_LOCKS_EXCLUDED(mutex_);

  // `token` stands for the daemon's own engine (Role::kEngine) from now on. The token before it
  // stands for nobody.
  void KnowEngine(const std::string& token) ABSL_LOCKS_EXCLUDED(refresh_mutex_, mutex_);

  // Reads the token files that have changed. If a file is invalid, its earlier tokens stay valid.
  // If a token would stand for two callers, all earlier tokens stay valid until the files agree.
  // The log says why.
  void Refresh() ABSL_LOCKS_EXCLUDED(refresh_mutex_, mutex_);

 private:
  using TokenMap = absl::flat_hash_map<TokenDigest, Identity>;
  using SubjectMap = absl::flat_hash_map<std::string, Identity>;

  struct Source {
    std::string path;  // Empty: the daemon has made the token itself.
    Identity identity;
    FileStamp stamp;                  // At the last reading, even a failed one.
    std::vector<TokenDigest> tokens;  // From the last valid reading.
  };

  explicit Authenticator(Exposure exposure) : exposure_(exposure) {}

  void Know(const Config::Credentials& credentials, const Identity& identity);
  static absl::StatusOr<TokenMap> MapOf(const std::vector<Source>& sources);

  const Exposure exposure_;
  bool asks_ = false;
  SubjectMap subjects_;  // Does not change after Create.

  absl::Mutex refresh_mutex_;  // Locked before mutex_. Held while files are read.
  std::vector<Source> sources_ ABSL_GUARDED_BY(refresh_mutex_);
  mutable absl::Mutex mutex_;
  TokenMap tokens_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLERS_AUTHENTICATOR_H_
