#include "server/bridges/smg_messages.h"

#include <algorithm>
#include <string>

#include "grpcpp/support/slice.h"

namespace pagoda::server {
namespace {

constexpr size_t kRecentBytes = size_t{4} << 20;

}  // namespace

grpc::ByteBuffer SmgMessages::Get(const RouterBatch& batch) {
  {
    absl::MutexLock lock(&mutex_);
    const auto known = std::lower_bound(
        recent_.begin(), recent_.end(), batch.number,
        [](const Message& message, uint64_t number) { return message.number < number; });
    if (known != recent_.end() && known->number == batch.number) return known->bytes;
    if (known == recent_.end()) {
      recent_.push_back({batch.number, Encode(batch)});
      recent_bytes_ += recent_.back().bytes.Length();
      while (recent_bytes_ > kRecentBytes && recent_.size() > 1) {
        recent_bytes_ -= recent_.front().bytes.Length();
        recent_.pop_front();
      }
      return recent_.back().bytes;
    }
  }
  return Encode(batch);
}

grpc::ByteBuffer SmgMessages::Encode(const RouterBatch& batch) const {
  encoded_->fetch_add(1, std::memory_order_relaxed);
  smg::grpc::common::KvEventBatch message;
  RouterBatchToSmg(batch, shape_, viewer_, &message);
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

std::shared_ptr<SmgMessages> SmgMessageSets::Of(const Identity& caller) {
  absl::MutexLock lock(&mutex_);
  std::weak_ptr<SmgMessages>& known = sets_[{caller.role, caller.tenant}];
  if (std::shared_ptr<SmgMessages> messages = known.lock(); messages != nullptr) return messages;
  const auto messages = std::make_shared<SmgMessages>(shape_, Viewer{caller, tenants_}, &encoded_);
  known = messages;
  return messages;
}

}  // namespace pagoda::server
