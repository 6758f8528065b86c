#include "server/admin/daemon_parts.h"

#include "server/bridges/bridges.h"
#include "server/watch/cache_streams.h"

namespace pagoda::server {

size_t DaemonParts::Subscribers(const CacheParts& cache) const {
  const size_t streams = cache.streams->all().size();
  return IsConfigured(cache) ? streams + bridges->streams() : streams;
}

bool DaemonParts::HasEngine(const CacheParts& cache) const {
  return IsConfigured(cache) && engine != nullptr;
}

}  // namespace pagoda::server
