#include "clients/router/node_watch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/counted.h"
#include "base/error.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "manager/shared_manager.h"
#include "wire/errors.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

// Whether the daemon no longer has the events that the position needs.
bool IsGap(const absl::Status& error) {
  const Reason reason = ReasonOf(error);
  return reason == Reason::kEpochChanged || reason == Reason::kRevisionCompacted ||
         reason == Reason::kRevisionInFuture;
}

// Whether the stream can be continued when the daemon answers again.
bool IsBreak(const absl::Status& error) {
  return IsAnswerLost(error) || ReasonOf(error) == Reason::kDraining;
}

}  // namespace

std::string_view NodeStateName(NodeState state) {
  switch (state) {
    case NodeState::kConnecting:
      return "connecting";
    case NodeState::kSnapshot:
      return "snapshot";
    case NodeState::kFollowing:
      return "following";
    case NodeState::kBroken:
      return "broken";
    case NodeState::kDead:
      return "dead";
    case NodeState::kRefused:
      return "refused";
  }
  return "unknown";
}

// A call to the daemon. It owns itself until gRPC has finished with it. A grpc::Channel must not be
// destroyed on gRPC's own threads, and a context refers to its channel. So a call notifies its
// watch that it is gone only when its context is destroyed.
class NodeWatch::Call {
 public:
  explicit Call(NodeWatch* watch) : watch_(watch) {}
  virtual ~Call() = default;

  // `self`: this call.
  void Start(std::shared_ptr<Call> self) {
    self_ = std::move(self);
    Begin();
  }
  void Cancel() { context_.TryCancel(); }

 protected:
  virtual void Begin() = 0;
  // The last thing that a call does.
  void End() {
    NodeWatch* const watch = watch_;
    self_.reset();
    watch->OnGone();
  }

  NodeWatch* const watch_;
  grpc::ClientContext context_;

 private:
  std::shared_ptr<Call> self_;
};

// Asks which cache the daemon serves.
class NodeWatch::CacheCall final : public Call {
 public:
  explicit CacheCall(NodeWatch* watch) : Call(watch) {
    request_.set_name(watch->options_.cache);
    context_.set_deadline(absl::ToChronoTime(absl::Now() + watch->options_.lease));
  }

 private:
  void Begin() override {
    watch_->admin_->async()->ListCaches(&context_, &request_, &answer_,
                                        [this](grpc::Status status) {
                                          watch_->OnCache(this, status, answer_);
                                          End();
                                        });
  }

  v1::ListCachesRequest request_;
  v1::ListCachesResponse answer_;
};

// Reads the daemon's events.
class NodeWatch::StreamCall final : public Call, public grpc::ClientReadReactor<v1::WatchResponse> {
 public:
  StreamCall(NodeWatch* watch, v1::WatchRequest request)
      : Call(watch), request_(std::move(request)) {}

 private:
  void Begin() override {
    watch_->events_->async()->Watch(&context_, &request_, this);
    StartRead(&message_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (watch_->OnMessage(this, message_)) {
      StartRead(&message_);
    } else {
      context_.TryCancel();
    }
  }
  void OnDone(const grpc::Status& status) override {
    watch_->OnStreamEnd(this, status);
    End();
  }

  const v1::WatchRequest request_;
  v1::WatchResponse message_;  // The message that the current read fills.
};

absl::StatusOr<std::unique_ptr<NodeWatch>> NodeWatch::Create(std::shared_ptr<const RouterNode> node,
                                                             NodeId id, const Options& options,
                                                             Records* records,
                                                             SnapshotSlots* slots) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      MakeChannel(node->endpoint, node->credentials);
  if (!channel.ok()) return channel.status();
  return std::unique_ptr<NodeWatch>(
      new NodeWatch(std::move(node), id, options, records, slots, *std::move(channel)));
}

NodeWatch::NodeWatch(std::shared_ptr<const RouterNode> node, NodeId id, const Options& options,
                     Records* records, SnapshotSlots* slots, std::shared_ptr<grpc::Channel> channel)
    : node_(std::move(node)),
      id_(id),
      options_(options),
      records_(records),
      slots_(slots),
      channel_(std::move(channel)),
      admin_(v1::AdminService::NewStub(channel_)),
      events_(v1::EventService::NewStub(channel_)),
      backoff_(options.first_pause, options.longest_pause),
      last_sign_(SharedManager::Now()) {}

