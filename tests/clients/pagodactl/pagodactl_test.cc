// Runs the program and checks exit codes, the standard output, and that its JSON parses. A small
// daemon in this process answers with fixed replies.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
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
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// --- With a small daemon ---

void SetDisk(v1::DiskStatus* disk) {
  disk->set_tier_name("nvme");
  disk->set_path("/disk");
  disk->set_write_bytes_per_second(1 << 20);
  v1::DiskWindowStatus* const window = disk->add_windows();
  window->set_engine("io_uring");
  window->set_direct(true);
  window->set_mode("readonly");
  window->set_mode_reason("a disk's error");
  window->set_held_slots(21);
  window->set_stale_slots(22);
  window->set_retired_slots(23);
  window->set_waiting_backups(24);
  window->set_queued_fetches(1);
  window->set_written_blocks_total(25);
  v1::NamedCount* const error = window->add_errors_total();
  error->set_name("no space");
  error->set_count(26);
}

void SetSelfTest(v1::GpuSelfTest* test) {
  test->set_device("cuda:0, a GPU");
  test->mutable_problem()->set_message("no kernel for gate");
  const std::pair<const char*, const char*> kernels[] = {
      {"timeout", "gate by portable is left out: timeout"},
      {"runs", "norm by portable runs: error 0 of 1"},
      {"right", "norm by sm80 is right but not chosen: error 0 of 1"}};
  for (const auto& [outcome, text] : kernels) {
    v1::GpuSelfTest::Kernel* const kernel = test->add_kernels();
    kernel->set_outcome(outcome);
    kernel->set_text(text);
  }
}

class FakeAdmin final : public v1::AdminService::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    response->set_version("9.9");
    response->set_epoch(255);
    response->set_revision(12);
    response->set_sessions(2);
    response->mutable_cache()->set_tokens_per_block(32);
    v1::EngineStatus* engine = response->mutable_engine();
    engine->set_vocab_size(100);
    engine->set_up(true);
    engine->set_restarts(3);
    engine->set_problem("signal 9\nended it");
    engine->mutable_addresses()->add_grpc("127.0.0.1:7074");
    engine->mutable_addresses()->set_http("127.0.0.1:7076");
    v1::WindowStatus* window = response->add_windows();
    window->set_prefix_lookup_tokens_total(400);
    window->set_prefix_hit_tokens_total(100);
    window->set_lower_hit_tokens_total(40);
    window->set_offloaded_blocks_total(11);
    window->set_onboarded_blocks_total(12);
    window->set_displaced_blocks_total(13);
    window->set_lost_blocks_total(14);
    window->set_freely_evicted_blocks_total(20);
    window->set_partial_copies_total(15);
    window->set_pinned_blocks(16);
    window->set_pin_budget_blocks(17);
    response->set_pins(3);
    SetDisk(response->mutable_disk());
    SetSelfTest(response->mutable_gpu_self_test());
    response->set_state(v1::DAEMON_STATE_DRAINING);
    response->mutable_transfers()->set_queued(18);
    v1::TransferDirection* direction = response->mutable_transfers()->add_directions();
    direction->set_source(v1::TIER_PRIMARY);
    direction->set_target(v1::TIER_SECOND);
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
  grpc::Status ListCaches(grpc::ServerContext*, const v1::ListCachesRequest*,
                          v1::ListCachesResponse* response) override {
    absl::MutexLock lock(&mutex_);
    *response->add_caches() = row_;
    return grpc::Status::OK;
  }
  // The only row of the list.
  void List(const v1::CacheRow& row) {
    absl::MutexLock lock(&mutex_);
    row_ = row;
  }

 private:
  absl::Mutex mutex_;
  v1::CacheRow row_ ABSL_GUARDED_BY(mutex_);
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
    admin_.List(RowWithEngine(endpoint_));
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
      AllOf(
          HasSubstr("pagodad 9.9"), HasSubstr("2 sessions"), HasSubstr("64 blocks of 1.0 KiB"),
          HasSubstr("50.00 %"), HasSubstr("25.00 %: 100 of 400 prompt tokens, 40 of them"),
          HasSubstr("3 pins"),
          HasSubstr(
              "11 offloaded, 12 onboarded, 13 displaced, 14 lost; 20 offloaded without a copy"),
          HasSubstr("5 of the cached are copies"), HasSubstr("15 copied"),
          HasSubstr("16 of 17 allowed blocks"), HasSubstr("18 waiting"),
          HasSubstr("primary to secondary: 19 copies, 6.0 GiB at 3.0 GiB/s"),
          HasSubstr("up 0 us, draining\n"),
          HasSubstr("disk         nvme at /disk, written with at most 1.0 MiB/s\n"
                    "             window full: readonly by io_uring, direct: a disk's error\n"
                    "             21 slots held, 22 stale, 0 quarantined, 23 retired, 0 damaged\n"
                    "             24 backups waiting, 0 queued; 1 fetch queued; 0 orders running\n"
                    "             written blocks 25, errors (no space 26)\n"),
          HasSubstr("gpu          cuda:0, a GPU: the engine computes on the host, because no "
                    "kernel for gate\n"
                    "             gate by portable is left out: timeout\n"
                    "             norm by portable runs: error 0 of 1\n"),
          HasSubstr("             up, restarted 3 times: signal 9\\nended it\n"),
          HasSubstr("gRPC at 127.0.0.1:7074, OpenAI's API at 127.0.0.1:7076\n")));
  EXPECT_EQ(table.out.find('\x1b'), std::string::npos) << "colours in a file";

  const Outcome json = Ctl("status -o json");
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const Json status = Json::parse(json.out);
  EXPECT_EQ(status["epoch"], "255");
  EXPECT_EQ(status["windows"][0]["window_size"], 0);
  EXPECT_EQ(status["windows"][0]["prefix_lookup_tokens_total"], "400");
  EXPECT_EQ(status["windows"][0]["tiers"][0]["tier"], "TIER_PRIMARY");
  EXPECT_EQ(status["windows"][0]["tiers"][0]["cached_blocks"], 16);
  EXPECT_EQ(status["windows"][0]["tiers"][0]["duplicate_blocks"], 5);
  EXPECT_EQ(status["windows"][0]["freely_evicted_blocks_total"], "20");
  EXPECT_EQ(status["windows"][0]["lower_hit_tokens_total"], "40");
  EXPECT_EQ(status["windows"][0]["onboarded_blocks_total"], "12");
  EXPECT_EQ(status["pins"], "3");
  EXPECT_EQ(status["state"], "DAEMON_STATE_DRAINING");
  EXPECT_EQ(status["disk"]["windows"][0]["written_blocks_total"], "25");
  EXPECT_EQ(status["gpu_self_test"]["problem"]["message"], "no kernel for gate");
  EXPECT_EQ(status["gpu_self_test"]["kernels"].size(), 3u);
  EXPECT_EQ(status["transfers"]["directions"][0]["busy_time"], "2s");
  EXPECT_EQ(status["engine"]["vocab_size"], 100);
  EXPECT_EQ(status["engine"]["up"], true);
  EXPECT_EQ(status["engine"]["restarts"], "3");
  EXPECT_EQ(status["engine"]["problem"], "signal 9\nended it");
  EXPECT_EQ(status["engine"]["addresses"].dump(),
            R"({"grpc":["127.0.0.1:7074"],"http":"127.0.0.1:7076"})");
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
    EXPECT_EQ(Json::parse(line)["removed"]["reason"], "REMOVAL_REASON_EVICTED");
  }
}

