#include "pools/store/redis_store.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/event_poll.h"
#include "base/thread.h"
#include "pools/store/redis_call.h"
#include "pools/store/redis_cluster.h"
#include "pools/store/redis_socket.h"
#include "pools/store/resp.h"
#include "pools/store/server_networks.h"
#include "pools/store/stored_value.h"

namespace pagoda {

// A batch until it is reported.
struct RedisBatch {
  RedisCommand command = RedisCommand::kGet;
  std::vector<Store::Read> reads;  // The reads of a get. The calls' readers refer to them.
  std::vector<Store::Write> writes;
  std::vector<StoreKey> keys;  // The keys of an exists.
  absl::Duration time_to_live;
  Store::Done done;

  absl::Time deadline;
  uint64_t number = 0;
  std::vector<RedisCall*> calls;  // Null: ended.
  std::vector<StoreOutcome> outcomes;
  size_t left = 0;  // Calls that have not ended.

  size_t size() const { return outcomes.size(); }
};

namespace {

constexpr absl::Duration kMaxTimeToLive = absl::Hours(10 * 365 * 24);

// Goes on evenly, whatever happens to the system's clock.
absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

absl::Status OutOfRange(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("a Redis store: ", what));
}

absl::Status Check(const RedisOptions& options) {
  if (options.seeds.empty()) return OutOfRange("no server is named");
  const absl::Status networks = ServerNetworks::Parse(options.allowed_networks).status();
  if (!networks.ok()) return networks;
  if (options.connections_per_node < 1 || options.connections_per_node > 64) {
    return OutOfRange("connections per node must be 1 to 64");
  }
  if (options.pipeline < 1 || options.pipeline > 1024) {
    return OutOfRange("the pipeline must be 1 to 1024");
  }
  if (options.max_waiting < 1) return OutOfRange("the most waiting operations must be 1 or more");
  const absl::Duration zero = absl::ZeroDuration();
  if (options.connect_timeout <= zero || options.stall_timeout <= zero ||
      options.min_backoff <= zero || options.max_backoff < options.min_backoff ||
      options.map_refresh <= zero) {
    return OutOfRange("times must be positive, and the longest pause not below the shortest");
  }
  if (!options.password.empty() && !options.password_file.empty()) {
    return OutOfRange("a password and a password file are given");
  }
  return absl::OkStatus();
}

uint64_t BytesOf(const auto& pieces) {
  uint64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  return bytes;
}

}  // namespace

// The thread of a store.
class RedisStore::Loop : private RedisCluster::Ends {
 public:
  Loop(RedisOptions options, std::unique_ptr<TlsContext> tls, EventPoll poll)
      : options_(std::move(options)),
        tls_(std::move(tls)),
        poll_(std::move(poll)),
        cluster_(
            options_, tls_.get(), &poll_, [this] { poll_.Wake(); }, stats_, *this) {}

  absl::Status Start() {
    return thread_.Start("pagoda-store", [this] { Run(); });
  }

  void Submit(std::unique_ptr<RedisBatch> batch, size_t size, absl::Duration timeout) {
    batch->outcomes.assign(size, StoreOutcome::kTimedOut);
    batch->deadline = MonotonicNow() + timeout;
    StoreOutcome refused = StoreOutcome::kOk;
    {
      absl::MutexLock lock(&mutex_);
      if (is_stopping_) {
        refused = StoreOutcome::kCancelled;
      } else if (waiting_ + size > options_.max_waiting) {
        refused = StoreOutcome::kOverloaded;
      } else if (size > 0) {
        waiting_ += size;
        submitted_.push_back(std::move(batch));
        return poll_.Wake();
      }
      Count(*batch, refused, refused_, size);
    }
    std::fill(batch->outcomes.begin(), batch->outcomes.end(), refused);
    batch->done(batch->outcomes);
  }

  void Stop() {
    {
      absl::MutexLock lock(&mutex_);
      is_stopping_ = true;
    }
    poll_.Wake();
    absl::MutexLock lock(&stop_mutex_);
    thread_.Join();
  }

  StoreStats stats() const {
    absl::MutexLock lock(&mutex_);
    StoreStats stats = shared_stats_;
    for (size_t i = 0; i < kStoreOutcomes; ++i) {
      stats.gets[i] += refused_.gets[i];
      stats.puts[i] += refused_.puts[i];
      stats.exists[i] += refused_.exists[i];
    }
    stats.waiting = waiting_;
    return stats;
  }

 private:
  using Batches = std::map<std::pair<absl::Time, uint64_t>, std::unique_ptr<RedisBatch>>;

  static std::array<uint64_t, kStoreOutcomes>& CountsOf(RedisCommand command, StoreStats& stats) {
    return command == RedisCommand::kGet   ? stats.gets
           : command == RedisCommand::kPut ? stats.puts
                                           : stats.exists;
  }

  static void Count(const RedisBatch& batch, StoreOutcome outcome, StoreStats& stats, size_t keys) {
    CountsOf(batch.command, stats)[static_cast<size_t>(outcome)] += keys;
  }

