// The cache of a daemon in another process, behind the same interface as the one in this process.
#ifndef PAGODA_CLIENTS_CPP_GRPC_CACHE_CLIENT_H_
#define PAGODA_CLIENTS_CPP_GRPC_CACHE_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "clients/cpp/channel.h"
#include "manager/cache_client.h"

namespace pagoda {

struct GrpcCacheClientOptions {
  std::string endpoint = "127.0.0.1:7070";  // Or "unix:/path".
  std::string client_name;                  // Shown to operators.
  // How long the session outlives a broken stream. Zero: the daemon's default.
  absl::Duration lease;
  // How long to wait for the connection, and then for each answer; a WaitForTicket alone may take
  // kMaxTicketWait.
  absl::Duration timeout = absl::Seconds(10);
  ClientCredentials credentials;
};

// Connects, opens a session and its stream: Execute is one message out and one in. Destroying the
// client closes the session.
//
// A batch whose answer does not come in time fails with DEADLINE_EXCEEDED and ends the stream,
// because the answer could arrive later and be taken for another batch's; whether the batch ran is
// then unknown. The next Execute opens a new stream to the same session, which the daemon keeps for
// its lease.
//
// Errors: UNAVAILABLE (no daemon there), TOO_MANY_SESSIONS, DRAINING, UNAUTHENTICATED,
// INVALID_ARGUMENT (a lease above the daemon's maximum; credentials as MakeChannel says).
absl::StatusOr<std::unique_ptr<CacheClient>> OpenGrpcCacheClient(GrpcCacheClientOptions options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_GRPC_CACHE_CLIENT_H_
