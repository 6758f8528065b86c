#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

Config EventConfig() {
  Config config = TestConfig();
  config.events.max_events = 700;
  config.events.progress_interval = absl::Milliseconds(50);
  return config;
}

class EventServiceTest : public DaemonTest {
 protected:
  EventServiceTest() : DaemonTest(EventConfig()) {}

  // `rounds` times two events: allocates and frees a raw block.
  void MakeEvents(int rounds) {
    const v1::SessionRef session = OpenRef();
    for (int i = 0; i < rounds; ++i) Run(session, FreeOp(Allocate(session, 1)));
    Close(session);
  }
};

// One subscriber, which checks that each message begins where the last one ended.
class Watcher {
 public:
  Watcher(v1::EventService::Stub& stub, const v1::WatchRequest& request)
      : context_(NewContext()), reader_(stub.Watch(context_.get(), request)) {
    v1::WatchResponse first;
    if (!reader_->Read(&first)) return;
    EXPECT_EQ(first.events_size(), 0);
    EXPECT_EQ(first.previous_revision(), first.revision());
    EXPECT_NE(first.epoch(), 0u);
    revision_ = first.revision();
    started_ = true;
  }

  bool started() const { return started_; }
  uint64_t revision() const { return revision_; }

  bool Next(v1::WatchResponse* message) {
    if (!reader_->Read(message)) return false;
    EXPECT_EQ(message->previous_revision(), revision_);
    EXPECT_LE(message->events_size(), 512);
    for (const v1::Event& event : message->events()) EXPECT_EQ(event.revision(), ++revision_);
    EXPECT_EQ(message->revision(), revision_);
    return true;
  }
  // Reads up to `revision`, and returns the events.
  std::vector<v1::Event> ReadTo(uint64_t revision) {
    std::vector<v1::Event> events;
    v1::WatchResponse message;
    while (revision_ < revision && Next(&message)) {
      events.insert(events.end(), message.events().begin(), message.events().end());
    }
    EXPECT_EQ(revision_, revision);
    return events;
  }
  grpc::Status Finish() { return reader_->Finish(); }
  void Cancel() {
    context_->TryCancel();
    reader_->Finish();
  }

 private:
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchResponse>> reader_;
  uint64_t revision_ = 0;
  bool started_ = false;
};

v1::WatchRequest From(uint64_t revision) {
  v1::WatchRequest request;
  request.set_from_revision(revision);
  return request;
}

// No progress mark comes during a test: only the events wake the streams.
class QuietStreamsTest : public DaemonTest {
 protected:
  QuietStreamsTest() : DaemonTest(QuietConfig()) {}
  void MakeEvents() {
    const v1::SessionRef session = OpenRef();
    Run(session, FreeOp(Allocate(session, 1)));
    Close(session);
  }

 private:
  static Config QuietConfig() {
    Config config = TestConfig();
    config.events.progress_interval = absl::Hours(1);
    return config;
  }
};

TEST_F(QuietStreamsTest, AStreamThatOpensAfterAQuietTimeGetsTheNextEvents) {
  MakeEvents();  // Nobody reads these.
  Watcher watcher(events(), {});
  ASSERT_TRUE(watcher.started());
  const uint64_t before = watcher.revision();
  MakeEvents();
  EXPECT_EQ(watcher.ReadTo(before + 2).size(), 2u);
  watcher.Cancel();
}

TEST_F(QuietStreamsTest, EventsArriveWithoutLaterEventsThatPushThem) {
  Watcher watcher(events(), {});
  ASSERT_TRUE(watcher.started());
  for (int round = 0; round < 200; ++round) {
    MakeEvents();
    ASSERT_EQ(watcher.ReadTo(watcher.revision() + 2).size(), 2u) << "round " << round;
  }
  watcher.Cancel();
}

TEST_F(EventServiceTest, FromNowShowsOnlyWhatComes) {
  MakeEvents(3);
  Watcher watcher(events(), {});
  ASSERT_TRUE(watcher.started());
  EXPECT_EQ(watcher.revision(), 7u) << "the pools, and three blocks taken and freed";
  MakeEvents(1);
  const std::vector<v1::Event> seen = watcher.ReadTo(9);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].created().block_ids_size(), 1);
  EXPECT_EQ(seen[1].removed().reason(), v1::REMOVAL_REASON_RELEASED);
  watcher.Cancel();
}

TEST_F(EventServiceTest, FromARevisionRepeatsAllSinceThen) {
  CacheTokens(OpenRef(), TokensTo(9));
  const uint64_t last = Status().revision();
  Watcher watcher(events(), From(1));
  const std::vector<v1::Event> all = watcher.ReadTo(last);
  EXPECT_EQ(all.front().created().capacity(0).blocks(), kTestBlocks);
  EXPECT_TRUE(all.back().has_stored());
  watcher.Cancel();
}