  void Run() {
    // OpenSSL writes without MSG_NOSIGNAL. Signals are for the program's other threads.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    absl::Time now = MonotonicNow();
    cluster_.Tick(now);
    while (TakeSubmitted(now)) {
      const EventPoll::Ready ready = poll_.Wait(TimeToWait(now));
      now = MonotonicNow();
      for (void* const link : ready.sources) cluster_.Handle(link, now);
      Expire(now, StoreOutcome::kTimedOut);
      cluster_.Tick(now);
      Report();
    }
    Expire(absl::InfiniteFuture(), StoreOutcome::kCancelled);
    Report();
  }

  absl::Duration TimeToWait(absl::Time now) const {
    absl::Time until = cluster_.next_tick();
    if (!batches_.empty()) until = std::min(until, batches_.begin()->first.first);
    if (!ended_.empty()) until = now;
    return std::min(until - now, absl::Seconds(60));
  }

  // Routes what was submitted. False: stop.
  bool TakeSubmitted(absl::Time now) {
    std::vector<std::unique_ptr<RedisBatch>> submitted;
    bool is_stopping;
    {
      absl::MutexLock lock(&mutex_);
      submitted.swap(submitted_);
      is_stopping = is_stopping_;
    }
    for (std::unique_ptr<RedisBatch>& batch : submitted) Begin(std::move(batch), now);
    return !is_stopping;
  }

  void Begin(std::unique_ptr<RedisBatch> owned, absl::Time now) {
    RedisBatch& batch = *owned;
    batch.number = ++last_number_;
    batch.left = batch.size();
    batch.calls.resize(batch.size());
    batches_.emplace(std::pair(batch.deadline, batch.number), std::move(owned));
    std::vector<std::unique_ptr<RedisCall>> calls;
    calls.reserve(batch.size());
    for (uint32_t i = 0; i < batch.size(); ++i) {
      calls.push_back(MakeCall(batch, i));
      batch.calls[i] = calls.back().get();
    }
    // Each can end at once, and the last ends the batch.
    for (std::unique_ptr<RedisCall>& call : calls) cluster_.Route(std::move(call), now);
  }

  std::unique_ptr<RedisCall> MakeCall(RedisBatch& batch, uint32_t index) const {
    auto call = std::make_unique<RedisCall>();
    call->command = batch.command;
    call->batch = &batch;
    call->index = index;
    call->key = batch.command == RedisCommand::kGet   ? batch.reads[index].key
                : batch.command == RedisCommand::kPut ? batch.writes[index].key
                                                      : batch.keys[index];
    const std::string name = StoredName(options_.key_prefix, options_.secret, call->key);
    call->hash_slot = HashSlot(name);
    switch (batch.command) {
      case RedisCommand::kGet:
        resp::AppendCommand({"GET", name}, call->head);
        call->reader = std::make_unique<StoredValueReader>(call->key, options_.secret,
                                                           batch.reads[index].pieces);
        break;
      case RedisCommand::kPut: {
        call->pieces = batch.writes[index].pieces;
        const int64_t milliseconds = absl::ToInt64Milliseconds(
            std::clamp(batch.time_to_live, absl::Milliseconds(1), kMaxTimeToLive));
        const std::string lifetime = std::to_string(milliseconds);
        absl::StrAppend(&call->head, "*5\r\n$3\r\nSET\r\n$", name.size(), "\r\n", name, "\r\n$",
                        kStoredHeaderBytes + BytesOf(call->pieces), "\r\n");
        absl::StrAppend(&call->tail, "\r\n$2\r\nPX\r\n$", lifetime.size(), "\r\n", lifetime,
                        "\r\n");
        break;
      }
      default:
        resp::AppendCommand({"EXISTS", name}, call->head);
        break;
    }
    return call;
  }

  void OnReply(std::unique_ptr<RedisCall> call) override {
    const resp::Value& reply = call->reply;
    StoreOutcome outcome = StoreOutcome::kRefused;
    bool is_expected = false;
    switch (call->command) {
      case RedisCommand::kGet:
        is_expected = reply.kind == resp::Kind::kNull || reply.kind == resp::Kind::kBulk;
        if (reply.kind == resp::Kind::kNull) outcome = StoreOutcome::kMissing;
        if (reply.kind == resp::Kind::kBulk) outcome = EndValue(*call);
        break;
      case RedisCommand::kPut:
        is_expected = reply.is_text("OK");
        if (is_expected) {
          outcome = StoreOutcome::kOk;
          stats_.bytes_written += BytesOf(call->pieces);
        }
        break;
      default:
        is_expected = reply.kind == resp::Kind::kInteger;
        if (is_expected) outcome = reply.integer > 0 ? StoreOutcome::kOk : StoreOutcome::kMissing;
        break;
    }
    if (!is_expected) {
      stats_.last_error = reply.kind == resp::Kind::kError ? reply.text : "an unexpected reply";
    }
    End(*call, outcome);
  }

  StoreOutcome EndValue(RedisCall& call) {
    const ValueFault fault = call.reader->Finish();
    if (fault == ValueFault::kNone) {
      stats_.bytes_read += BytesOf(call.batch->reads[call.index].pieces);
      return StoreOutcome::kOk;
    }
    ++stats_.faults[static_cast<size_t>(fault)];
    return StoreOutcome::kInvalid;
  }

