#include "engine/serve/connected_engine.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/cpp/backoff.h"
#include "clients/cpp/open_cache.h"
#include "engine/basic_cache_client.h"
#include "wire/errors.h"

namespace pagoda {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kMostPause = absl::Seconds(2);

// Limits how often one request is run, because the request itself may be the reason why daemons
// end.
constexpr int kMostRuns = 5;

// The size of a basic cache.
constexpr uint32_t kBasicTokensPerBlock = 32;
constexpr uint32_t kBasicSequences = 8;
constexpr uint32_t kBasicSequenceTokens = 4096;

// Whether the error comes from the connection or the session, not from the request.
bool IsDaemonGone(const absl::Status& status) {
  if (IsSessionOver(status) || ReasonOf(status) == Reason::kDraining) return true;
  return ReasonOf(status) == Reason::kNone &&
         (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status));
}

// Whether a later attempt to open a session can succeed after this error.
bool MayChange(const absl::Status& status) {
  return IsDaemonGone(status) || absl::IsResourceExhausted(status);
}

std::string TextOf(const absl::Status& status) {
  const Reason reason = ReasonOf(status);
  return absl::StrCat(reason == Reason::kNone ? absl::StatusCodeToString(status.code())
                                              : std::string(ReasonName(reason)),
                      ": ", std::string(status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectedEngine>> ConnectedEngine::Create(Options options) {
  auto connected = absl::WrapUnique(new ConnectedEngine(std::move(options)));
  const Options& chosen = connected->options_;
  Engine::Options engine_options = chosen.engine;
  if (chosen.kv == KvMode::kPaged) {
    engine_options.fetch_prompt = [connected = connected.get()](
                                      const GenerateRequest& request,
                                      std::function<void(uint32_t)> done) {
      connected->FetchPrompt(request, std::move(done));
    };
  }
  absl::StatusOr<std::unique_ptr<CacheClient>> client =
      connected->OpenSession(chosen.client.timeout);
  if (!client.ok()) return client.status();
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(std::move(engine_options), *std::move(client));
  if (!engine.ok()) return engine.status();
  connected->engine_ = *std::move(engine);
  return connected;
}

absl::StatusOr<Generated> ConnectedEngine::Generate(GenerateRequest request) {
  if (options_.kv == KvMode::kBasic && request.beam_width > kBasicSequences) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat("beam_width is ", request.beam_width, "; --kv basic has ",
                                  kBasicSequences, " sequences"));
  }
  const absl::Time arrival = absl::Now();
  request.cancelled = [this] { return interrupted_.HasBeenNotified(); };
  for (int run = 1;; ++run) {
    const int session = session_;
    const absl::Duration before = absl::Now() - arrival;
    Generated generated;
    generated.tokens.resize(request.num_samples);
    absl::StatusOr<GenerateReport> report =
        engine_->Generate(request, [&](const GeneratedToken& token) {
          generated.tokens[token.sample].push_back(token.token);
          return !interrupted_.HasBeenNotified();
        });
    if (report.ok()) {
      generated.report = *report;
      generated.report.time_to_first_token += before;
      generated.report.total_time += before;
      return generated;
    }
    if (!IsDaemonGone(report.status()) || run == kMostRuns) return report.status();
    absl::Status status = ReconnectFrom(session, report.status());
    if (!status.ok()) return status;
  }
}

bool ConnectedEngine::session_over() const { return over_ == session_; }

absl::Status ConnectedEngine::Reconnect(const absl::Status& why) {
  return ReconnectFrom(session_, why);
}

absl::Status ConnectedEngine::ReconnectFrom(int session, const absl::Status& why) {
  absl::MutexLock lock(&reconnecting_);
  if (session_ != session) return absl::OkStatus();  // Another request has reconnected.
  const absl::Time start = absl::Now();
  const absl::Time deadline = start + options_.reconnect;
  options_.say(absl::StrCat("lost the session with ", options_.client.endpoint, " (", TextOf(why),
                            "); looking for a daemon there for up to ",
                            absl::FormatDuration(options_.reconnect)));
  Backoff backoff(kFirstPause, kMostPause);
  absl::Status status = why;
  for (;;) {
    if (interrupted_.HasBeenNotified()) return absl::CancelledError("interrupted");
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    status = OpenAndAttach(std::min(options_.client.timeout, left));
    if (status.ok()) {
      options_.say(absl::StrCat(
          "continues in a new session, after ",
          absl::FormatDuration(absl::Trunc(absl::Now() - start, absl::Milliseconds(1)))));
      return status;
    }
    if (!MayChange(status)) return status;
    interrupted_.WaitForNotificationWithTimeout(std::min(backoff.Next(), left));
  }
  return absl::UnavailableError(
      absl::StrCat("no daemon at ", options_.client.endpoint, " opened a session within ",
                   absl::FormatDuration(options_.reconnect), "; the last error: ", TextOf(status)));
}

absl::Status ConnectedEngine::OpenAndAttach(absl::Duration timeout) {
  absl::StatusOr<std::unique_ptr<CacheClient>> client = OpenSession(timeout);
  if (!client.ok()) return client.status();
  return engine_->Attach(*std::move(client));
}

absl::StatusOr<std::unique_ptr<CacheClient>> ConnectedEngine::OpenSession(absl::Duration timeout) {
  if (options_.kv == KvMode::kBasic) return OpenBasicCache();
  if (options_.brings.has_value()) {
    if (absl::Status status = BringCache(timeout); !status.ok()) return status;
  }
  GrpcCacheClientOptions options = options_.client;
  options.timeout = timeout;
  // The first session has no fingerprint yet: the engine compares the cache after it has read its
  // model.
  if (engine_ != nullptr) options.model_fingerprint = engine_->model_fingerprint();
  options.on_session_over = [this, session = session_ + 1](const absl::Status&) {
    over_ = session;
    if (options_.on_session_over && session_over()) options_.on_session_over();
  };
  std::unique_ptr<PrefixFetcher> opened;
  absl::StatusOr<std::unique_ptr<CacheClient>> client =
      OpenGrpcCacheClient(std::move(options), &opened);
  if (!client.ok()) return client;
  ++session_;
  options_.say(absl::StrCat(
      "batches reach ", options_.client.endpoint,
      TransportOf(**client) == Transport::kRings ? " through shared memory" : " over gRPC"));
  may_have_store_ = true;
  std::shared_ptr<PrefixFetcher> fetcher = std::move(opened);
  {
    absl::MutexLock lock(&fetcher_mutex_);
    fetcher.swap(fetcher_);
  }
  return client;  // The old fetcher ends here, without the lock: it waits for its calls.
}

void ConnectedEngine::FetchPrompt(const GenerateRequest& request,
                                  std::function<void(uint32_t)> done) {
  std::shared_ptr<PrefixFetcher> fetcher;
  {
    absl::MutexLock lock(&fetcher_mutex_);
    fetcher = fetcher_;
  }
  if (fetcher == nullptr || (!may_have_store_ && request.fetch_source.empty())) return done(0);
  fetcher->Fetch({.name_space = request.name_space,
                  .tokens = request.prompt,
                  .tenant = request.tenant,
                  .source = request.fetch_source},
                 [this, done = std::move(done)](const absl::StatusOr<FetchedFromAfar>& fetched) {
                   if (fetched.ok() && fetched->outcome == FetchOutcome::kNoSource) {
                     may_have_store_ = false;
                   }
                   done(fetched.ok() ? fetched->fetched_tokens : 0);
                 });
}

absl::Status ConnectedEngine::BringCache(absl::Duration timeout) const {
  const absl::StatusOr<CacheSpec> spec = Engine::CacheSpecForModel(
      options_.engine.model_dir, options_.brings->tokens_per_block, options_.brings->kv_dtype);
  if (!spec.ok()) return spec.status();
  return OpenCache({.endpoint = options_.client.endpoint,
                    .timeout = timeout,
                    .credentials = options_.client.credentials},
                   {.name = options_.client.cache,
                    // Only the model: the engine accepts the cache by this fingerprint.
                    .identity = {.model = spec->model_fingerprint},
                    .tokens_per_block = spec->tokens_per_block,
                    .layers = spec->layers,
                    .tiers = {options_.brings->host}})
      .status();
}

absl::StatusOr<std::unique_ptr<CacheClient>> ConnectedEngine::OpenBasicCache() const {
  if (options_.engine.backend == EngineBackend::kCuda) {
    return MakeError(Reason::kInvalidArgument,
                     "--kv basic keeps the KV in this process's host memory, which the backend "
                     "cuda cannot use: leave out --backend, or use --kv paged with a daemon whose "
                     "primary pools are on a GPU");
  }
  const std::string& model_dir = options_.engine.model_dir;
  absl::StatusOr<CacheSpec> spec =
      Engine::CacheSpecForModel(model_dir, kBasicTokensPerBlock, DType::kFloat32);
  if (!spec.ok()) return spec.status();
  return MakeBasicCacheClient({.spec = *std::move(spec),
                               .max_sequences = kBasicSequences,
                               .max_sequence_tokens = kBasicSequenceTokens});
}

void ConnectedEngine::Interrupt() { interrupted_.Notify(); }

}  // namespace pagoda
