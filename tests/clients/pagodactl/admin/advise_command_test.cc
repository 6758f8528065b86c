// pagodactl advise against a small AdminService whose curve is known.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "pagoda/v1/admin.grpc.pb.h"
#include "tests/clients/fixtures/program.h"
#include "tests/clients/fixtures/temp_directory.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A cache with 1 GiB on a GPU and 3 GiB of host memory. Its hit rate is 0.2, and 0.1 more for each
// further multiple of the capacity, up to 16 times.
class FakeAdmin final : public v1::AdminService::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    response->mutable_cache()->set_name("demo");
    v1::WindowStatus* window = response->add_windows();
    for (const v1::Tier tier : {v1::TIER_PRIMARY, v1::TIER_SECOND}) {
      v1::TierInfo* info = response->mutable_cache()->add_tiers();
      info->set_tier(tier);
      info->set_medium(tier == v1::TIER_PRIMARY ? v1::MEDIUM_GPU : v1::MEDIUM_HOST);
      v1::TierStatus* status = window->add_tiers();
      status->set_tier(tier);
      status->set_capacity_blocks(tier == v1::TIER_PRIMARY ? 1024 : 3072);
      status->set_block_bytes(1 << 20);
    }
    return grpc::Status::OK;
  }
  grpc::Status GetHitRateCurve(grpc::ServerContext*, const v1::GetHitRateCurveRequest* request,
                               v1::GetHitRateCurveResponse* response) override {
    EXPECT_EQ(request->cache(), "demo");
    response->set_cache("demo");
    *response->mutable_time() = TimeToProto(absl::Now());
    v1::WindowHitRateCurve* curve = response->add_windows();
    curve->set_window_size(0xFFFF'FFFF);
    curve->set_capacity_blocks(4096);
    curve->set_capacity_bytes(uint64_t{4} << 30);
    curve->mutable_observed_time()->set_seconds(720);
    curve->set_observed_requests(3400);
    curve->set_sampled_share(0.1);
    if (!why_.empty()) {
      curve->set_unavailable(why_);
      return grpc::Status::OK;
    }
    curve->set_hit_rate(0.2);
    curve->set_lookup_tokens_per_hour(12e6);
    curve->set_known_factor(known_);
    curve->set_gain_ends_factor(known_ == 16 ? 3.1 : 0);
    for (const double factor : request->capacity_factors()) {
      v1::HitRatePoint* point = curve->add_points();
      point->set_capacity_factor(std::min(factor, 16.0));
      point->set_capacity_blocks(static_cast<uint64_t>(4096 * point->capacity_factor()));
      point->set_hit_rate(0.2 + 0.1 * (point->capacity_factor() - 1));
      point->set_error(factor == 1 ? 0 : error_);
    }
    return grpc::Status::OK;
  }

  double known_ = 16, error_ = 0.012;
  std::string why_;
};

class AdviseCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override { server_->Shutdown(); }

  Outcome Advise(const std::string& arguments) {
    return RunProgram(absl::StrCat("--endpoint ", endpoint_, " advise ", arguments));
  }
  std::string Print(const std::string& arguments) {
    const Outcome outcome = Advise(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.err;
    return outcome.out;
  }

  const TempDirectory directory_;
  const std::string endpoint_ = absl::StrCat("unix:", directory_.File("pagodad.sock"));
  FakeAdmin admin_;
  std::unique_ptr<grpc::Server> server_;
};

// Twice 3 GiB of host memory is 1.75 times the cache.
TEST_F(AdviseCommandTest, TellsWhatTwiceTheHostMemoryBrings) {
  EXPECT_THAT(
      Print(""),
      AllOf(HasSubstr("cache demo, window full: 4,096 blocks, 4.0 GiB over all tiers\n"),
            HasSubstr("with 2x the host memory (1.75x in all) the hit rate would be 27.5 +- 1.2 % "
                      "(now 20.0 %), saving 900 k +- 144 k prefill tokens an hour\n"),
            HasSubstr("the gain ends at 3.1x: more adds less than half a point\n"),
            HasSubstr("from 12 min 0 s of traffic, 3,400 requests; 10 % of the blocks"),
            HasSubstr("0.5x             2,048     2.0 GiB    15.0 %     1.2            -600 k\n"),
            HasSubstr("1x               4,096     4.0 GiB    20.0 %     0.0                 0\n"),
            Not(HasSubstr("errors are large")), Not(HasSubstr("not been that full"))));
}