TEST_F(EventServiceTest, AnIdleStreamCarriesProgressMarks) {
  Watcher watcher(events(), {});
  v1::WatchResponse message;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(watcher.Next(&message));
    EXPECT_EQ(message.events_size(), 0);
  }
  watcher.Cancel();
}

TEST_F(EventServiceTest, AMessageHoldsAtMostSoManyEventsAndMissesNone) {
  const v1::SessionRef session = OpenRef();
  // One batch of 600 events: more than one message holds.
  v1::BatchResult result;
  std::vector<v1::Operation> operations;
  for (int i = 0; i < 300; ++i) {
    operations.push_back(AddOp(1, {uint32_t(i), 1, 2, 3}));
    operations.push_back(CommitOp(1, 4));
    operations.push_back(FreeSequenceOp(1));
  }
  ASSERT_TRUE(Execute(session, operations, &result).ok());
  const uint64_t last = Status().revision();
  ASSERT_GT(last, 512u);
  Watcher watcher(events(), From(2));
  EXPECT_EQ(watcher.ReadTo(last).size(), last - 1);
  watcher.Cancel();
}

// A prompt that fills a request's 16 MiB, with the tokens and extra ids that take the most bytes.
class LargestCommitTest : public DaemonTest {
 protected:
  static constexpr uint32_t kTokens = 1'100'000;
  static constexpr uint32_t kPerBlock = 32;

  LargestCommitTest() : DaemonTest(LargeConfig()) {}

  static Config LargeConfig() {
    Config config = TestConfig();
    config.cache.tokens_per_block = kPerBlock;
    config.cache.primary = BlockBudget{{kTokens / kPerBlock + 1}};
    config.cache.layers = {{.count = 1, .num_kv_heads = 1, .head_dim = 1}};
    return config;
  }
};

