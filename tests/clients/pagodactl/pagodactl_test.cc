// Runs the program and checks exit codes, the standard output, and that its JSON parses. A small
// daemon in this process answers with fixed replies.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "pagoda/v1/admin.grpc.pb.h"
#include "pagoda/v1/engine.grpc.pb.h"
#include "pagoda/v1/events.grpc.pb.h"
#include "tests/clients/fixtures/fake_engine.h"
#include "tests/clients/fixtures/program.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

// --- Without a daemon ---

TEST(PagodactlTest, HelpAndVersionSucceed) {
  const Outcome help = RunProgram("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("Examples:"), HasSubstr("status"), HasSubstr("watch"),
                              HasSubstr("generate"), HasSubstr("workload"), HasSubstr("replay"),
                              HasSubstr("plan"), HasSubstr("PAGODA_ENDPOINT")));
  const Outcome version = RunProgram("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, StartsWith("pagodactl "));
}

TEST(PagodactlTest, BadUsageExitsWithTwoAndPrintsNoResult) {
  for (const char* arguments : {"",
                                "frobnicate",
                                "status --frobnicate",
                                "status -o xml",
                                "--timeout 0 status",
                                "--timeout -3 status",
                                "watch --count 0",
                                "watch --from-revision x",
                                "watch --from-revision 1 --snapshot",
                                "watch --type moved",
                                "watch --window wide",
                                "watch --chunk-tokens 256",
                                "watch --hashes --chunk-tokens 0",
                                "generate",
                                "generate --prompt-tokens 1,x",
                                "generate --prompt-tokens 1 --random-prompt 2",
                                "generate --prompt-tokens 1 --max-new-tokens 0",
                                "workload --concurrency 0",
                                "workload --turns -1",
                                "replay",
                                "replay --blocks 3",
                                "replay /nonexistent --blocks 3",
                                "replay " CHAT_TRACE,
                                "replay " CHAT_TRACE " --blocks 3 --policy fifo",
                                "replay " CHAT_TRACE " --blocks 0 --host-blocks 5",
                                "replay " CHAT_TRACE " --blocks 3 --host-blocks x",
                                "plan",
                                "plan --preset qwen3-8b --layers 1x1x1",
                                "plan --preset qwen4",
                                "plan --layers 36x8",
                                "plan --model /nonexistent",
                                "plan --preset qwen3-8b --primary 80",
                                "plan --preset qwen3-8b --dtype int4",
                                "plan --preset qwen3-8b --sequence-tokens 0",
                                "pin",
                                "pin --tokens 1,x",
                                "pin --tokens 1 --token-file -",
                                "pin --tokens 1 --lease 0",
                                "pin --all",
                                "unpin",
                                "unpin x",
                                "pins 3",
                                "offload",
                                "prefetch --all",
                                "invalidate --tokens 1 --all",
                                "retain --tokens 1",
                                "retain --tokens 1 --priority 101",
                                "retain --tokens 1 --priority 3 --duration -1",
                                "top --interval 0",
                                "top --interval 1 --interval 2",
                                "sessions --limit 0",
                                "sequences --session x",
                                "inspect",
                                "inspect --all",
                                "end-session",
                                "end-session x",
                                "quarantine frob",
                                "quarantine release",
                                "quarantine --force",
                                "drain 3",
                                "bench --seconds 0",
                                "bench --batch 0",
                                "bench --batch 4097",
                                "bench --concurrency 0",
                                "completion",
                                "completion fish"}) {
    const Outcome outcome = RunProgram(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.err, "") << arguments;
  }
}

TEST(PagodactlTest, NoDaemonExitsWithThreeAndAHint) {
  for (const char* arguments : {"status",
                                "watch",
                                "generate --prompt-tokens 1",
                                "workload",
                                "status -o json",
                                "pins",
                                "pin --tokens 1",
                                "unpin 1",
                                "offload --tokens 1",
                                "prefetch --tokens 1",
                                "invalidate --all",
                                "retain --tokens 1 --priority 3",
                                "top",
                                "top --once -o json",
                                "caches",
                                "caches show a",
                                "caches drop a",
                                "caches open a --model m --layers 1x1x8",
                                "sessions",
                                "sequences",
                                "tenants",
                                "inspect --tokens 1",
                                "end-session 1",
                                "quarantine",
                                "quarantine release 1",
                                "drain --wait",
                                "bench"}) {
    const Outcome outcome =
        RunProgram(absl::StrCat(arguments, " --endpoint unix:/nonexistent/pagoda.sock"));
    EXPECT_EQ(outcome.exit_code, 3) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("unix:/nonexistent/pagoda.sock"), HasSubstr("deploy/run.sh")));
  }
}

