#include "tests/bench/service/noop_service.h"

#include <string>
#include <vector>

#include "google/protobuf/arena.h"
#include "pools/types.h"
#include "wire/rows.h"

namespace pagoda::bench {
namespace {

using pagoda::v1::BatchResult;
using pagoda::v1::Operation;
using pagoda::v1::OperationResult;
using pagoda::v1::SessionRequest;
using pagoda::v1::SessionResponse;

// Handles of `count` blocks.
std::string Handles(uint32_t count) {
  std::vector<BlockHandle> handles;
  for (uint32_t i = 0; i < count; ++i) {
    handles.push_back({BlockId(100'000 + i), Generation(1'000 + i), SlotIndex(100'000 + i)});
  }
  return RowsToBytes<BlockHandle>(handles);
}

void Answer(const Operation& operation, OperationResult* out) {
  switch (operation.operation_case()) {
    case Operation::kAllocateBlocks:
      out->mutable_allocate_blocks()->set_blocks(Handles(operation.allocate_blocks().count()));
      break;
    case Operation::kFreeBlocks:
      out->mutable_free_blocks();
      break;
    case Operation::kAppendTokens: {
      // A decode step names the token after the computed ones.
      const uint32_t before = operation.append_tokens().computed_tokens();
      auto* result = out->mutable_append_tokens();
      result->set_token_count(before +
                              static_cast<uint32_t>(operation.append_tokens().tokens_size()));
      auto* table = result->add_added();
      table->set_first_block(before / kServiceTokensPerBlock);
      if (before % kServiceTokensPerBlock == 0) table->set_blocks(Handles(1));
      break;
    }
    default:
      break;
  }
}

void AnswerBatch(const pagoda::v1::Batch& batch, BatchResult* out) {
  out->mutable_results()->Reserve(batch.operations_size());
  for (const Operation& operation : batch.operations()) Answer(operation, out->add_results());
  out->set_revision(1'000'000);
}

// One call of Session. Deletes itself.
class NoopStream final : public grpc::ServerBidiReactor<SessionRequest, SessionResponse> {
 public:
  NoopStream() { ReadNext(); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    response_->set_batch_id(request_->batch_id());
    AnswerBatch(request_->batch(), response_->mutable_result());
    StartWrite(response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    ReadNext();
  }
  void OnDone() override { delete this; }

 private:
  void ReadNext() {
    memory_.Reset();
    request_ = google::protobuf::Arena::CreateMessage<SessionRequest>(&memory_);
    response_ = google::protobuf::Arena::CreateMessage<SessionResponse>(&memory_);
    StartRead(request_);
  }

  google::protobuf::Arena memory_;  // On an arena, like the cache's streams.
  SessionRequest* request_ = nullptr;
  SessionResponse* response_ = nullptr;
};

// The events of a daemon in which raw blocks are taken and freed in turn.
pagoda::v1::WatchResponse PrebuiltMessage() {
  constexpr int kEvents = 512;
  pagoda::v1::WatchResponse message;
  message.set_epoch(1);
  message.set_cache("events-bench-1234");
  for (int i = 0; i < kEvents; ++i) {
    pagoda::v1::Event* event = message.add_events();
    event->set_revision(500'000 + i);
    event->mutable_time()->set_seconds(1'700'000'000);
    event->mutable_time()->set_nanos(123'456'789);
    if (i % 2 == 0) {
      event->mutable_created()->add_block_ids(1000 + i);
    } else {
      event->mutable_removed()->set_reason(pagoda::v1::REMOVAL_REASON_RELEASED);
      event->mutable_removed()->add_block_ids(1000 + i);
    }
  }
  return message;
}

// One call of Watch. Deletes itself.
class PrebuiltStream final : public grpc::ServerWriteReactor<pagoda::v1::WatchResponse> {
 public:
  PrebuiltStream() { StartWrite(&message_); }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartWrite(&message_);
  }
  void OnDone() override { delete this; }

 private:
  const pagoda::v1::WatchResponse message_ = PrebuiltMessage();
};

}  // namespace

grpc::ServerUnaryReactor* NoopService::Execute(grpc::CallbackServerContext* context,
                                               const pagoda::v1::ExecuteRequest* request,
                                               pagoda::v1::ExecuteResponse* response) {
  AnswerBatch(request->batch(), response->mutable_result());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerBidiReactor<SessionRequest, SessionResponse>* NoopService::Session(
    grpc::CallbackServerContext*) {
  return new NoopStream;
}

grpc::ServerWriteReactor<pagoda::v1::WatchResponse>* NoopService::Watch(
    grpc::CallbackServerContext*, const pagoda::v1::WatchRequest*) {
  return new PrebuiltStream;
}

}  // namespace pagoda::bench