NodeWatch::~NodeWatch() { Stop(); }

void NodeWatch::Stop() {
  std::shared_ptr<Call> call;
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    call = Detach(absl::InfiniteFuture());
  }
  if (call != nullptr) call->Cancel();
  call.reset();
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* calls) { return *calls == 0; }, &calls_));
}

NodeFigures NodeWatch::Look(absl::Time now) const {
  absl::MutexLock lock(&mutex_);
  NodeFigures figures = figures_;
  figures.silent_for = std::max(absl::ZeroDuration(), now - last_sign_);
  return figures;
}

void NodeWatch::Tick(absl::Time now) {
  std::shared_ptr<Call> silent, next;
  {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return;
    const bool lease_is_over = now - last_sign_ >= options_.lease;
    if (lease_is_over && has_records_) {
      Drop(NodeState::kDead);
      // What the call reads from now on would be changes of forgotten records.
      silent = Detach(now);
    } else if (call_ != nullptr && now - std::max(last_sign_, call_began_) >= options_.lease) {
      silent = Detach(now);
    }
    if (lease_is_over && figures_.state == NodeState::kConnecting) {
      figures_.state = NodeState::kDead;
    }
    if (call_ == nullptr && now >= next_call_) {
      next = NextCall(now);
      if (next != nullptr) {
        call_ = next;
        call_began_ = now;
        ++calls_;
      }
    }
  }
  if (silent != nullptr) silent->Cancel();
  if (next != nullptr) {
    Call* const call = next.get();
    call->Start(std::move(next));
  }
}

// Null: a snapshot has to wait for its turn.
std::shared_ptr<NodeWatch::Call> NodeWatch::NextCall(absl::Time now) {
  if (!stream_.resumable() && !accepted_) return std::make_shared<CacheCall>(this);
  if (!stream_.resumable()) {
    if (!has_slot_ && !slots_->TryTake()) {
      last_sign_ = now;  // It waits for this router.
      return nullptr;
    }
    has_slot_ = true;
  }
  v1::WatchRequest request;
  request.set_cache(options_.cache);
  request.add_window_sizes(window_size_);
  request.set_content(v1::EVENT_CONTENT_HASHES);
  request.set_chunk_tokens(options_.chunk_tokens);
  request.set_resnapshot_when_behind(true);
  stream_.FillRequest(&request);
  return std::make_shared<StreamCall>(this, std::move(request));
}

std::shared_ptr<NodeWatch::Call> NodeWatch::Detach(absl::Time now) {
  GiveSlot();
  next_call_ = now + backoff_.Next();
  return std::exchange(call_, nullptr);
}

void NodeWatch::OnGone() {
  absl::MutexLock lock(&mutex_);
  --calls_;
}

void NodeWatch::GiveSlot() {
  if (std::exchange(has_slot_, false)) slots_->Give();
}

void NodeWatch::Drop(NodeState state) {
  if (std::exchange(has_records_, false)) records_->Forget(id_);
  stream_.Restart();
  accepted_ = false;
  figures_.state = state;
}

void NodeWatch::OnCache(const Call* call, const grpc::Status& status,
                        const v1::ListCachesResponse& answer) {
  const absl::Time now = SharedManager::Now();
  absl::MutexLock lock(&mutex_);
  if (stopped_ || call != call_.get()) return;
  if (!status.ok()) return Fail(StatusFromGrpc(status), now);
  const absl::StatusOr<ServedCache> cache = ServedCacheFrom(answer, options_.cache);
  if (!cache.ok()) return Fail(cache.status(), now);
  absl::Status fits = absl::OkStatus();
  if (options_.chunk_tokens % cache->tokens_per_block != 0) {
    fits =
        InvalidArgument(absl::StrCat("a chunk has ", Counted(options_.chunk_tokens, "token"),
                                     ", which are no whole blocks of ", cache->tokens_per_block));
  }
  if (fits.ok()) fits = records_->Accept(id_, *cache);
  if (!fits.ok()) return Fail(fits, now);
  window_size_ = cache->window_size;
  cache_epoch_ = cache->epoch;
  accepted_ = true;
  if (figures_.state == NodeState::kRefused) figures_.state = NodeState::kConnecting;
  call_ = nullptr;
  next_call_ = now;
}