TEST_F(PagodactlDaemonTest, ChatNamesAnAdapter) {
  const std::string said = directory_.File("said");
  std::ofstream(said) << "hello\n";
  const Outcome outcome = Ctl(absl::StrCat("chat --adapter polite -o json <", said));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out)["text"], "adapter polite");
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
      Ctl("watch --snapshot --resnapshot --type created,removed --tier second --window full,128 "
          "--tenant t -o json");
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_THAT(json.err, AllOf(HasSubstr("REVISION_COMPACTED"), HasSubstr("behind")));
  ASSERT_THAT(Lines(json.out), SizeIs(4));
  EXPECT_EQ(Json::parse(Lines(json.out)[0])["snapshot_begin"], true);
  EXPECT_EQ(Json::parse(Lines(json.out)[0])["snapshot_end"], false);
  EXPECT_EQ(Json::parse(Lines(json.out)[0])["cache"],
            "snapshot: true types: EVENT_TYPE_CREATED types: EVENT_TYPE_REMOVED "
            "window_sizes: 0 window_sizes: 128 tiers: TIER_SECOND tenant: \"t\" "
            "resnapshot_when_behind: true");
  const Outcome hashes = Ctl("watch --snapshot --hashes --chunk-tokens 256 -o json");
  EXPECT_EQ(Json::parse(Lines(hashes.out)[0])["cache"],
            "snapshot: true content: EVENT_CONTENT_HASHES chunk_tokens: 256");
  const Json end = Json::parse(Lines(json.out)[3]);
  EXPECT_EQ(end["snapshot_end"], true);
  EXPECT_EQ(end["revision"], "8");
  EXPECT_EQ(end["events"], Json::array());
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
    execl(PROGRAM, "pagodactl", "--endpoint", endpoint_.c_str(), "watch", "-o", "json", nullptr);
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
      Json::parse(Ctl("generate --prompt-tokens 1,2,3,4,5 -o json").out)["report"].contains(
          "reused_tokens"));

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

// --- The engine is another process ---

constexpr const char* kUsesOfTheEngine[] = {"generate --prompt-tokens 1", "chat </dev/null"};

TEST_F(PagodactlDaemonTest, ADaemonWithoutAnEngineSaysSo) {
  admin_.List(v1::CacheRow());
  for (const char* arguments : kUsesOfTheEngine) {
    const Outcome outcome = Ctl(arguments);
    EXPECT_EQ(outcome.exit_code, 1) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("NO_ENGINE: the daemon runs without a model")) << arguments;
    const Outcome named = Ctl(absl::StrCat("--cache tiny ", arguments));
    EXPECT_EQ(named.exit_code, 1) << arguments;
    EXPECT_THAT(named.err, HasSubstr("NO_ENGINE: no engine runs over the cache 'tiny'"));
  }
}

