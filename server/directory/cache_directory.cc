#include "server/directory/cache_directory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

bool MaySee(const Identity& caller, const CacheParts& cache) {
  return caller.is_operator() || cache.tenant == kDefaultTenant || cache.tenant == caller.tenant;
}

}  // namespace

absl::Status CacheDropped(const CacheParts& cache) {
  return MakeError(Reason::kUnknownCache,
                   absl::StrCat("the cache '", cache.name, "' has been dropped"));
}

void CacheDirectory::Add(CachePtr cache) {
  absl::MutexLock lock(&mutex_);
  const uint32_t number = cache->number;
  end_ = std::max(end_, number + 1);
  const bool added = caches_.emplace(number, std::move(cache)).second;
  PAGODA_CHECK(added, "no two caches have one number");
}

void CacheDirectory::Remove(uint32_t number) {
  CachePtr last;  // Destroyed after the lock is released.
  absl::MutexLock lock(&mutex_);
  const auto it = caches_.find(number);
  if (it == caches_.end()) return;
  last = std::move(it->second);
  caches_.erase(it);
}

absl::StatusOr<CachePtr> CacheDirectory::Named(const std::string& name,
                                               const Identity& caller) const {
  absl::ReaderMutexLock lock(&mutex_);
  CachePtr found;
  std::vector<std::string> names;
  for (const auto& [number, cache] : caches_) {
    if (!MaySee(caller, *cache)) continue;
    if (cache->name == name) return cache;
    names.push_back(cache->name);
    found = cache;
  }
  if (name.empty() && names.size() == 1) return found;
  if (name.empty() && names.size() > 1) {
    return MakeError(
        Reason::kCacheNotNamed,
        absl::StrCat("the daemon serves ", Counted(names.size(), "cache"),
                     ", and the request names none of them: ", absl::StrJoin(names, ", ")));
  }
  if (names.empty()) {
    return MakeError(Reason::kUnknownCache,
                     "the daemon serves no cache; a client opens one with OpenCache");
  }
  return MakeError(Reason::kUnknownCache, absl::StrCat("there is no cache '", name, "'; there is ",
                                                       absl::StrJoin(names, ", ")));
}

absl::StatusOr<CachePtr> CacheDirectory::OfSession(SessionId session) const {
  const uint32_t number = CacheNumberOf(session);
  absl::ReaderMutexLock lock(&mutex_);
  const auto it = caches_.find(number);
  if (it != caches_.end()) return it->second;
  if (number < end_) {
    return MakeError(
        Reason::kStaleSession,
        absl::StrCat("session ", session.value(), " has ended: its cache is no longer served"));
  }
  return MakeError(Reason::kUnknownSession,
                   absl::StrCat("session ", session.value(), " was never opened"));
}

bool CacheDirectory::Serves(const CacheParts& cache) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto it = caches_.find(cache.number);
  return it != caches_.end() && it->second.get() == &cache;
}

std::vector<CachePtr> CacheDirectory::All() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<CachePtr> all;
  all.reserve(caches_.size());
  for (const auto& [number, cache] : caches_) all.push_back(cache);
  return all;
}

std::vector<CachePtr> CacheDirectory::VisibleTo(const Identity& caller) const {
  std::vector<CachePtr> all = All();
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const CachePtr& cache) { return !MaySee(caller, *cache); }),
            all.end());
  return all;
}

std::vector<bool> CacheDirectory::Remembers(absl::Span<const SessionRef> sessions) const {
  std::vector<bool> remembered;
  remembered.reserve(sessions.size());
  // Takes a cache's lock once for each run of sessions of that cache.
  for (size_t begin = 0; begin < sessions.size();) {
    size_t end = begin + 1;
    const uint32_t number = CacheNumberOf(sessions[begin].id);
    while (end < sessions.size() && CacheNumberOf(sessions[end].id) == number) ++end;
    const absl::StatusOr<CachePtr> cache = OfSession(sessions[begin].id);
    if (cache.ok()) {
      const std::vector<bool> run =
          (*cache)->manager->Remembers(sessions.subspan(begin, end - begin));
      remembered.insert(remembered.end(), run.begin(), run.end());
    } else {
      remembered.insert(remembered.end(), end - begin, false);
    }
    begin = end;
  }
  return remembered;
}

}  // namespace pagoda::server
