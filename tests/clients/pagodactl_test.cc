// Runs the program: exit codes, what goes to standard output, and JSON that parses. A small daemon
// in this process answers it with fixed replies.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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
#include "tests/clients/temp_directory.h"

namespace pagoda {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// Runs pagodactl through the shell, so that `arguments` may hold quotes and redirections of its
// input. `environment` holds arguments of env(1).
Outcome RunProgram(const std::string& arguments, const std::string& environment = "") {
  const TempDirectory directory;
  const std::string out = directory.File("out");
  const std::string err = directory.File("err");
  const std::string command =
      absl::StrCat("env ", environment, " ", PAGODACTL, " ", arguments, " >", out, " 2>", err);
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(out), ReadFile(err)};
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

// --- Without a daemon ---

TEST(PagodactlTest, HelpAndVersionSucceed) {
  const Outcome help = RunProgram("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("Examples:"), HasSubstr("status"), HasSubstr("watch"),
                              HasSubstr("generate"), HasSubstr("workload"), HasSubstr("replay"),
                              HasSubstr("PAGODA_ENDPOINT")));
  for (const char* command : {"status", "watch", "generate", "workload", "replay"}) {
    const Outcome outcome = RunProgram(absl::StrCat(command, " --help"));
    EXPECT_EQ(outcome.exit_code, 0) << command;
    EXPECT_THAT(outcome.out, HasSubstr("Examples:")) << command;
  }
  const Outcome version = RunProgram("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, StartsWith("pagodactl "));
}

TEST(PagodactlTest, BadUsageExitsWithTwoAndPrintsNoResult) {
  for (const char* arguments :
       {"", "frobnicate", "status --frobnicate", "status -o xml", "--timeout 0 status",
        "--timeout -3 status", "watch --count 0", "watch --from-revision x", "generate",
        "generate --prompt-tokens 1,x", "generate --prompt-tokens 1 --random-prompt 2",
        "generate --prompt-tokens 1 --max-new-tokens 0", "workload --concurrency 0",
        "workload --turns -1", "replay", "replay --blocks 3", "replay /nonexistent --blocks 3",
        "replay " CHAT_TRACE, "replay " CHAT_TRACE " --blocks 3 --policy fifo"}) {
    const Outcome outcome = RunProgram(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.err, "") << arguments;
  }
}

TEST(PagodactlTest, NoDaemonExitsWithThreeAndAHint) {
  for (const char* arguments :
       {"status", "watch", "generate --prompt-tokens 1", "workload", "status -o json"}) {
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
  EXPECT_GT(json["hit_rate"], 0.0);
  EXPECT_LT(json["hit_rate"], 1.0);
  EXPECT_GT(json["evictions"], 0);
  EXPECT_GT(json["operations_per_second"], 0.0);
}

TEST(PagodactlTest, ReplayTakesALimitAndPrintsATable) {
  EXPECT_EQ(
      Json::parse(RunProgram("-o json replay " CHAT_TRACE " --blocks 0 --limit 7").out)["requests"],
      7);
  const Outcome table = RunProgram("replay " CHAT_TRACE " --blocks 0");
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, AllOf(HasSubstr("hit rate"), HasSubstr(" %"), HasSubstr("evictions")));
  EXPECT_EQ(table.out.find('\x1b'), std::string::npos);
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
    v1::TierStatus* tier = window->add_tiers();
    tier->set_tier(v1::TIER_PRIMARY);
    tier->set_capacity_blocks(64);
    tier->set_free_blocks(32);
    tier->set_cached_blocks(16);
    tier->set_active_blocks(16);
    tier->set_block_bytes(1024);
    return grpc::Status::OK;
  }
};

// Sends three revisions; asked from 2 it leaves one out, and asked from 3 it says that they are
// gone.
class FakeEvents final : public v1::EventService::Service {
 public:
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchResponse>* writer) override {
    const uint64_t from = request->from_revision();
    if (from == 3) return Compacted();
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

// Echoes the prompt's tokens plus one.
class FakeEngine final : public v1::EngineService::Service {
 public:
  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    for (uint32_t token : request->prompt_tokens()) {
      v1::GenerateResponse message;
      message.add_tokens(token + 1);
      writer->Write(message);
    }
    v1::GenerateResponse last;
    v1::GenerateReport* report = last.mutable_report();
    report->set_finish_reason(v1::FINISH_REASON_LENGTH);
    report->set_prompt_tokens(request->prompt_tokens_size());
    report->set_reused_tokens(1);
    report->set_generated_tokens(request->prompt_tokens_size());
    report->mutable_time_to_first_token()->set_nanos(2'000'000);
    report->mutable_total_time()->set_nanos(500'000'000);
    writer->Write(last);
    return grpc::Status::OK;
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
  int port_ = 0;  // Of the same services over TCP.
  FakeAdmin admin_;
  FakeEvents events_;
  FakeEngine engine_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(PagodactlDaemonTest, StatusShowsOccupancyAndHitRate) {
  const Outcome table = Ctl("status");
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("pagodad 9.9"), HasSubstr("2 sessions"),
                               HasSubstr("64 blocks of 1.0 KiB"), HasSubstr("50.00 %"),
                               HasSubstr("25.00 %: 100 of 400 prompt tokens")));
  EXPECT_EQ(table.out.find('\x1b'), std::string::npos) << "colours in a file";

  const Outcome json = Ctl("status -o json");
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const Json status = Json::parse(json.out);
  EXPECT_EQ(status["epoch"], "00000000000000ff");
  EXPECT_EQ(status["windows"][0]["window"], "full");
  EXPECT_EQ(status["windows"][0]["hit_rate"], 0.25);
  EXPECT_EQ(status["windows"][0]["tiers"][0]["cached_blocks"], 16);
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

TEST_F(PagodactlDaemonTest, WatchReportsAGap) {
  const Outcome outcome = Ctl("watch --from-revision 2 --count 9");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("gap"));
}

TEST_F(PagodactlDaemonTest, WatchExplainsACompactedRevision) {
  const Outcome outcome = Ctl("watch --from-revision 3");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("REVISION_COMPACTED"), HasSubstr("1017")));
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