  void OnUnreachable(std::unique_ptr<RedisCall> call) override {
    End(*call, StoreOutcome::kUnreachable);
  }

  void End(RedisCall& call, StoreOutcome outcome) {
    RedisBatch& batch = *std::exchange(call.batch, nullptr);
    PAGODA_CHECK(batch.calls[call.index] == &call, "a call ends once");
    batch.calls[call.index] = nullptr;
    batch.outcomes[call.index] = outcome;
    Count(batch, outcome, stats_, 1);
    if (--batch.left > 0) return;
    const auto found = batches_.find({batch.deadline, batch.number});
    ended_.push_back(std::move(found->second));
    batches_.erase(found);
  }

  // Ends the batches whose deadline has passed.
  void Expire(absl::Time now, StoreOutcome outcome) {
    while (!batches_.empty() && batches_.begin()->first.first <= now) {
      std::unique_ptr<RedisBatch> batch = std::move(batches_.begin()->second);
      batches_.erase(batches_.begin());
      for (size_t i = 0; i < batch->size(); ++i) {
        RedisCall* const call = std::exchange(batch->calls[i], nullptr);
        if (call == nullptr) continue;
        call->batch = nullptr;
        batch->outcomes[i] = outcome;
        Count(*batch, outcome, stats_, 1);
        cluster_.Abandon(*call);
      }
      ended_.push_back(std::move(batch));
    }
  }

  // Publishes the counts, then reports the batches that have ended.
  void Report() {
    std::vector<std::unique_ptr<RedisBatch>> ended = std::exchange(ended_, {});
    {
      absl::MutexLock lock(&mutex_);
      for (const std::unique_ptr<RedisBatch>& batch : ended) waiting_ -= batch->size();
      shared_stats_ = stats_;
    }
    for (std::unique_ptr<RedisBatch>& batch : ended) {
      batch->done(batch->outcomes);
      batch.reset();  // Also what `done` owns.
    }
  }

  const RedisOptions options_;
  const std::unique_ptr<TlsContext> tls_;  // Null: no TLS.
  EventPoll poll_;
  Thread thread_ ABSL_GUARDED_BY(stop_mutex_);

  // Only the thread uses the following members.
  StoreStats stats_;
  RedisCluster cluster_;
  Batches batches_;
  std::vector<std::unique_ptr<RedisBatch>> ended_;  // To be reported.
  uint64_t last_number_ = 0;

  absl::Mutex stop_mutex_;  // Before mutex_.
  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<RedisBatch>> submitted_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  StoreStats shared_stats_ ABSL_GUARDED_BY(mutex_);  // A copy of stats_ at the last report.
  StoreStats refused_ ABSL_GUARDED_BY(mutex_);       // Only what Submit counts.
};

absl::StatusOr<std::unique_ptr<RedisStore>> RedisStore::Create(RedisOptions options) {
  if (absl::Status status = Check(options); !status.ok()) return status;
  std::unique_ptr<TlsContext> tls;
  if (options.tls.is_on) {
    absl::StatusOr<std::unique_ptr<TlsContext>> loaded = TlsContext::Load(options.tls);
    if (!loaded.ok()) return loaded.status();
    tls = *std::move(loaded);
  }
  absl::StatusOr<EventPoll> poll = EventPoll::Create();
  if (!poll.ok()) return poll.status();
  auto loop = std::make_unique<Loop>(std::move(options), std::move(tls), *std::move(poll));
  if (absl::Status status = loop->Start(); !status.ok()) return status;
  return absl::WrapUnique(new RedisStore(std::move(loop)));
}

RedisStore::RedisStore(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

RedisStore::~RedisStore() { Stop(); }

void RedisStore::Get(std::vector<Read> batch, absl::Duration timeout, Done done) {
  auto owned = std::make_unique<RedisBatch>();
  const size_t size = batch.size();
  owned->command = RedisCommand::kGet;
  owned->reads = std::move(batch);
  owned->done = std::move(done);
  loop_->Submit(std::move(owned), size, timeout);
}

void RedisStore::Put(std::vector<Write> batch, absl::Duration time_to_live, absl::Duration timeout,
                     Done done) {
  auto owned = std::make_unique<RedisBatch>();
  const size_t size = batch.size();
  owned->command = RedisCommand::kPut;
  owned->writes = std::move(batch);
  owned->time_to_live = time_to_live;
  owned->done = std::move(done);
  loop_->Submit(std::move(owned), size, timeout);
}

void RedisStore::Exists(std::vector<StoreKey> batch, absl::Duration timeout, Done done) {
  auto owned = std::make_unique<RedisBatch>();
  const size_t size = batch.size();
  owned->command = RedisCommand::kExists;
  owned->keys = std::move(batch);
  owned->done = std::move(done);
  loop_->Submit(std::move(owned), size, timeout);
}

void RedisStore::Stop() { loop_->Stop(); }

StoreStats RedisStore::stats() const { return loop_->stats(); }

}  // namespace pagoda
