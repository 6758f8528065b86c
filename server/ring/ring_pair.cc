#include "server/ring/ring_pair.h"

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "wire/bytes/batch_bytes.h"
#include "wire/bytes/request_bounds.h"
#include "wire/errors.h"
#include "wire/ring/ring_wake.h"

namespace pagoda::server {
namespace {

// A pair keeps a buffer up to this size between its batches.
constexpr size_t kKeptBufferBytes = size_t{16} << 10;

// A batch of more operations, or of more than kLargeRequestBytes, does not run on the poller's
// thread. For operators; see kLongBatch for tenants.
constexpr int kManyOperations = 256;

absl::Status Damaged(const char* what) { return MakeError(Reason::kInvalidArgument, what); }

}  // namespace

void RingInbox::Put(News news, std::shared_ptr<RingPair> pair) {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    items_.push_back({news, std::move(pair)});
  }
  poll_.Wake();
}

std::vector<RingInbox::Item> RingInbox::TakeAll() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(items_, {});
}

void RingInbox::Close() {
  std::vector<Item> dropped;  // Freed without the lock.
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  dropped.swap(items_);
}

RingPair::RingPair(const BatchRun::Context& context, const CacheDirectory* caches,
                   SessionRef session, std::unique_ptr<ring::Memory> memory, FileDescriptor wake,
                   RpcMetrics* metrics, StreamSlots::Slot slot)
    : context_(context),
      session_(session),
      memory_(std::move(memory)),
      wake_(std::move(wake)),
      metrics_(metrics),
      requests_(&memory_->control().requests, memory_->requests(), memory_->bytes()),
      answers_(&memory_->control().answers, memory_->answers(), memory_->bytes()),
      batches_(context, caches, session),
      slot_(std::move(slot)) {
  metrics_->RecordRingOpen();
}

void RingPair::End(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (step_ == Step::kEnded) return;
    if (step_ == Step::kRunning) {
      if (!ending_.has_value()) ending_ = reason;
      return;  // OnBatchDone ends the pair.
    }
    step_ = Step::kEnded;
  }
  Close(reason);
}

void RingPair::Close(const absl::Status& reason) {
  const std::string text = reason.ok() ? "" : ToProtoStatus(reason).SerializeAsString();
  const size_t bytes = text.size() <= ring::kMaxReasonBytes ? text.size() : 0;
  ring::Ending& ending = memory_->control().ending;
  std::memcpy(ending.reason.data(), text.data(), bytes);
  ending.state.store(static_cast<uint32_t>(1 + bytes), std::memory_order_release);
  // Wakes the client, and the poller, which then forgets the pair.
  shutdown(wake_.get(), SHUT_RDWR);
  absl::MutexLock lock(&mutex_);
  metrics_->RecordRingEnd();
  slot_.reset();
}

void RingPair::EndNow(const absl::Status& reason) {
  batches_.Cancel();
  End(reason);
  const auto closed = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !slot_.has_value(); };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&closed));
}

bool RingPair::ended() const {
  absl::MutexLock lock(&mutex_);
  return step_ == Step::kEnded;
}

bool RingPair::running() const {
  absl::MutexLock lock(&mutex_);
  return step_ == Step::kRunning;
}

RingPair::Served RingPair::Serve() {
  {
    absl::MutexLock lock(&mutex_);
    if (step_ == Step::kEnded) return Served::kEnded;
    step_ = Step::kRunning;
  }
  // The request stays in the ring until its turn.
  TenantQueues* const queues = context_.tenant_queues;
  if (queues != nullptr && requests_.NextBytes() > kLargeRequestBytes) {
    queues->RunLater(context_.tenant, 0, [self = shared_from_this()] { self->Run(Place::kQueue); });
  } else {
    context_.InTurn(0, [self = shared_from_this()] { self->Run(Place::kPoller); });
  }
  absl::MutexLock lock(&mutex_);
  if (step_ == Step::kEnded) return Served::kEnded;
  if (step_ == Step::kIdle) return Served::kAnswered;
  announce_ = true;
  return Served::kRunning;
}