TEST_F(AdviseCommandTest, SizesAreInsteadOfTodaysTierOrNew) {
  const Json curves = Json::parse(Print("--host-memory 7GiB 1x --disk 4GiB -o json"));
  EXPECT_EQ(curves["cache"], "demo");
  const Json points = curves["windows"][0]["points"];
  ASSERT_EQ(points.size(), 8u + 3u);
  EXPECT_EQ(points[8]["capacity_factor"], 2);
  EXPECT_NEAR(points[8]["hit_rate"], 0.3, 1e-9);
  EXPECT_EQ(points[8]["error"], 0.012);
  EXPECT_EQ(points[9]["capacity_factor"], 1);
  EXPECT_EQ(points[10]["capacity_factor"], 2);
  EXPECT_THAT(Print("--host-memory 7GiB"),
              HasSubstr("with 7GiB of host memory (2x in all) the hit rate would be 30.0 +- 1.2 % "
                        "(now 20.0 %), saving 1.2 M +- 144 k prefill tokens an hour\n"));
  EXPECT_THAT(Print("--host-memory 0x"), AllOf(HasSubstr("with 0x the host memory (0.25x in all)"),
                                               HasSubstr("costing 900 k +- 144 k prefill tokens")));
}

TEST_F(AdviseCommandTest, SaysWhatItDoesNotKnow) {
  admin_.known_ = 1.5;
  admin_.error_ = 0.041;
  EXPECT_THAT(Print("--host-memory 100GiB"),
              AllOf(HasSubstr("; this is the answer for 16x, the most that is sampled"),
                    HasSubstr("; the cache has not been that full yet"),
                    HasSubstr("so far the daemon has seen blocks for 1.5x\n"),
                    HasSubstr("some errors are large (up to 4.1 points)")));
  EXPECT_EQ(Json::parse(Print("-o json"))["windows"][0]["gain_ends_factor"], 0);
  admin_.why_ = "too little traffic: 3 of the 100 blocks";
  EXPECT_THAT(Print(""), AllOf(HasSubstr("too little traffic"), Not(HasSubstr("HIT RATE"))));
  const Json window = Json::parse(Print("-o json"))["windows"][0];
  EXPECT_EQ(window["unavailable"], admin_.why_);
  EXPECT_EQ(window["hit_rate"], 0);
  EXPECT_TRUE(window["points"].empty());
}

TEST_F(AdviseCommandTest, RefusesWhatIsNoSize) {
  for (const char* arguments :
       {"--host-memory much", "--host-memory -1x", "--disk 2x", "--disk 5"}) {
    const Outcome outcome = Advise(arguments);
    EXPECT_EQ(outcome.exit_code, 1) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("INVALID_ARGUMENT")) << arguments;
    EXPECT_EQ(outcome.out, "");
  }
}

// What a `--watch` prints until its second answer, and how it ends on Ctrl-C.
class AdviseWatchTest : public AdviseCommandTest {
 protected:
  void Start(const std::string& output) {
    int out[2];
    ASSERT_EQ(pipe(out), 0);
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      close(out[0]);
      execl(PROGRAM, "pagodactl", "--endpoint", endpoint_.c_str(), "-o", output.c_str(), "advise",
            "--watch", "0.1", nullptr);
      _exit(127);
    }
    close(out[1]);
    out_ = fdopen(out[0], "r");
  }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGINT);
      int status = 0;
      EXPECT_EQ(waitpid(child_, &status, 0), child_);
      EXPECT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 0);
    }
    if (out_ != nullptr) fclose(out_);
    AdviseCommandTest::TearDown();
  }
  // Empty: it printed no further line.
  std::string NextLine() {
    std::array<char, 1 << 16> line = {};
    return fgets(line.data(), line.size(), out_) == nullptr ? "" : line.data();
  }

  pid_t child_ = 0;
  FILE* out_ = nullptr;
};

TEST_F(AdviseWatchTest, EachAnswerIsNewAndHasItsTime) {
  Start("json");
  const Json first = Json::parse(NextLine());
  EXPECT_NEAR(first["windows"][0]["points"].back()["hit_rate"], 0.275, 1e-9);
  const Json second = Json::parse(NextLine());
  EXPECT_LT(first["time"].get<std::string>(), second["time"].get<std::string>());
  EXPECT_EQ(first["windows"], second["windows"]);
}

TEST_F(AdviseWatchTest, AFileHasEachAnswerBelowItsTime) {
  Start("table");
  int times = 0, answers = 0;
  while (answers < 3) {
    const std::string line = NextLine();
    ASSERT_NE(line, "");
    times += line.starts_with("--- ") ? 1 : 0;
    answers += line.starts_with("with 2x the host memory") ? 1 : 0;
    EXPECT_THAT(line, Not(HasSubstr("\x1b")));
  }
  EXPECT_EQ(times, 3);
}

TEST_F(AdviseWatchTest, AFailureAtTheBeginningEndsIt) {
  EXPECT_EQ(RunProgram("--endpoint unix:/nowhere --timeout 1 advise --watch").exit_code, 3);
  const Outcome refused = RunProgram(
      absl::StrCat("--endpoint ", endpoint_, " advise --watch 0.1 --disk 2x"), "timeout 30");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("INVALID_ARGUMENT"));
  EXPECT_EQ(Advise("--watch 0").exit_code, 2);
}

}  // namespace
}  // namespace pagoda