TEST(PagodactlTest, ReplayPrintsItsFiguresAsJson) {
  const Outcome outcome = RunProgram("replay " CHAT_TRACE " --blocks 100 -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["requests"], Lines(ReadFile(CHAT_TRACE)).size());
  EXPECT_EQ(json["capacity_blocks"], 100);
  ASSERT_THAT(json["runs"], SizeIs(1));
  const Json& run = json["runs"][0];
  EXPECT_EQ(run["host_blocks"], 0);
  EXPECT_GT(run["hit_rate"], 0.0);
  EXPECT_LT(run["hit_rate"], 1.0);
  EXPECT_GT(run["evictions"], 0);
  EXPECT_GT(run["operations_per_second"], 0.0);
}

TEST(PagodactlTest, ReplayShowsHostTiersBesideNone) {
  const std::string replay = "replay " CHAT_TRACE " --one-by-one --blocks 100 --host-blocks ";
  const Outcome outcome = RunProgram(replay + "100,300 --policy lru,mq -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json runs = Json::parse(outcome.out)["runs"];
  ASSERT_THAT(runs, SizeIs(6));
  for (size_t policy = 0; policy < 2; ++policy) {
    const Json& none = runs[3 * policy];
    const Json& small = runs[3 * policy + 1];
    const Json& large = runs[3 * policy + 2];
    EXPECT_EQ(none["policy"], policy == 0 ? "lru" : "mq");
    EXPECT_EQ(none["host_blocks_hit"], 0);
    EXPECT_EQ(none["offloads"], 0);
    EXPECT_EQ(small["host_blocks"], 100);
    EXPECT_EQ(large["host_blocks"], 300);
    EXPECT_GT(small["hit_rate"], none["hit_rate"]);
    EXPECT_GT(large["hit_rate"], small["hit_rate"]);
    EXPECT_GT(large["host_blocks_hit"], 0);
    EXPECT_EQ(large["onboards"], large["host_blocks_hit"]);
  }

  const Outcome table = RunProgram(replay + "100 --policy lru");
  ASSERT_EQ(table.exit_code, 0) << table.err;
  const std::vector<std::string> lines = Lines(table.out);
  ASSERT_THAT(lines, SizeIs(6));
  EXPECT_THAT(lines[3], HasSubstr("HOST BLOCKS"));
  EXPECT_THAT(lines[4], StartsWith("lru                  0"));
  EXPECT_THAT(lines[5], StartsWith("lru                100"));
}

TEST(PagodactlTest, ReplayTakesALimitAndPrintsATable) {
  EXPECT_EQ(
      Json::parse(RunProgram("-o json replay " CHAT_TRACE " --blocks 0 --limit 7").out)["requests"],
      7);
  const Outcome table = RunProgram("replay " CHAT_TRACE " --blocks 0");
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, AllOf(HasSubstr("(unlimited)"), HasSubstr("HIT RATE"), HasSubstr(" %")));
  EXPECT_EQ(table.out.find('\x1b'), std::string::npos);
}

TEST(PagodactlTest, PlanShowsWhatATokenTakesAndWhatFits) {
  const Outcome outcome =
      RunProgram("plan --preset qwen3-8b --primary 80GiB --secondary 200GiB -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["bytes_per_token"], 144 << 10);
  EXPECT_EQ(json["windows"][0]["bytes_per_block"], 32 * (144 << 10));
  EXPECT_EQ(json["windows"][0]["blocks_per_sequence"], 8192 / 32);
  EXPECT_EQ(json["sequences_bytes"], uint64_t{8192} * (144 << 10));
  // 80 GiB / 4.5 MiB; 200 GiB without the spare.
  EXPECT_EQ(json["primary"]["blocks"]["full"], 18204);
  EXPECT_EQ(json["primary"]["max_concurrent_sequences"], 18204 / 256);
  EXPECT_EQ(json["secondary"]["blocks"]["full"], 45510);

  const Outcome table = RunProgram("plan --preset qwen3-8b --primary 80GiB");
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("qwen3-8b, bfloat16"), HasSubstr("36 layers of 8 x 128"),
                               HasSubstr("144.0 KiB in all layers"), HasSubstr("18,204"),
                               HasSubstr("fits 71 sequences of 8,192 tokens at once")));
}

