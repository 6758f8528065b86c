// The caches that a daemon serves, found by name or by session.
#ifndef PAGODA_SERVER_DIRECTORY_CACHE_DIRECTORY_H_
#define PAGODA_SERVER_DIRECTORY_CACHE_DIRECTORY_H_

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
#include "manager/words/ids.h"
#include "server/callers/identity.h"
#include "server/directory/cache_parts.h"

namespace pagoda::server {

// The error that ends the streams of a dropped cache: UNKNOWN_CACHE.
absl::Status CacheDropped(const CacheParts& cache);

// CacheOpener adds and removes the caches. Only the tenant itself and operators find a tenant's
// cache by name. Thread-safe.
class CacheDirectory {
 public:
  // REQUIRES: the directory has no cache with that name or number.
  void Add(CachePtr cache) ABSL_LOCKS_EXCLUDED(mutex_);
  // No call finds the cache from now on. Holders of its CachePtr keep it.
  void Remove(uint32_t number) ABSL_LOCKS_EXCLUDED(mutex_);

  // The cache with that name; for "" the only cache that the caller may see. Errors: UNKNOWN_CACHE;
  // CACHE_NOT_NAMED ("" and several caches), with the names.
  absl::StatusOr<CachePtr> Named(const std::string& name, const Identity& caller) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The cache of the session. Errors: STALE_SESSION (the session has ended with its cache),
  // UNKNOWN_SESSION (no cache ever had the number in the session's id).
  absl::StatusOr<CachePtr> OfSession(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the directory still has the cache.
  bool Serves(const CacheParts& cache) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Every cache, by number.
  std::vector<CachePtr> All() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The caches that the caller may see, by number.
  std::vector<CachePtr> VisibleTo(const Identity& caller) const ABSL_LOCKS_EXCLUDED(mutex_);

  // SharedManager::Remembers for each session, asked of its cache; false if the cache is gone.
  // `sessions` can belong to several caches.
  std::vector<bool> Remembers(absl::Span<const SessionRef> sessions) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  std::map<uint32_t, CachePtr> caches_ ABSL_GUARDED_BY(mutex_);  // By number.
  uint32_t end_ ABSL_GUARDED_BY(mutex_) = 0;  // Above the number of every cache so far.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_DIRECTORY_CACHE_DIRECTORY_H_
