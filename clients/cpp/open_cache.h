// Opens a cache in a daemon. The client chooses its layout.
#ifndef PAGODA_CLIENTS_CPP_OPEN_CACHE_H_
#define PAGODA_CLIENTS_CPP_OPEN_CACHE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "clients/cpp/channel.h"
#include "events/event.h"
#include "manager/api/cache_client.h"
#include "pagoda/v1/caches.pb.h"
#include "wire/caches.h"

namespace pagoda {

struct OpenCacheOptions {
  std::string endpoint = "127.0.0.1:7070";  // Or "unix:/path".
  // How long to wait for the connection, and then for the answer. The daemon allocates the cache's
  // memory before it answers.
  absl::Duration timeout = absl::Seconds(10);
  ClientCredentials credentials;
  // The tenant that owns the cache, if an operator opens it for a tenant. Empty: the caller's.
  std::string tenant = {};
};

struct OpenedCache {
  CacheInfo info;
  // False: the cache already existed with this identity and these layers. It keeps the sizes that
  // it was first opened with.
  bool created = false;
  Epoch epoch;
};

// Opens the cache, or finds the existing cache of that name with the same identity, tokens per
// block and layers. A session then names it (GrpcCacheClientOptions::cache). If the answer was
// lost, calling again is safe. The cache outlives this process. A cache without sessions is dropped
// after the daemon's memory.linger.
//
// Errors: UNAVAILABLE, DEADLINE_EXCEEDED (no daemon, or no answer in time), CACHE_MISMATCH (the
// cache of that name has another identity, other layers or another tenant), OUT_OF_MEMORY (the
// daemon's or the tenant's memory budget is too small), TOO_MANY_CACHES, TOO_MANY_CALLS,
// THREADS_EXHAUSTED, INVALID_ARGUMENT (the message names the field), DRAINING, UNAUTHENTICATED,
// PERMISSION_DENIED. A refused call changes nothing.
absl::StatusOr<OpenedCache> OpenCache(const OpenCacheOptions& options, const OpenCacheCall& call);

// The same for a wire request, whose own tenant field is used (not options.tenant). The daemon, not
// this library, then checks the layers.
absl::StatusOr<OpenedCache> OpenCache(const OpenCacheOptions& options,
                                      const v1::OpenCacheRequest& request);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_OPEN_CACHE_H_