void NodeWatch::OnStreamEnd(const Call* call, const grpc::Status& status) {
  const absl::Time now = SharedManager::Now();
  absl::MutexLock lock(&mutex_);
  if (stopped_ || call != call_.get()) return;
  Fail(status.ok() ? absl::UnavailableError("the daemon ended the stream") : StatusFromGrpc(status),
       now);
}

// The call has ended with this error.
void NodeWatch::Fail(const absl::Status& error, absl::Time now) {
  figures_.error = error;
  const bool was_dead = figures_.state == NodeState::kDead;
  if (IsGap(error)) {
    ++figures_.gaps;
    Drop(NodeState::kConnecting);
  } else if (!IsBreak(error)) {
    Drop(NodeState::kRefused);
  } else if (stream_.resumable()) {
    if (!std::exchange(hidden_, true)) records_->Hide(id_);
    figures_.state = NodeState::kBroken;
  } else {
    Drop(was_dead ? NodeState::kDead : NodeState::kConnecting);
  }
  Detach(now);
}

bool NodeWatch::OnMessage(const Call* call, const v1::WatchResponse& message) {
  const absl::Time now = SharedManager::Now();
  absl::MutexLock lock(&mutex_);
  if (stopped_ || call != call_.get()) return false;
  last_sign_ = now;
  FollowedStream::Step step = stream_.Accept(message);
  // The daemon was restarted after it described its cache.
  if (message.epoch() != cache_epoch_) step = FollowedStream::Step::kGap;
  switch (step) {
    case FollowedStream::Step::kGap:
      ++figures_.gaps;
      figures_.error = absl::DataLossError("events are missing");
      Drop(NodeState::kConnecting);
      Detach(now);
      return false;
    case FollowedStream::Step::kSnapshot:
      ++figures_.snapshots;
      if (std::exchange(has_records_, true)) {
        ++figures_.gaps;
        records_->Forget(id_);
      }
      break;
    case FollowedStream::Step::kFollows:
      break;
  }
  if (std::exchange(hidden_, false)) records_->Show(id_);
  Apply(message);
  figures_.epoch = message.epoch();
  figures_.revision = message.revision();
  figures_.state = stream_.in_snapshot() ? NodeState::kSnapshot : NodeState::kFollowing;
  if (!stream_.in_snapshot()) {
    GiveSlot();
    backoff_ = Backoff(options_.first_pause, options_.longest_pause);
  }
  return true;
}

void NodeWatch::Apply(const v1::WatchResponse& message) {
  changes_.clear();
  const auto add = [&](uint64_t hash, v1::Tier tier) {
    const std::optional<Tier> known = TierFromProto(tier);
    // A tier that this version does not know is farther than those that it knows.
    changes_.push_back({.chunk = BlockHash(hash),
                        .tier = known.value_or(Tier(kMaxTiers - 1)),
                        .kind = Change::Kind::kAdd});
  };
  for (const v1::Event& event : message.events()) {
    if (event.has_stored()) {
      for (const v1::StoredBlock& block : event.stored().blocks()) {
        add(block.block_hash(), block.tier());
      }
    } else if (event.has_updated() && event.updated().has_tier()) {
      add(event.updated().block_hash(), event.updated().tier().new_value());
    } else if (event.has_removed() && event.removed().scope() != v1::REMOVAL_SCOPE_UNSPECIFIED) {
      // The window's blocks. The router follows one window alone.
      changes_.clear();
      records_->Forget(id_);
    } else if (event.has_removed()) {
      for (const uint64_t hash : event.removed().block_hashes()) {
        changes_.push_back({.chunk = BlockHash(hash), .kind = Change::Kind::kRemove});
      }
    }
  }
  records_->Apply(id_, changes_);
}

}  // namespace pagoda
