// The cache of a daemon in another process, behind the same interface as the one in this process.
#ifndef PAGODA_CLIENTS_CPP_GRPC_CACHE_CLIENT_H_
#define PAGODA_CLIENTS_CPP_GRPC_CACHE_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
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
  // How long to wait for the connection, and then for each answer, however often the batch is sent;
  // kMaxTicketWait longer where a batch holds a WaitForTicket.
  absl::Duration timeout = absl::Seconds(10);
  ClientCredentials credentials;
  // The model whose KV the client reads and writes, as CacheInfo::model_fingerprint has it; a cache
  // of another model refuses the session. Empty: not said.
  std::string model_fingerprint = {};
  // Which of the daemon's caches. Empty: the only one.
  std::string cache = {};
  // How long to wait for the answer to one sending, where another can follow.
  absl::Duration attempt_timeout = absl::Seconds(3);
  // Called at most once, on a thread of the client's, where a sign of life learns that the session
  // is over; it must not use the client. Empty: the next Execute says so.
  std::function<void(const absl::Status&)> on_session_over = nullptr;
};

// Connects, opens a session and its stream: Execute is one message out and one in. The lease is
// renewed by a thread of the client's, whatever the stream does, until the client is destroyed,
// which closes the session and takes a second where no daemon is there.
//
// A batch whose answer was lost (a broken or reset stream, a daemon that cannot be reached, no
// answer within attempt_timeout) is sent again on a new stream, after a pause that grows from 10 ms
// to 1 s, until `timeout` is over. It carries a retry_id, so the daemon runs it once and gives the
// first answer again; a wait that the broken stream had cut short is asked for anew. So Execute's
// results are those of a connection that never breaks. Only a batch whose answer may be above 1
// MiB, which is more than the daemon remembers, is not sent twice: see resend.h. An error that the
// daemon gave is an answer: nothing is sent again.
//
// Errors of Execute, besides those of CacheClient: UNAVAILABLE or DEADLINE_EXCEEDED, without a
// reason, where the answer was lost and `timeout` is over (the message says how often the batch was
// sent, and whether it may have run; the next Execute tries again); UNKNOWN_SESSION or
// STALE_SESSION, where the session is over because its lease ran out, an operator ended it, or the
// daemon was started anew. What the session owned is gone, every later Execute fails with the same,
// and the way on is another client.
//
// Errors: UNAVAILABLE (no daemon there), TOO_MANY_SESSIONS, DRAINING, UNAUTHENTICATED,
// INVALID_ARGUMENT (a lease above the daemon's maximum; credentials as MakeChannel says),
// MODEL_MISMATCH (a cache that is not known to be for model_fingerprint), CACHE_NOT_NAMED (no cache
// is named and the daemon has several), UNKNOWN_CACHE (none has that name, or the daemon has none).
absl::StatusOr<std::unique_ptr<CacheClient>> OpenGrpcCacheClient(GrpcCacheClientOptions options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_GRPC_CACHE_CLIENT_H_
