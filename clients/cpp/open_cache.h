// Opens a cache of the client's own layout in a daemon.
#ifndef PAGODA_CLIENTS_CPP_OPEN_CACHE_H_
#define PAGODA_CLIENTS_CPP_OPEN_CACHE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "clients/cpp/channel.h"
#include "events/event.h"
#include "manager/cache_client.h"
#include "pagoda/v1/caches.pb.h"
#include "wire/caches.h"

namespace pagoda {

struct OpenCacheOptions {
  std::string endpoint = "127.0.0.1:7070";  // Or "unix:/path".
  // How long to wait for the connection, and then for the answer: the daemon takes the memory
  // before it answers.
  absl::Duration timeout = absl::Seconds(10);
  ClientCredentials credentials;
  // Whose cache it is, where an operator opens it for a tenant. Empty: the caller's.
  std::string tenant = {};
};

struct OpenedCache {
  CacheInfo info;
  // False: the cache was there, with this identity and these layers. Its sizes are those that it
  // was opened with.
  bool created = false;
  Epoch epoch;
};

// Opens the cache, or finds the one that is there under its name with the same identity, tokens per
// block and layers; a session then names it (GrpcCacheClientOptions::cache). Where the answer was
// lost, calling again is safe. The cache stays when this process ends; without a session it ends
// after the daemon's memory.linger.
//
// Errors: UNAVAILABLE, DEADLINE_EXCEEDED (no daemon, or no answer in time), CACHE_MISMATCH (the
// name is that of a cache with another identity, other layers or another tenant), OUT_OF_MEMORY
// (the daemon's budget, or the tenant's, does not hold it), TOO_MANY_CACHES, TOO_MANY_CALLS,
// INVALID_ARGUMENT (the field is named), DRAINING, UNAUTHENTICATED, PERMISSION_DENIED. A refused
// call leaves nothing behind.
absl::StatusOr<OpenedCache> OpenCache(const OpenCacheOptions& options, const OpenCacheCall& call);

// The same for a request as the wire has it, whose tenant is its own: what layers can be is then
// the daemon's to judge, and not this library's.
absl::StatusOr<OpenedCache> OpenCache(const OpenCacheOptions& options,
                                      const v1::OpenCacheRequest& request);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_OPEN_CACHE_H_