TEST_F(PagodactlDaemonTest, AnEngineThatIsNotUpIsNoMissingDaemon) {
  admin_.List(RowWithEngine());
  for (const char* arguments : kUsesOfTheEngine) {
    const Outcome outcome = Ctl(arguments);
    EXPECT_EQ(outcome.exit_code, 3) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("UNAVAILABLE: the daemon's engine is not up; "
                                             "pagodactl status says why"),
                                   Not(HasSubstr("deploy/run.sh"))))
        << arguments;
  }
}

TEST_F(PagodactlDaemonTest, AnEngineWithHttpAloneSaysSo) {
  v1::CacheRow row = RowWithEngine();
  row.mutable_engine_addresses()->set_http("127.0.0.1:7076");
  admin_.List(row);
  const Outcome outcome = Ctl("generate --prompt-tokens 1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("does not serve gRPC"));
}

TEST_F(PagodactlDaemonTest, AnEngineThatDoesNotAnswerIsNoMissingDaemon) {
  admin_.List(RowWithEngine(absl::StrCat("unix:", directory_.File("none.sock")), "127.0.0.1:1"));
  for (const char* arguments : kUsesOfTheEngine) {
    const Outcome outcome = Ctl(arguments);
    EXPECT_EQ(outcome.exit_code, 3) << arguments;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("the daemon's engine cannot be reached"),
                                   HasSubstr("127.0.0.1:1"), Not(HasSubstr("deploy/run.sh"))))
        << arguments;
  }
}

TEST_F(PagodactlDaemonTest, TheNextAddressIsTriedAndTheDaemonsHostIsUsed) {
  for (const v1::CacheRow& row :
       {RowWithEngine("127.0.0.1:1", absl::StrCat("127.0.0.1:", port_)),
        RowWithEngine(absl::StrCat("0.0.0.0:", port_)), RowWithEngine(endpoint_)}) {
    admin_.List(row);
    for (const std::string& endpoint : {endpoint_, absl::StrCat("localhost:", port_)}) {
      const Outcome outcome =
          RunProgram(absl::StrCat("--endpoint ", endpoint, " generate --prompt-tokens 1,2,3"));
      EXPECT_EQ(outcome.exit_code, 0) << endpoint << "\n" << outcome.err;
      EXPECT_THAT(outcome.out, StartsWith("2 3 4 \n")) << endpoint;
    }
  }
}

// An engine at its own address, without the daemon's services.
class PagodactlEngineTest : public PagodactlDaemonTest {
 protected:
  void SetUp() override {
    PagodactlDaemonTest::SetUp();
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterService(&alone_);
    alone_server_ = builder.BuildAndStart();
    ASSERT_NE(alone_server_, nullptr);
    admin_.List(RowWithEngine(address_));
  }
  void TearDown() override {
    alone_server_->Shutdown();
    PagodactlDaemonTest::TearDown();
  }

  const std::string address_ = "unix:" + directory_.File("engine.sock");
  FakeEngine alone_;
  std::unique_ptr<grpc::Server> alone_server_;
};

TEST_F(PagodactlEngineTest, TheEngineGetsTheCallersTokenToo) {
  const std::string token = directory_.File("token");
  std::ofstream(token) << "secret-of-the-caller\n";
  const Outcome outcome =
      Ctl(absl::StrCat("generate --prompt-tokens 1,2,3 --auth-token-file ", token));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("2 3 4 \n"));
  EXPECT_EQ(alone_.authorization(), "Bearer secret-of-the-caller");
  EXPECT_EQ(engine_.authorization(), "") << "the daemon's address was asked to generate";
}

TEST_F(PagodactlEngineTest, TheEndpointMayBeTheEnginesOwn) {
  const std::string endpoint = absl::StrCat("--endpoint ", address_, " ");
  const Outcome generated = RunProgram(endpoint + "generate --prompt-tokens 1,2,3");
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_THAT(generated.out, StartsWith("2 3 4 \n"));
  std::ofstream(directory_.File("said")) << "hello\n";
  const Outcome chat = RunProgram(
      absl::StrCat(endpoint, "chat --adapter polite -o json <", directory_.File("said")));
  ASSERT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_EQ(Json::parse(chat.out)["text"], "adapter polite");
}

TEST_F(PagodactlEngineTest, ARandomPromptNeedsTheDaemon) {
  const Outcome outcome =
      RunProgram(absl::StrCat("--endpoint ", address_, " generate --random-prompt 3"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("--random-prompt needs the vocabulary's size"),
                                 HasSubstr(address_ + " is an engine's address")));
  EXPECT_EQ(Ctl("generate --random-prompt 3").exit_code, 0);
}

TEST_F(PagodactlDaemonTest, AnErrorOfTheDaemonExitsWithOne) {
  // The small daemon has no CacheService.
  const Outcome outcome = Ctl("pins");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
}

}  // namespace
}  // namespace pagoda
