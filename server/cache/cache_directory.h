// Which caches a daemon serves: by name, for calls that name one, and by session.
#ifndef PAGODA_SERVER_CACHE_CACHE_DIRECTORY_H_
#define PAGODA_SERVER_CACHE_CACHE_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "manager/ids.h"
#include "server/cache/cache_parts.h"
#include "server/callers/identity.h"

namespace pagoda::server {

// What streams of a cache that is dropped end with: UNKNOWN_CACHE.
absl::Status CacheDropped(const CacheParts& cache);

// Decides nothing about how caches are opened: CacheOpener adds and removes them. Other tenants
// cannot find a tenant's cache here. Thread-safe.
class CacheDirectory {
 public:
  // REQUIRES: no cache of that name or number is here.
  void Add(CachePtr cache) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nobody finds it any more; those who have it keep it.
  void Remove(uint32_t number) ABSL_LOCKS_EXCLUDED(mutex_);

  // The cache of that name; with "" the only one that the caller may see. Errors: UNKNOWN_CACHE;
  // CACHE_NOT_NAMED, with the names.
  absl::StatusOr<CachePtr> Named(const std::string& name, const Identity& caller) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The cache that the session is one of. Errors: STALE_SESSION (it has ended with its cache),
  // UNKNOWN_SESSION (no cache ever had such sessions).
  absl::StatusOr<CachePtr> OfSession(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the cache is still here.
  bool Serves(const CacheParts& cache) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Every cache, by number.
  std::vector<CachePtr> All() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Those that the caller may see, by number.
  std::vector<CachePtr> VisibleTo(const Identity& caller) const ABSL_LOCKS_EXCLUDED(mutex_);

  // SharedManager::Remembers of each session's cache; false where that has gone. `sessions` may be
  // of several caches.
  std::vector<bool> Remembers(absl::Span<const SessionRef> sessions) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  std::map<uint32_t, CachePtr> caches_ ABSL_GUARDED_BY(mutex_);  // By number.
  uint32_t end_ ABSL_GUARDED_BY(mutex_) = 0;  // Above every number that was ever here.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_CACHE_DIRECTORY_H_