void RingPair::Run(Place place) {
  // What has waited in a tenant's queue runs at once: if it waited again, it would be in memory as
  // objects.
  const bool may_wait = place == Place::kPoller && !TenantQueues::OnItsThread();
  TenantQueues* const queues = may_wait ? context_.tenant_queues : nullptr;
  ring::Kind kind;
  if (requests_.Read(&kind, &bytes_) != ring::Reader::Outcome::kMessage) {
    return FinishBatch(Damaged("the ring of requests is damaged"));
  }
  if (kind != ring::Kind::kRequest) {
    return FinishBatch(Damaged("the ring of requests has a message of another kind"));
  }
  if (queues != nullptr && bytes_.size() > kLargeRequestBytes) {
    return FinishBatch(Damaged("a request's length has changed"));
  }
  bool is_request = true;
  const auto parse = [&](v1::SessionRequest* request, uint64_t* fingerprint) {
    absl::Status bounds = CheckRequestBounds(*request->GetDescriptor(), bytes_);
    if (!bounds.ok()) return bounds;
    is_request = request->ParseFromArray(bytes_.data(), static_cast<int>(bytes_.size()));
    if (!is_request) return Damaged("the message is not a SessionRequest");
    if (request->batch().retry_id() != 0) *fingerprint = BatchFingerprint(bytes_);
    return absl::OkStatus();
  };
  const absl::Status read = batches_.Read(bytes_.size(), parse);
  if (!is_request) return FinishBatch(read);
  if (!read.ok()) return OnBatchDone(read);
  const int many = context_.tenant == kDefaultTenant ? kManyOperations : kLongBatch - 1;
  if (queues != nullptr && batches_.num_operations() > many) {
    return queues->RunLater(context_.tenant, bytes_.size(),
                            [self = shared_from_this()] { self->Start(); });
  }
  Start();
}

void RingPair::Start() {
  batches_.Start([self = shared_from_this()](const absl::StatusOr<BatchAnswer>& outcome) {
    self->OnBatchDone(outcome);
  });
}

void RingPair::OnBatchDone(const absl::StatusOr<BatchAnswer>& outcome) {
  metrics_->RecordRingBatch();  // A client that has the answer finds its batch counted.
  FinishBatch(outcome.ok() ? WriteAnswer(**outcome) : WriteRefusal(outcome.status()));
}

void RingPair::FinishBatch(const absl::Status& written) {
  batches_.Clear();
  if (bytes_.capacity() > kKeptBufferBytes) std::string().swap(bytes_);
  std::optional<absl::Status> ending;
  bool announce = false;
  {
    absl::MutexLock lock(&mutex_);
    ending = written.ok() ? std::exchange(ending_, std::nullopt) : written;
    step_ = ending.has_value() ? Step::kEnded : Step::kIdle;
    announce = std::exchange(announce_, false);
  }
  if (ending.has_value()) Close(*ending);
  if (announce) inbox_->Put(RingInbox::News::kBatchDone, shared_from_this());
}

absl::Status RingPair::WriteAnswer(const std::string& answer) {
  const ResponseFrame frame = FrameOf(answer, batches_.batch_id());
  const std::array<std::string_view, 3> pieces = {frame.head, answer, frame.tail};
  ring::Writer::Outcome outcome = answers_.Write(ring::Kind::kAnswer, pieces);
  if (outcome == ring::Writer::Outcome::kTooLarge) {
    outcome = answers_.Write(ring::Kind::kAnswerTooLarge, "");
  }
  return Announce(outcome);
}

absl::Status RingPair::WriteRefusal(const absl::Status& why) {
  const ring::Writer::Outcome outcome =
      answers_.Write(ring::Kind::kRefusal, ToProtoStatus(why).SerializeAsString());
  // A reason that long ends the pair, and gRPC reports it.
  return outcome == ring::Writer::Outcome::kTooLarge ? why : Announce(outcome);
}

absl::Status RingPair::Announce(ring::Writer::Outcome outcome) {
  if (outcome != ring::Writer::Outcome::kWritten) {
    return Damaged(outcome == ring::Writer::Outcome::kNoRoom ? "the client has not read its answers"
                                                             : "the ring of answers is damaged");
  }
  if (answers_.ReaderWaits()) ring::Wake(wake_.get());
  return absl::OkStatus();
}

void RingPair::OnClientGone() {
  bool running = false;
  {
    absl::MutexLock lock(&mutex_);
    running = step_ == Step::kRunning;
  }
  if (running) batches_.Cancel();
  End(running ? ClientGone() : absl::OkStatus());
}

}  // namespace pagoda::server
