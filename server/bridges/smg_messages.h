// The batches as SMG's messages, encoded once for all who see the same.
#ifndef PAGODA_SERVER_BRIDGES_SMG_MESSAGES_H_
#define PAGODA_SERVER_BRIDGES_SMG_MESSAGES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/bridges/router_events.h"
#include "server/bridges/smg_wire.h"

namespace pagoda::server {

// Those of one kind of viewer: the operators, or a tenant's callers. The last ones are kept, at
// most about 4 MiB, so those who keep up share them; who is further behind has his own encoded.
// Thread-safe.
class SmgMessages {
 public:
  // `encoded` counts, and outlives this.
  SmgMessages(const SmgShape& shape, const Viewer& viewer, std::atomic<uint64_t>* encoded)
      : shape_(shape), viewer_(viewer), encoded_(encoded) {}

  // The batch as a KvEventBatch, of which the bytes are shared.
  grpc::ByteBuffer Get(const RouterBatch& batch) ABSL_LOCKS_EXCLUDED(mutex_);

  const Viewer& viewer() const { return viewer_; }

 private:
  struct Message {
    uint64_t number = 0;
    grpc::ByteBuffer bytes;
  };

  grpc::ByteBuffer Encode(const RouterBatch& batch) const;

  const SmgShape shape_;
  const Viewer viewer_;
  std::atomic<uint64_t>* const encoded_;

  absl::Mutex mutex_;  // Held while a batch that is newer than all that are kept is encoded.
  std::deque<Message> recent_ ABSL_GUARDED_BY(mutex_);  // Ascending, not without holes.
  size_t recent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The messages for every kind of viewer that there is. Thread-safe.
class SmgMessageSets {
 public:
  // `tenants` outlives this.
  SmgMessageSets(const SmgShape& shape, const TenantTable* tenants)
      : shape_(shape), tenants_(tenants) {}

  // What the caller is sent; lives as long as somebody has it, and not longer than this.
  std::shared_ptr<SmgMessages> Of(const Identity& caller) ABSL_LOCKS_EXCLUDED(mutex_);

  // Messages encoded since the start.
  uint64_t encoded() const { return encoded_; }

 private:
  const SmgShape shape_;
  const TenantTable* const tenants_;
  std::atomic<uint64_t> encoded_ = 0;

  absl::Mutex mutex_;  // Nothing is called under it.
  // By the caller's role and tenant. As many as there are tenants, and one.
  std::map<std::pair<Role, TenantId>, std::weak_ptr<SmgMessages>> sets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_SMG_MESSAGES_H_
