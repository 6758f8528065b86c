#include "server/bridges/bridges.h"

#include <unistd.h>

#include <array>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/calls/metric_family.h"
#include "server/log/log.h"

namespace pagoda::server {
namespace {

// The most that one chunk of a snapshot holds. The core's lock is held while a chunk is read.
constexpr size_t kSnapshotBlocks = 512;
constexpr size_t kSnapshotTokens = 16'384;

std::string HostName() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string TopicOf(const Config::Events::Zmq& zmq, const CacheInfo& cache) {
  if (zmq.topic != kZmqTopicAuto) return zmq.topic;
  return absl::StrCat("kv@", zmq.pod.empty() ? HostName() : zmq.pod, "@",
                      zmq.model.empty() ? cache.name : zmq.model);
}

std::vector<WindowSize> WindowsOf(const CacheInfo& cache) {
  std::vector<WindowSize> windows;
  for (const CacheInfo::Window& window : cache.windows) windows.push_back(window.window);
  return windows;
}

ZmqBridge::Options ZmqOptions(const Config::Events::Zmq& zmq, const CacheInfo& cache) {
  return {.endpoint = zmq.endpoint,
          .replay_endpoint = zmq.replay_endpoint,
          .mode = zmq.mode,
          .topic = TopicOf(zmq, cache),
          .reply = zmq.replay_topic ? ReplayServer::Reply::kWithTopic : ReplayServer::Reply::kPlain,
          .hwm = zmq.hwm,
          .subscriber_bytes = zmq.subscriber_bytes,
          .buffer_steps = zmq.buffer_steps,
          .buffer_bytes = zmq.buffer_bytes,
          .shape = {.tokens_per_block = cache.tokens_per_block,
                    .windows = WindowsOf(cache),
                    .data_parallel_rank = zmq.data_parallel_rank}};
}

// "listens on tcp://[::1]:5557". `at`: the actual address of the socket of that endpoint.
std::string Whereabouts(const std::string& endpoint, ZmqMode mode, const std::string& at) {
  if (Listens(endpoint, mode)) return absl::StrCat("listens on ", at);
  return absl::StrCat("connects to ", at,
                      mode == ZmqMode::kAuto
                          ? ", as vLLM would (to listen there, set events.zmq.mode: listen)"
                          : "");
}

void CollectFeed(const RouterFeed::Stats& stats, std::vector<prometheus::MetricFamily>& out) {
  prometheus::MetricFamily blocks = CounterFamily(
      "pagoda_bridge_blocks_total",
      "Blocks announced to routers as stored or removed; a move between tiers counts as both.");
  AddSample(blocks, {{"change", "stored"}}, AsDouble(stats.stored_blocks));
  AddSample(blocks, {{"change", "removed"}}, AsDouble(stats.removed_blocks));
  out.push_back(std::move(blocks));
  out.push_back(
      Counter("pagoda_bridge_batches_total", "Batches made for routers.", AsDouble(stats.batches)));
  out.push_back(Counter("pagoda_bridge_clears_total",
                        "Messages to routers that nothing is cached any more.",
                        AsDouble(stats.clears)));
  out.push_back(Counter("pagoda_bridge_resets_total",
                        "Times that the bridges fell behind the event log and started again.",
                        AsDouble(stats.resets)));
  out.push_back(Gauge("pagoda_bridge_revision", "Revision of the last event that the bridges read.",
                      AsDouble(stats.read_revision)));
}

void CollectZmq(const ZmqBridge::Stats& stats, std::vector<prometheus::MetricFamily>& out) {
  const std::tuple<const char*, const char*, uint64_t> counters[] = {
      {"pagoda_zmq_batches_total", "Batches published.", stats.batches},
      {"pagoda_zmq_bytes_total", "Bytes of the published batches, without ZMQ's framing.",
       stats.bytes},
      {"pagoda_zmq_failed_sends_total", "Batches that the socket refused.", stats.failed_sends},
      {"pagoda_zmq_replays_total", "Requests for a replay.", stats.replay.requests},
      {"pagoda_zmq_refused_replays_total",
       "Refused requests for a replay: in a wrong form, or while four of the same client wait.",
       stats.replay.refused},
      {"pagoda_zmq_incomplete_replays_total",
       "Replays that lacked batches because these were no longer kept, or that were given up.",
       stats.replay.incomplete},
      {"pagoda_zmq_replayed_batches_total", "Batches sent in replays.", stats.replay.batches},
  };
  for (const auto& [name, help, value] : counters) {
    out.push_back(Counter(name, help, AsDouble(value)));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Bridges>> Bridges::Start(const Config& config,
                                                        const SharedManager* manager,
                                                        const ServingState* state,
                                                        const Admission* admission,
                                                        SubscriberMetrics* subscribers) {
  if (manager == nullptr) return absl::WrapUnique(new Bridges(nullptr));
  auto bridges = absl::WrapUnique(new Bridges(&manager->log()));
  const CacheInfo& cache = manager->info();
  const Config::Events& events = config.events;
  std::vector<RouterSink*> sinks;
  // Numbers are above those of every earlier run, because a batch and a message take longer than
  // 1 us. So a subscriber that stays through a restart sees a gap, and never new numbers that look
  // old.
  const auto first_number = static_cast<uint64_t>(absl::ToUnixMicros(absl::Now()));
  if (!events.zmq.endpoint.empty()) {
    ZmqBridge::Options options = ZmqOptions(events.zmq, cache);
    options.first_number = first_number;
    const std::string topic = options.topic;
    absl::StatusOr<std::unique_ptr<ZmqBridge>> zmq = ZmqBridge::Open(std::move(options));
    if (!zmq.ok()) return zmq.status();
    bridges->zmq_ = *std::move(zmq);
    sinks.push_back(bridges->zmq_.get());
    const std::string replay = bridges->zmq_->replay_endpoint();
    Log(LogLevel::kInfo,
        absl::StrCat("ZMQ: vLLM's events, topic '", topic, "': the daemon ",
                     Whereabouts(events.zmq.endpoint, events.zmq.mode, bridges->zmq_->endpoint()),
                     replay.empty()
                         ? ""
                         : absl::StrCat("; replays: it ", Whereabouts(events.zmq.replay_endpoint,
                                                                      events.zmq.mode, replay))));
    if (config.knows_callers()) {
      Log(LogLevel::kWarning,
          absl::StrCat("ZMQ checks no credentials: every process that can connect to ",
                       bridges->zmq_->endpoint(),
                       replay.empty() ? "" : absl::StrCat(" or ", replay),
                       " reads the tokens of every tenant"));
    }
  }
  if (events.smg.enabled) {
    bridges->smg_ = std::make_unique<SmgService>(
        SmgService::Options{
            .ring = {.max_items = events.smg.buffer_steps, .max_bytes = events.smg.buffer_bytes},
            .first_number = first_number,
            .shape = {.tokens_per_block = cache.tokens_per_block,
                      .window = cache.windows.back().window,
                      .data_parallel_rank = static_cast<int32_t>(events.smg.data_parallel_rank)}},
        state, admission, subscribers);
    if (!bridges->smg_->started().ok()) return bridges->smg_->started();
    sinks.push_back(bridges->smg_.get());
  }
  if (sinks.empty()) return bridges;
  bridges->feed_ = std::make_unique<RouterFeed>(
      RouterFeed::Options{
          .cache = {.tokens_per_block = cache.tokens_per_block, .windows = WindowsOf(cache)},
          .flush_interval = events.flush_interval,
          .first_number = first_number,
          .read_snapshot =
              [manager](const SnapshotPosition& from) {
                return manager->Read([&](const BlockManager& core) {
                  return core.ReadSnapshot(from, kSnapshotBlocks, kSnapshotTokens, manager->now());
                });
              }},
      &manager->log(), std::move(sinks));
  if (!bridges->feed_->started().ok()) return bridges->feed_->started();
  return bridges;
}

Bridges::~Bridges() = default;

void Bridges::EndStreamsForDrain(absl::Duration patience) {
  if (smg_ == nullptr) return;
  if (const Revision last = log_->last(); !feed_->WaitUntilRead(last, patience)) {
    Log(LogLevel::kWarning,
        absl::StrCat("SMG: the streams end before they have reached event ", last.value()));
  }
  smg_->EndStreamsForDrain();
}

void Bridges::EndRevokedStreams() {
  if (smg_ != nullptr) smg_->EndRevokedStreams();
}

std::vector<SubscriberRow> Bridges::Subscribers() const {
  std::vector<SubscriberRow> rows;
  if (feed_ == nullptr) return rows;
  // Read before the streams are checked: the streams' ring has everything up to this revision.
  const Revision read(feed_->stats().read_revision);
  if (smg_ != nullptr) rows = smg_->Look(read);
  if (zmq_ != nullptr) {
    rows.push_back({.kind = SubscriberRow::Kind::kZmq, .opened = opened_, .sent = read});
  }
  return rows;
}

std::vector<uint64_t> Bridges::StreamLags() const {
  std::vector<uint64_t> lags;
  if (feed_ == nullptr) return lags;
  const std::vector<SubscriberRow> rows = Subscribers();
  const uint64_t last = log_->last().value();
  for (const SubscriberRow& row : rows) {
    if (row.kind == SubscriberRow::Kind::kSmg) lags.push_back(last - row.sent.value());
  }
  return lags;
}

std::vector<prometheus::MetricFamily> Bridges::Collect() const {
  std::vector<prometheus::MetricFamily> families;
  if (feed_ != nullptr) CollectFeed(feed_->stats(), families);
  if (zmq_ != nullptr) CollectZmq(zmq_->stats(), families);
  if (smg_ != nullptr) {
    families.push_back(Gauge("pagoda_smg_subscribers", "Open SubscribeKvEvents streams.",
                             AsDouble(smg_->subscribers())));
    families.push_back(Counter("pagoda_smg_encoded_batches_total",
                               "Batches encoded; subscribers that see the same events share them.",
                               AsDouble(smg_->encoded_messages())));
  }
  return families;
}

}  // namespace pagoda::server