TEST(PagodactlTest, PlanDividesAMemoryBetweenWindows) {
  const Outcome outcome =
      RunProgram("plan --layers 52x16x128@1024,10x16x128 --primary 40GiB --sequences 4 -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  const Json& window = json["windows"][0];
  const Json& full = json["windows"][1];
  EXPECT_EQ(window["window"], "1024");
  EXPECT_EQ(full["window"], "full");
  // (1,024 + 512) / 32 and one for an unaligned begin; 8,192 / 32.
  EXPECT_EQ(window["blocks_per_sequence"], 49);
  EXPECT_EQ(full["blocks_per_sequence"], 256);
  const uint64_t in_window = json["primary"]["blocks"]["1024"];
  const uint64_t in_full = json["primary"]["blocks"]["full"];
  EXPECT_NEAR(static_cast<double>(in_window) / 49, static_cast<double>(in_full) / 256, 0.1);
  EXPECT_EQ(json["primary"]["bytes"], in_window * window["bytes_per_block"].get<uint64_t>() +
                                          in_full * full["bytes_per_block"].get<uint64_t>());
  EXPECT_LE(json["primary"]["bytes"].get<uint64_t>(), uint64_t{40} << 30);
}

TEST(PagodactlTest, PlanReadsACheckpointsConfiguration) {
  const Outcome outcome = RunProgram("plan --model " GOLDEN_MODEL " -o json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["model"], "qwen3_tiny");
  EXPECT_EQ(json["bytes_per_token"], 2 * 2 * 2 * 32 * 4);
  EXPECT_FALSE(json.contains("primary"));
  const Outcome half = RunProgram("plan --model " GOLDEN_MODEL " --dtype bfloat16 -o json");
  EXPECT_EQ(Json::parse(half.out)["bytes_per_token"], 2 * 2 * 2 * 32 * 2);
}

TEST(PagodactlTest, APlanThatCannotBeExitsWithOne) {
  const Outcome small = RunProgram("plan --preset qwen3-8b --primary 1MiB");
  EXPECT_EQ(small.exit_code, 1);
  EXPECT_THAT(small.err, HasSubstr("does not hold one block"));
  const TempDirectory directory;
  std::ofstream(directory.File("config.json")) << "{}";
  const Outcome empty = RunProgram("plan --model " + directory.path());
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_THAT(empty.err, HasSubstr("num_hidden_layers"));
}

TEST(PagodactlTest, ABadTraceExitsWithOneAndNamesTheLine) {
  const TempDirectory directory;
  const std::string path = directory.File("bad.jsonl");
  std::ofstream(path) << "{\"timestamp\": 0, \"hash_ids\": [1]}\nnonsense\n";
  const Outcome outcome = RunProgram(absl::StrCat("replay ", path, " --blocks 3"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(absl::StrCat(path, ":2: ")));
}

// --- With a small daemon ---

class FakeAdmin final : public v1::AdminService::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    response->set_version("9.9");
    response->set_epoch(255);
    response->set_revision(12);
    response->set_sessions(2);
    response->mutable_cache()->set_tokens_per_block(32);
    response->mutable_engine()->set_vocab_size(100);
    v1::WindowStatus* window = response->add_windows();
    window->set_prefix_lookup_tokens_total(400);
    window->set_prefix_hit_tokens_total(100);
    window->set_secondary_hit_tokens_total(40);
    window->set_offloaded_blocks_total(11);
    window->set_onboarded_blocks_total(12);
    window->set_displaced_blocks_total(13);
    window->set_lost_blocks_total(14);
    window->set_freely_evicted_blocks_total(20);
    window->set_partial_copies_total(15);
    window->set_pinned_blocks(16);
    window->set_pin_budget_blocks(17);
    response->set_pins(3);
    response->mutable_transfers()->set_queued(18);
    v1::TransferDirection* direction = response->mutable_transfers()->add_directions();
    direction->set_source(v1::TIER_PRIMARY);
    direction->set_target(v1::TIER_SECONDARY);
    direction->set_copies_total(19);
    direction->set_bytes_total(uint64_t{6} << 30);
    direction->mutable_busy_time()->set_seconds(2);
    v1::TierStatus* tier = window->add_tiers();
    tier->set_tier(v1::TIER_PRIMARY);
    tier->set_capacity_blocks(64);
    tier->set_free_blocks(32);
    tier->set_cached_blocks(16);
    tier->set_duplicate_blocks(5);
    tier->set_active_blocks(16);
    tier->set_block_bytes(1024);
    return grpc::Status::OK;
  }
};

// Sends three revisions. From 2 on it leaves one out. From 3 on it says that they are no longer in
// the log.
class FakeEvents final : public v1::EventService::Service {
 public:
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchResponse>* writer) override {
    const uint64_t from = request->from_revision();
    if (from == 3) return Compacted();
    if (request->snapshot()) return Snapshot(*request, writer);
    const uint64_t start = from == 0 ? 0 : from - 1;
    writer->Write(Message(start, start, {}));
    if (from == 2) {
      writer->Write(Message(start + 1, start + 2, {start + 2}));
    } else {
      writer->Write(Message(start, start + 3, {start + 1, start + 2, start + 3}));
    }
    // Stays open, as the daemon's stream does, until the client leaves.
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return grpc::Status::CANCELLED;
  }

 private:
  static v1::WatchResponse Message(uint64_t previous, uint64_t revision,
                                   const std::vector<uint64_t>& revisions) {
    v1::WatchResponse message;
    message.set_epoch(1);
    message.set_previous_revision(previous);
    message.set_revision(revision);
    for (uint64_t each : revisions) {
      v1::Event* event = message.add_events();
      event->set_revision(each);
      event->mutable_removed()->set_reason(v1::REMOVAL_REASON_EVICTED);
      event->mutable_removed()->add_block_ids(4);
      event->mutable_removed()->add_block_hashes(5);
    }
    return message;
  }

  // Leaves a gap if one type alone is asked for. The request's filter comes back as the cache's
  // name.
  static grpc::Status Snapshot(const v1::WatchRequest& request,
                               grpc::ServerWriter<v1::WatchResponse>* writer) {
    v1::WatchResponse begin = Message(7, 7, {});
    begin.set_snapshot_begin(true);
    begin.set_cache(request.ShortDebugString());
    writer->Write(begin);
    v1::WatchResponse end = Message(7, 8, {0, 8});
    if (request.types_size() == 1) end.set_previous_revision(9);
    end.set_snapshot_end(true);
    writer->Write(end);
    return Compacted();
  }

  static grpc::Status Compacted() {
    google::rpc::ErrorInfo info;
    info.set_domain("pagoda");
    info.set_reason("REVISION_COMPACTED");
    (*info.mutable_metadata())["oldest_revision"] = "1017";
    google::rpc::Status details;
    details.set_code(11);
    details.add_details()->PackFrom(info);
    return {grpc::StatusCode::OUT_OF_RANGE, "revision 3 is gone", details.SerializeAsString()};
  }
};

class PagodactlDaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&admin_);
    builder.RegisterService(&events_);
    builder.RegisterService(&engine_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override { server_->Shutdown(); }

  Outcome Ctl(const std::string& arguments) {
    return RunProgram(absl::StrCat("--endpoint ", endpoint_, " ", arguments));
  }

  const TempDirectory directory_;
  const std::string endpoint_ = "unix:" + directory_.File("pagodad.sock");
  int port_ = 0;  // The port of the same services over TCP.
  FakeAdmin admin_;
  FakeEvents events_;
  FakeEngine engine_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(PagodactlDaemonTest, StatusShowsOccupancyAndHitRate) {
  const Outcome table = Ctl("status");
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(
      table.out,
      AllOf(HasSubstr("pagodad 9.9"), HasSubstr("2 sessions"), HasSubstr("64 blocks of 1.0 KiB"),
            HasSubstr("50.00 %"), HasSubstr("25.00 %: 100 of 400 prompt tokens, 40 of them"),
            HasSubstr("3 pins"),
            HasSubstr(
                "11 offloaded, 12 onboarded, 13 displaced, 14 lost; 20 offloaded without a copy"),
            HasSubstr("5 of the cached are copies"), HasSubstr("15 copied"),
            HasSubstr("16 of 17 allowed blocks"), HasSubstr("18 waiting"),
            HasSubstr("primary to secondary: 19 copies, 6.0 GiB at 3.0 GiB/s")));
  EXPECT_EQ(table.out.find('\x1b'), std::string::npos) << "colours in a file";

  const Outcome json = Ctl("status -o json");
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const Json status = Json::parse(json.out);
  EXPECT_EQ(status["epoch"], "00000000000000ff");
  EXPECT_EQ(status["windows"][0]["window"], "full");
  EXPECT_EQ(status["windows"][0]["hit_rate"], 0.25);
  EXPECT_EQ(status["windows"][0]["tiers"][0]["cached_blocks"], 16);
  EXPECT_EQ(status["windows"][0]["tiers"][0]["duplicate_blocks"], 5);
  EXPECT_EQ(status["windows"][0]["freely_evicted_blocks_total"], 20);
  EXPECT_EQ(status["windows"][0]["secondary_hit_tokens_total"], 40);
  EXPECT_EQ(status["windows"][0]["onboarded_blocks_total"], 12);
  EXPECT_EQ(status["pins"], 3);
  EXPECT_EQ(status["transfers"]["directions"][0]["busy_seconds"], 2.0);
  EXPECT_EQ(status["engine"]["vocab_size"], 100);
}

TEST_F(PagodactlDaemonTest, TheEndpointMayComeFromTheEnvironment) {
  const Outcome outcome = RunProgram("status", "PAGODA_ENDPOINT=" + endpoint_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST_F(PagodactlDaemonTest, AProxyOfTheEnvironmentIsNotAsked) {
  const Outcome outcome = RunProgram(absl::StrCat("--endpoint 127.0.0.1:", port_, " status"),
                                     "-u no_proxy -u no_grpc_proxy http_proxy=http://127.0.0.1:1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST_F(PagodactlDaemonTest, WatchPrintsOneLineAnEvent) {
  const Outcome table = Ctl("watch --from-revision 1 --count 2");
  EXPECT_EQ(table.exit_code, 0) << table.err;
  const std::vector<std::string> lines = Lines(table.out);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[0], HasSubstr("REVISION"));
  EXPECT_THAT(lines[2], HasSubstr("evicted: block 4"));

  const Outcome json = Ctl("watch --count 3 -o json");
  EXPECT_EQ(json.exit_code, 0) << json.err;
  ASSERT_THAT(Lines(json.out), SizeIs(3));
  for (const std::string& line : Lines(json.out)) {
    EXPECT_EQ(Json::parse(line)["reason"], "evicted");
  }
}

TEST_F(PagodactlDaemonTest, ChatNamesAnAdapter) {
  const std::string said = directory_.File("said");
  std::ofstream(said) << "hello\n";
  const Outcome outcome = Ctl(absl::StrCat("chat --adapter polite -o json <", said));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out)["content"], "adapter polite");
}

TEST_F(PagodactlDaemonTest, WatchReportsAGap) {
  const Outcome outcome = Ctl("watch --from-revision 2 --count 9");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("gap"));
}