TEST_F(LargestCommitTest, ItsEventsFitAClientWithDefaultLimits) {
  const v1::SessionRef session = OpenRef();
  v1::Operation add = AddOp(1, {});
  auto* request = add.mutable_add_sequence();
  for (uint32_t i = 0; i < kTokens; ++i) {
    request->add_tokens(0xF000'0000 + i);
    request->add_extra_token_ids(~uint64_t{i});
  }
  ASSERT_GT(add.ByteSizeLong(), 14u << 20);
  const uint64_t before = Status().revision();
  ASSERT_FALSE(Run(session, add).has_error());
  ASSERT_FALSE(Run(session, CommitOp(1, kTokens)).has_error());
  ASSERT_FALSE(Run(session, FreeSequenceOp(1)).has_error());
  v1::Operation forget;
  forget.mutable_invalidate_prefix();
  ASSERT_FALSE(Run(session, forget).has_error());
  const uint64_t last = Status().revision();

  Watcher watcher(events(), From(before + 1));
  ASSERT_TRUE(watcher.started());
  uint64_t tokens = 0, removed = 0, largest = 0;
  v1::WatchResponse message;
  while (watcher.revision() < last && watcher.Next(&message)) {
    largest = std::max<uint64_t>(largest, message.ByteSizeLong());
    for (const v1::Event& event : message.events()) {
      for (const v1::StoredBlock& block : event.stored().blocks()) tokens += block.tokens_size();
      removed += event.removed().block_ids_size();
    }
  }
  EXPECT_EQ(watcher.revision(), last) << "the stream ended before";
  EXPECT_EQ(tokens, kTokens);
  EXPECT_EQ(removed, kTokens / kPerBlock);
  EXPECT_LT(largest, 4u << 20);
  watcher.Cancel();
}

TEST_F(EventServiceTest, AStartOutsideTheLogIsRefusedWithItsBounds) {
  MakeEvents(400);
  const v1::GetStatusResponse status = Status();
  ASSERT_GT(status.oldest_revision(), 1u);
  v1::WatchRequest other_epoch = From(status.revision());
  other_epoch.set_epoch(status.epoch() + 1);
  const struct {
    v1::WatchRequest request;
    const char* reason;
  } refused[] = {{From(1), "REVISION_COMPACTED"},
                 {From(status.oldest_revision() - 1), "REVISION_COMPACTED"},
                 {From(status.revision() + 2), "REVISION_IN_FUTURE"},
                 {other_epoch, "EPOCH_CHANGED"}};
  for (const auto& [request, reason] : refused) {
    Watcher watcher(events(), request);
    EXPECT_FALSE(watcher.started());
    const grpc::Status end = watcher.Finish();
    EXPECT_EQ(end.error_code(), grpc::StatusCode::OUT_OF_RANGE);
    const google::rpc::ErrorInfo info = InfoOf(end);
    EXPECT_EQ(info.reason(), reason);
    EXPECT_EQ(info.metadata().at("oldest_revision"), absl::StrCat(status.oldest_revision()));
    EXPECT_EQ(info.metadata().at("next_revision"), absl::StrCat(status.revision() + 1));
    EXPECT_EQ(info.metadata().at("epoch"),
              absl::StrCat(absl::Hex(status.epoch(), absl::kZeroPad16)));
  }
  for (const uint64_t start : {status.oldest_revision(), status.revision() + 1}) {
    v1::WatchRequest request = From(start);
    request.set_epoch(status.epoch());
    Watcher watcher(events(), request);
    EXPECT_TRUE(watcher.started());
    EXPECT_EQ(watcher.revision(), start - 1);
    watcher.Cancel();
  }
}

// The status of a refused stream.
std::string RefusalOf(v1::EventService::Stub& stub, const v1::WatchRequest& request) {
  Watcher watcher(stub, request);
  EXPECT_FALSE(watcher.started());
  return InfoOf(watcher.Finish()).reason();
}

TEST_F(EventServiceTest, WhatMakesNoSenseIsRefused) {
  v1::WatchRequest both = From(1);
  both.set_snapshot(true);
  EXPECT_EQ(RefusalOf(events(), both), "INVALID_ARGUMENT");
  v1::WatchRequest window;
  window.add_window_sizes(77);
  EXPECT_EQ(RefusalOf(events(), window), "UNKNOWN_WINDOW");
  v1::WatchRequest type;
  type.add_types(v1::EVENT_TYPE_UNSPECIFIED);
  EXPECT_EQ(RefusalOf(events(), type), "INVALID_ARGUMENT");
  v1::WatchRequest tier;
  tier.add_tiers(v1::TIER_UNSPECIFIED);
  EXPECT_EQ(RefusalOf(events(), tier), "INVALID_ARGUMENT");
  v1::WatchRequest tenant;
  tenant.set_tenant("nobody");
  EXPECT_EQ(RefusalOf(events(), tenant), "UNKNOWN_TENANT");
}

TEST_F(EventServiceTest, AFilteredStreamCoversWhatItLeavesOut) {
  CacheTokens(OpenRef(), TokensTo(9));
  MakeEvents(300);
  v1::WatchRequest request = From(1);
  request.add_types(v1::EVENT_TYPE_STORED);
  const auto context = NewContext();
  const auto reader = events().Watch(context.get(), request);
  v1::WatchResponse message;
  ASSERT_TRUE(reader->Read(&message));
  uint64_t covered = message.revision();
  int stored = 0;
  while (covered < Status().revision() && reader->Read(&message)) {
    EXPECT_EQ(message.previous_revision(), covered);
    covered = message.revision();
    for (const v1::Event& event : message.events()) {
      EXPECT_TRUE(event.has_stored());
      stored += event.has_stored();
    }
  }
  EXPECT_GT(stored, 0);
  context->TryCancel();
}

TEST_F(EventServiceTest, ASnapshotIsWhatIsThereThenWhatHappens) {
  const v1::SessionRef session = OpenRef();
  CacheTokens(session, TokensTo(9));
  const auto raw = Allocate(session, 1);
  v1::WatchRequest request;
  request.set_snapshot(true);
  const auto context = NewContext();
  const auto reader = events().Watch(context.get(), request);
  v1::WatchResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_TRUE(message.snapshot_begin());
  int capacities = 0, blocks = 0, raw_blocks = 0;
  while (!message.snapshot_end() && reader->Read(&message)) {
    for (const v1::Event& event : message.events()) {
      EXPECT_EQ(event.revision(), 0u);
      capacities += event.created().capacity_size();
      raw_blocks += event.created().block_ids_size();
      blocks += event.stored().blocks_size();
    }
  }
  EXPECT_EQ(message.revision(), Status().revision());
  EXPECT_EQ(capacities, 1);
  EXPECT_EQ(raw_blocks, 1);
  EXPECT_EQ(blocks, 3);
  const uint64_t end = message.revision();
  Run(session, FreeOp(raw));
  while (message.events_size() == 0 || message.revision() == end) {
    ASSERT_TRUE(reader->Read(&message));
  }
  EXPECT_EQ(message.events(0).revision(), end + 1);
  EXPECT_EQ(message.events(0).removed().reason(), v1::REMOVAL_REASON_RELEASED);
  context->TryCancel();
}

TEST_F(EventServiceTest, WhoWasPassedByTheLogGetsASnapshotIfThatWasAskedFor) {
  MakeEvents(400);
  ASSERT_GT(Status().oldest_revision(), 1u);
  v1::WatchRequest request = From(1);
  request.set_resnapshot_when_behind(true);
  const auto context = NewContext();
  const auto reader = events().Watch(context.get(), request);
  v1::WatchResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_FALSE(message.snapshot_begin());
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_TRUE(message.snapshot_begin());
  while (!message.snapshot_end()) ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.revision(), Status().revision());
  context->TryCancel();
}

TEST_F(EventServiceTest, SubscribersAreCounted) {
  Watcher one(events(), {});
  Watcher two(events(), {});
  EXPECT_EQ(Status().subscribers(), 2u);
  one.Cancel();
  two.Cancel();
}

}  // namespace
}  // namespace pagoda::server
