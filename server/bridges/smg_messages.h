// The batches as SMG messages. All subscribers that see the same events share an encoded message.
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

// The messages for one kind of viewer: the operators, or a tenant's callers. The newest messages
// are kept, about 4 MiB at most, so streams that keep up share them. For a stream that is further
// behind, each message is encoded again. Thread-safe.
class SmgMessages {
 public:
  // `encoded` counts the encoded messages; it outlives this.
  SmgMessages(const SmgShape& shape, const Viewer& viewer, std::atomic<uint64_t>* encoded)
      : shape_(shape), viewer_(viewer), encoded_(encoded) {}

  // The batch as a KvEventBatch. The buffer shares its bytes with this object.
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

  absl::Mutex mutex_;  // Held while a batch newer than all kept ones is encoded.
  std::deque<Message> recent_ ABSL_GUARDED_BY(mutex_);  // By ascending number, with gaps.
  size_t recent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The messages for every kind of viewer. Thread-safe.
class SmgMessageSets {
 public:
  // `tenants` outlives this.
  SmgMessageSets(const SmgShape& shape, const TenantTable* tenants)
      : shape_(shape), tenants_(tenants) {}

  // The messages for the caller. Callers of the same kind share the result; it exists while one of
  // them holds it. It must not outlive this object.
  std::shared_ptr<SmgMessages> Of(const Identity& caller) ABSL_LOCKS_EXCLUDED(mutex_);

  // Messages encoded since the start.
  uint64_t encoded() const { return encoded_; }

 private:
  const SmgShape shape_;
  const TenantTable* const tenants_;
  std::atomic<uint64_t> encoded_ = 0;

  absl::Mutex mutex_;  // A leaf lock: no other lock is taken under it.
  // By the caller's role and tenant: at most one entry for each tenant, and one for operators.
  std::map<std::pair<Role, TenantId>, std::weak_ptr<SmgMessages>> sets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_SMG_MESSAGES_H_