TEST_F(PagodactlDaemonTest, WatchExplainsACompactedRevision) {
  const Outcome outcome = Ctl("watch --from-revision 3");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("REVISION_COMPACTED"), HasSubstr("1017"), HasSubstr("--snapshot")));
}

TEST_F(PagodactlDaemonTest, WatchTellsASnapshotBetweenTwoLines) {
  const Outcome table = Ctl("watch --snapshot --count 2");
  EXPECT_EQ(table.exit_code, 0) << table.err;
  const std::vector<std::string> lines = Lines(table.out);
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_THAT(lines[1], HasSubstr("a snapshot"));
  EXPECT_THAT(lines[2], StartsWith("         -  "));
  EXPECT_THAT(lines[3], StartsWith("         8  "));

  const Outcome json =
      Ctl("watch --snapshot --resnapshot --type created,removed --tier secondary --window full,128 "
          "--tenant t -o json");
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_THAT(json.err, AllOf(HasSubstr("REVISION_COMPACTED"), HasSubstr("behind")));
  ASSERT_THAT(Lines(json.out), SizeIs(4));
  EXPECT_EQ(Json::parse(Lines(json.out)[0])["type"], "snapshot_begin");
  EXPECT_EQ(Json::parse(Lines(json.out)[0])["cache"],
            "snapshot: true types: EVENT_TYPE_CREATED types: EVENT_TYPE_REMOVED "
            "window_sizes: 0 window_sizes: 128 tiers: TIER_SECONDARY tenant: \"t\" "
            "resnapshot_when_behind: true");
  const Outcome hashes = Ctl("watch --snapshot --hashes --chunk-tokens 256 -o json");
  EXPECT_EQ(Json::parse(Lines(hashes.out)[0])["cache"],
            "snapshot: true content: EVENT_CONTENT_HASHES chunk_tokens: 256");
  EXPECT_EQ(Json::parse(Lines(json.out)[3]).dump(), R"({"revision":8,"type":"snapshot_end"})");
}

