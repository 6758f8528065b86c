// A daemon that a test plays: it says which cache it serves, and sends the events that it is told.
#ifndef PAGODA_TESTS_CLIENTS_ROUTER_FAKE_NODE_H_
#define PAGODA_TESTS_CLIENTS_ROUTER_FAKE_NODE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/error.h"
#include "grpcpp/grpcpp.h"
#include "pagoda/v1/admin.grpc.pb.h"
#include "pagoda/v1/events.grpc.pb.h"
#include "wire/errors.h"

namespace pagoda {

struct FakeBlock {
  uint64_t hash = 0;
  v1::Tier tier = v1::TIER_PRIMARY;
};

// A message that continues at `previous` and has one Stored event.
inline v1::WatchResponse StoredMessage(uint64_t epoch, uint64_t previous, uint64_t revision,
                                       const std::vector<FakeBlock>& blocks = {}) {
  v1::WatchResponse message;
  message.set_epoch(epoch);
  message.set_previous_revision(previous);
  message.set_revision(revision);
  if (blocks.empty()) return message;
  v1::Event* event = message.add_events();
  event->set_revision(revision);
  for (const FakeBlock& block : blocks) {
    v1::StoredBlock* stored = event->mutable_stored()->add_blocks();
    stored->set_block_hash(block.hash);
    stored->set_tier(block.tier);
  }
  return message;
}

// A whole snapshot in one message.
inline v1::WatchResponse SnapshotMessage(uint64_t epoch, uint64_t revision,
                                         const std::vector<FakeBlock>& blocks = {}) {
  v1::WatchResponse message = StoredMessage(epoch, revision, revision, blocks);
  for (v1::Event& event : *message.mutable_events()) event.set_revision(0);
  message.set_snapshot_begin(true);
  message.set_snapshot_end(true);
  return message;
}

// The row of a cache with one layer of 2 heads of 8 bfloat16 elements, K and V: 64 bytes a token.
inline v1::CacheRow FakeCache(uint64_t epoch, uint32_t tokens_per_block = 16,
                              const std::string& model = "m") {
  v1::CacheRow row;
  row.set_epoch(epoch);
  row.mutable_cache()->set_name("main");
  row.mutable_cache()->set_model_fingerprint(model);
  row.mutable_cache()->set_tokens_per_block(tokens_per_block);
  for (const uint32_t window : {uint32_t{128}, uint32_t{0}}) {
    row.mutable_cache()->add_windows()->set_window_size(window);
  }
  const v1::Medium media[] = {v1::MEDIUM_GPU, v1::MEDIUM_HOST, v1::MEDIUM_DISK};
  const char* const names[] = {"hbm", "dram", "nvme"};
  for (int i = 0; i < 3; ++i) {
    v1::TierInfo* tier = row.mutable_cache()->add_tiers();
    tier->set_tier(static_cast<v1::Tier>(v1::TIER_PRIMARY + i));
    tier->set_medium(media[i]);
    tier->set_name(names[i]);
  }
  v1::LayerGroup* group = row.add_layers();
  group->set_count(1);
  group->set_kind(v1::LAYER_KIND_KEY_VALUE);
  group->set_num_kv_heads(2);
  group->set_head_dim(8);
  group->set_dtype(v1::DTYPE_BFLOAT16);
  return row;
}

// Thread-safe. A stream sends the queued messages, and stays open until it is told to end.
class FakeNode final : public v1::EventService::Service, public v1::AdminService::Service {
 public:
  FakeNode(std::string path, v1::CacheRow row) : path_(std::move(path)), row_(std::move(row)) {
    Start();
  }
  ~FakeNode() override { Shutdown(); }

  std::string endpoint() const { return "unix:" + path_; }

  void Start() {
    {
      absl::MutexLock lock(&mutex_);
      down_ = false;
    }
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + path_, grpc::InsecureServerCredentials());
    builder.RegisterService(static_cast<v1::EventService::Service*>(this));
    builder.RegisterService(static_cast<v1::AdminService::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  // Connections are refused until Start.
  void Shutdown() {
    {
      absl::MutexLock lock(&mutex_);
      down_ = true;
    }
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }

  void SetCache(v1::CacheRow row) {
    absl::MutexLock lock(&mutex_);
    row_ = std::move(row);
  }
  // The next message of the stream that is open, or of the next one.
  void Send(v1::WatchResponse message) {
    absl::MutexLock lock(&mutex_);
    messages_.push_back(std::move(message));
  }
  // Each stream from now on begins with this message. A router gives up a stream on which it hears
  // nothing for a lease, and a message sent there is lost.
  void Greet(v1::WatchResponse message) {
    absl::MutexLock lock(&mutex_);
    greeting_ = std::move(message);
  }
  // Waits until every stream has ended. A client that has gone leaves its stream for a moment, and
  // that stream would take the next message.
  void AwaitNoStream() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](size_t* open) { return *open == 0; }, &open_streams_));
  }
  // Ends the stream behind the queued messages.
  void End(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    end_ = ToGrpcStatus(status);
  }
  // Refuses each stream from now on; OK: none.
  void Refuse(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    refusal_ = status;
  }
  std::vector<v1::WatchRequest> requests() const {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }

  grpc::Status ListCaches(grpc::ServerContext*, const v1::ListCachesRequest*,
                          v1::ListCachesResponse* answer) override {
    absl::MutexLock lock(&mutex_);
    *answer->add_caches() = row_;
    return grpc::Status::OK;
  }

  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchResponse>* writer) override {
    {
      absl::MutexLock lock(&mutex_);
      requests_.push_back(*request);
      if (!refusal_.ok()) return ToGrpcStatus(refusal_);
      ++open_streams_;
    }
    std::optional<v1::WatchResponse> greeting;
    {
      absl::MutexLock lock(&mutex_);
      greeting = greeting_;
    }
    if (greeting.has_value()) writer->Write(*greeting);
    const grpc::Status status = SendMessages(context, writer);
    absl::MutexLock lock(&mutex_);
    --open_streams_;
    return status;
  }

 private:
  grpc::Status SendMessages(grpc::ServerContext* context,
                            grpc::ServerWriter<v1::WatchResponse>* writer) {
    for (;;) {
      v1::WatchResponse message;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.AwaitWithTimeout(absl::Condition(this, &FakeNode::HasWork), absl::Milliseconds(5));
        if (down_ || context->IsCancelled()) return grpc::Status::CANCELLED;
        if (messages_.empty()) {
          if (!end_.has_value()) continue;
          const grpc::Status end = *std::exchange(end_, std::nullopt);
          return end;
        }
        message = std::move(messages_.front());
        messages_.pop_front();
      }
      writer->Write(message);
    }
  }

  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return down_ || !messages_.empty() || end_.has_value();
  }

  const std::string path_;
  mutable absl::Mutex mutex_;
  v1::CacheRow row_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::WatchResponse> messages_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::WatchResponse> greeting_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::WatchRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  bool down_ ABSL_GUARDED_BY(mutex_) = false;
  size_t open_streams_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_CLIENTS_ROUTER_FAKE_NODE_H_
