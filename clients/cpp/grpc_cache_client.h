// A client of a daemon's cache in another process. It has the same interface as a cache in this
// process (manager/api/cache_client.h).
#ifndef PAGODA_CLIENTS_CPP_GRPC_CACHE_CLIENT_H_
#define PAGODA_CLIENTS_CPP_GRPC_CACHE_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "clients/cpp/channel.h"
#include "manager/api/cache_client.h"

namespace pagoda {

class PrefixFetcher;  // prefix_fetcher.h

// How a client's batches reach the daemon.
enum class Transport {
  kAuto,   // kRings if the endpoint is a Unix socket and the daemon gives rings, otherwise kGrpc.
  kGrpc,   // On a stream of gRPC.
  kRings,  // Through rings in shared memory.
};

struct GrpcCacheClientOptions {
  std::string endpoint = "127.0.0.1:7070";  // Or "unix:/path".
  std::string client_name;                  // Shown to operators.
  // How long the session outlives its client. It runs from the last batch or keep-alive call; while
  // a Session stream is open it does not run. Rings do not hold it: a process that a dead client
  // has forked could keep its rings open. Zero: the daemon's default.
  absl::Duration lease;
  // How long to wait for the connection, and then for each answer over all resends. A batch with a
  // WaitForTicket may take kMaxTicketWait longer.
  absl::Duration timeout = absl::Seconds(10);
  ClientCredentials credentials;
  // The fingerprint of the model whose KV the client reads and writes (see
  // CacheInfo::model_fingerprint). A cache of another model refuses the session. Empty: no check.
  std::string model_fingerprint = {};
  // The session's tenant. Empty: the tenant of the credentials. Only an operator's credentials can
  // name another one.
  std::string tenant = {};
  // The name of the cache in the daemon. Empty: the daemon's only cache.
  std::string cache = {};
  // How long to wait for the answer to one send, if the batch can be sent again.
  absl::Duration attempt_timeout = absl::Seconds(3);
  // Called at most once, on one of the client's threads, if a keep-alive call learns that the
  // session is over. It must not use the client. Empty: the next Execute returns the error.
  std::function<void(const absl::Status&)> on_session_over = nullptr;
  // kRings: the client is not opened if the daemon gives no rings.
  Transport transport = Transport::kAuto;
};

// Connects and opens a session. Execute sends one message and receives one. A thread
// of the client renews the lease, whatever happens to the stream, until the client is destroyed.
// The destructor closes the session; it takes up to one second if the daemon is gone.
//
// With rings (wire/ring), a batch takes a fraction of gRPC's time. A message that is too long for a
// ring goes over gRPC. So does everything else while the rings have ended, for example because the
// daemon's operator turned them off; the client then asks for rings again from time to time.
//
// An answer is lost if the stream or the rings break or is reset, if the daemon cannot be reached,
// or if no answer comes within attempt_timeout. The client then sends the batch again on a new
// stream, after a pause that grows from 10 ms to 1 s, until `timeout` is over. The batch carries a
// retry_id: the daemon runs it once and repeats its first answer. A ticket wait that the broken
// stream cut short is requested again. Therefore Execute's results are the same as over a
// connection that never breaks. One kind of batch is never sent twice: one whose answer may exceed
// 1 MiB, which is more than the daemon remembers (see resend.h). An error from the daemon is an
// answer and causes no resend.
//
// Errors of Execute, besides those of CacheClient:
// * UNAVAILABLE or DEADLINE_EXCEEDED, without a reason: the answer was lost and `timeout` is over.
//   The message says how often the batch was tried and whether it may have run. The next Execute
//   tries again.
// * UNKNOWN_SESSION or STALE_SESSION: the session is over because its lease ran out, an operator
//   ended it, or the daemon restarted. Everything that the session owned is gone. Every later
//   Execute fails with the same error; open another client.
//
// Errors: UNAVAILABLE (no daemon answers), TOO_MANY_SESSIONS, DRAINING, UNAUTHENTICATED,
// INVALID_ARGUMENT (a lease above the daemon's maximum, or the credentials: see MakeChannel),
// MODEL_MISMATCH (the cache is not known to be for model_fingerprint), CACHE_NOT_NAMED (no cache is
// named and the daemon has several), UNKNOWN_CACHE (no cache has that name, or there is no cache).
// With Transport::kRings also those of the map socket (proto/pagoda/v1/mapping.proto), for example
// UNIMPLEMENTED.
//
// `fetcher`, if given, receives an object that brings prefixes from other machines into the cache,
// in the client's session. When the client has ended, its fetches fail.
absl::StatusOr<std::unique_ptr<CacheClient>> OpenGrpcCacheClient(
    GrpcCacheClientOptions options, std::unique_ptr<PrefixFetcher>* fetcher = nullptr);

// How the client's batches reach the daemon now: kGrpc or kRings. REQUIRES: OpenGrpcCacheClient
// returned the client, and no Execute runs.
Transport TransportOf(const CacheClient& client);

// Asks the daemon whether it still knows the client's session, and renews the session's lease. Can
// be called on any thread. Errors: UNKNOWN_SESSION or STALE_SESSION (the session is over);
// UNAVAILABLE or DEADLINE_EXCEEDED, without a reason, if no answer comes within `timeout`.
// REQUIRES: OpenGrpcCacheClient returned the client.
absl::Status RenewLease(const CacheClient& client, absl::Duration timeout);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_GRPC_CACHE_CLIENT_H_