TEST_F(PagodactlDaemonTest, WatchReportsAGapInASnapshot) {
  const Outcome outcome = Ctl("watch --snapshot --type removed");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("gap"));
  EXPECT_THAT(Lines(outcome.out), SizeIs(2)) << "nothing behind the gap";
}

TEST_F(PagodactlDaemonTest, CtrlCEndsWatchWithZero) {
  int out[2];
  ASSERT_EQ(pipe(out), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    close(out[0]);
    execl(PAGODACTL, "pagodactl", "--endpoint", endpoint_.c_str(), "watch", "-o", "json", nullptr);
    _exit(127);
  }
  close(out[1]);
  // The first byte of an event: the stream is open, and the daemon will not end it.
  char byte = 0;
  EXPECT_EQ(read(out[0], &byte, 1), 1);
  kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(out[0]);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(PagodactlDaemonTest, GenerateStreamsTokensAndReports) {
  const Outcome table = Ctl("generate --prompt-tokens 1,2,3");
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(StartsWith("2 3 4 \n"), HasSubstr("time to first token  2.00 ms"),
                               HasSubstr("tokens per second    6.0"), HasSubstr("1 reused")));
  const Outcome untold = Ctl("generate --prompt-tokens 1,2,3,4,5");
  EXPECT_THAT(untold.out, AllOf(HasSubstr("prompt               5 tokens\n"),
                                testing::Not(HasSubstr("reused"))));
  EXPECT_FALSE(
      Json::parse(Ctl("generate --prompt-tokens 1,2,3,4,5 -o json").out).contains("reused_tokens"));

  const Outcome json = Ctl("generate --prompt-file - -o json </dev/null");
  ASSERT_EQ(json.exit_code, 0) << json.err;
  EXPECT_THAT(Json::parse(json.out)["tokens"], IsEmpty());
}

TEST_F(PagodactlDaemonTest, ARandomPromptIsSeededAndInTheVocabulary) {
  const auto tokens = [this](const std::string& arguments) {
    const Outcome outcome = Ctl("generate -o json --random-prompt 50 " + arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return Json::parse(outcome.out)["tokens"].get<std::vector<uint32_t>>();
  };
  const auto first = tokens("--seed 7");
  EXPECT_THAT(first,
              AllOf(SizeIs(50), testing::Each(testing::AllOf(testing::Ge(1u), testing::Le(100u)))));
  EXPECT_EQ(first, tokens("--seed 7"));
  EXPECT_NE(first, tokens("--seed 8"));
}

TEST_F(PagodactlDaemonTest, AnErrorOfTheDaemonExitsWithOne) {
  // The small daemon has no CacheService.
  const Outcome outcome = Ctl("workload");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
}

}  // namespace
}  // namespace pagoda
