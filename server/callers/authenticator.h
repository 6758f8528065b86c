// From a call's credentials to who calls.
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

// What a call shows of its caller.
struct ShownCredentials {
  // Of the metadata: "Bearer TOKEN".
  std::optional<absl::string_view> authorization;
  // The common name and the alternative names in the client's certificate, which TLS has verified.
  std::vector<absl::string_view> names;
};

// What a call that is open ends with when its token has been taken back: UNAUTHENTICATED.
absl::Status RevokedError();

// A token says who calls; without one, the names of the certificate do. Where the configuration
// names nobody, every caller is an operator and is not asked anything. Thread-safe.
class Authenticator {
 public:
  // Reads the files of tokens.
  // Errors: those of ReadTokensFile, INVALID_ARGUMENT for a token that stands for two callers.
  static absl::StatusOr<std::unique_ptr<Authenticator>> Create(const Config& config);

  // Errors: UNAUTHENTICATED where there are no credentials, or none that are known, or the
  // certificate's names are those of two callers. A token that is not known counts, whatever the
  // certificate says. Costs a SHA-256 and a look-up, or nothing where nobody is named.
  absl::StatusOr<Identity> Identify(const grpc::ServerContextBase& context) const;
  absl::StatusOr<Identity> Identify(const ShownCredentials& shown) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether the credential that `caller` showed still stands for it. Only tokens can be taken back
  // while the daemon runs.
  bool StillKnows(const Identity& caller) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Reads the files that are others than before. Where one is no good its earlier tokens hold, and
  // where a token would stand for two callers all that were known before do, until the files agree;
  // the log says why.
  void Refresh() ABSL_LOCKS_EXCLUDED(refresh_mutex_, mutex_);

 private:
  using TokenMap = absl::flat_hash_map<TokenDigest, Identity>;
  using SubjectMap = absl::flat_hash_map<std::string, Identity>;

  struct Source {
    std::string path;
    Identity identity;
    FileStamp stamp;                  // When it was read last, for better or worse.
    std::vector<TokenDigest> tokens;  // When it was good last.
  };

  explicit Authenticator(Exposure exposure) : exposure_(exposure) {}

  void Know(const Config::Credentials& credentials, const Identity& identity);
  static absl::StatusOr<TokenMap> MapOf(const std::vector<Source>& sources);

  const Exposure exposure_;
  bool asks_ = false;
  SubjectMap subjects_;  // Does not change after Create.

  absl::Mutex refresh_mutex_;  // Before mutex_; files are read under it.
  std::vector<Source> sources_ ABSL_GUARDED_BY(refresh_mutex_);
  mutable absl::Mutex mutex_;
  TokenMap tokens_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLERS_AUTHENTICATOR_H_
