// pagodactl fetch, with a CacheService that the test plays.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "pagoda/v1/cache.grpc.pb.h"
#include "tests/clients/fixtures/program.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSession = 17;

class FakeFetches final : public v1::CacheService::Service {
 public:
  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest* request,
                           v1::OpenSessionResponse* response) override {
    const absl::MutexLock lock(&mutex_);
    opened_.push_back(*request);
    response->mutable_session()->set_session_id(kSession);
    return grpc::Status::OK;
  }
  grpc::Status FetchPrefix(grpc::ServerContext* context, const v1::FetchPrefixRequest* request,
                           v1::FetchPrefixResponse* response) override {
    const absl::MutexLock lock(&mutex_);
    requests_.push_back(*request);
    time_left_ = absl::FromChrono(context->deadline()) - absl::Now();
    if (request->source().address() == "refused:1") return Refusal();
    *response = answer_;
    return grpc::Status::OK;
  }
  grpc::Status CloseSession(grpc::ServerContext*, const v1::CloseSessionRequest* request,
                            v1::CloseSessionResponse*) override {
    const absl::MutexLock lock(&mutex_);
    closed_.push_back(request->session().session_id());
    return grpc::Status::OK;
  }

  void Answer(v1::FetchOutcome outcome, uint32_t fetched, uint32_t matched) {
    const absl::MutexLock lock(&mutex_);
    answer_.set_outcome(outcome);
    answer_.set_fetched_tokens(fetched);
    answer_.set_matched_tokens(matched);
  }
  v1::OpenSessionRequest last_opened() const {
    const absl::MutexLock lock(&mutex_);
    return opened_.back();
  }
  v1::FetchPrefixRequest last_request() const {
    const absl::MutexLock lock(&mutex_);
    return requests_.back();
  }
  absl::Duration time_left() const {
    const absl::MutexLock lock(&mutex_);
    return time_left_;
  }
  // Since the last call.
  std::vector<uint64_t> TakeClosed() {
    const absl::MutexLock lock(&mutex_);
    return std::exchange(closed_, {});
  }

 private:
  static grpc::Status Refusal() {
    google::rpc::ErrorInfo info;
    info.set_domain("pagoda");
    info.set_reason("PERMISSION_DENIED");
    google::rpc::Status details;
    details.set_code(grpc::StatusCode::PERMISSION_DENIED);
    details.add_details()->PackFrom(info);
    return {grpc::StatusCode::PERMISSION_DENIED, "no such source", details.SerializeAsString()};
  }

  mutable absl::Mutex mutex_;
  std::vector<v1::OpenSessionRequest> opened_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::FetchPrefixRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> closed_ ABSL_GUARDED_BY(mutex_);
  absl::Duration time_left_ ABSL_GUARDED_BY(mutex_);
  v1::FetchPrefixResponse answer_ ABSL_GUARDED_BY(mutex_);
};

class FetchCommandTest : public testing::Test {
 protected:
  FetchCommandTest() : endpoint_("unix:" + directory_.File("pagoda.sock")) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&fetches_);
    server_ = builder.BuildAndStart();
  }

  Outcome Fetch(const std::string& arguments) {
    return RunProgram(absl::StrCat("--endpoint ", endpoint_, " fetch ", arguments));
  }

  TempDirectory directory_;
  const std::string endpoint_;
  FakeFetches fetches_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(FetchCommandTest, AsksTheNamedSourceAndPrintsWhatCame) {
  fetches_.Answer(v1::FETCH_OUTCOME_FETCHED, 1024, 1040);
  const Outcome text =
      Fetch("--tokens 5,6,7 --lora 3 --salt team-a --source 10.0.0.2:7072 --cache llama");
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("1,024 tokens fetched from 10.0.0.2:7072 in "),
                              HasSubstr("; 1,040 tokens match now\n"),
                              HasSubstr("all that 10.0.0.2:7072 has is cached now\n")));
  EXPECT_EQ(fetches_.last_opened().cache(), "llama");
  EXPECT_EQ(fetches_.last_opened().client_name(), "pagodactl");
  const v1::FetchPrefixRequest request = fetches_.last_request();
  EXPECT_EQ(request.session().session_id(), kSession);
  EXPECT_THAT(request.tokens(), ElementsAre(5, 6, 7));
  EXPECT_EQ(request.namespace_().lora_id(), 3u);
  EXPECT_EQ(request.namespace_().cache_salt(), "team-a");
  EXPECT_EQ(request.source().address(), "10.0.0.2:7072");
  EXPECT_FALSE(request.has_deadline_ms());
  EXPECT_THAT(fetches_.TakeClosed(), ElementsAre(kSession));
}

TEST_F(FetchCommandTest, NothingToFetchIsSaid) {
  fetches_.Answer(v1::FETCH_OUTCOME_CACHED, 0, 0);
  EXPECT_THAT(Fetch("--tokens 5").out, HasSubstr("there was nothing to fetch"));
  fetches_.Answer(v1::FETCH_OUTCOME_CACHED, 0, 16);
  EXPECT_THAT(Fetch("--tokens 5").out, HasSubstr("the daemon had all of it"));
}

TEST_F(FetchCommandTest, WithoutASourceItAsksTheStore) {
  fetches_.Answer(v1::FETCH_OUTCOME_MISSING, 32, 48);
  const Outcome text = Fetch("--tokens 5 --deadline 2.5 --timeout 20");
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("32 tokens fetched from the store"),
                              HasSubstr("the store does not have the next block")));
  EXPECT_FALSE(fetches_.last_request().has_source());
  EXPECT_EQ(fetches_.last_request().deadline_ms(), 2500u);
  // The deadline comes on top of the timeout. gRPC sends a rounded time.
  EXPECT_GT(fetches_.time_left(), absl::Seconds(21));
  EXPECT_LT(fetches_.time_left(), absl::Seconds(24));
}

TEST_F(FetchCommandTest, JsonNamesTheOutcome) {
  const std::pair<v1::FetchOutcome, const char*> outcomes[] = {
      {v1::FETCH_OUTCOME_FETCHED, "FETCH_OUTCOME_FETCHED"},
      {v1::FETCH_OUTCOME_CACHED, "FETCH_OUTCOME_CACHED"},
      {v1::FETCH_OUTCOME_MISSING, "FETCH_OUTCOME_MISSING"},
      {v1::FETCH_OUTCOME_PARTLY, "FETCH_OUTCOME_PARTLY"},
      {v1::FETCH_OUTCOME_FAILED, "FETCH_OUTCOME_FAILED"},
      {v1::FETCH_OUTCOME_SLOWER, "FETCH_OUTCOME_SLOWER"},
      {v1::FETCH_OUTCOME_NO_ROOM, "FETCH_OUTCOME_NO_ROOM"},
      {v1::FETCH_OUTCOME_REFUSED, "FETCH_OUTCOME_REFUSED"},
      {v1::FETCH_OUTCOME_CANCELLED, "FETCH_OUTCOME_CANCELLED"}};
  for (const auto& [outcome, name] : outcomes) {
    fetches_.Answer(outcome, 16, 48);
    const Outcome ran = Fetch("--tokens 5 -o json");
    ASSERT_EQ(ran.exit_code, 0) << name << ran.err;
    const Json json = Json::parse(ran.out);
    EXPECT_EQ(json["outcome"], name);
    EXPECT_EQ(json["fetched_tokens"], 16);
    EXPECT_EQ(json["matched_tokens"], 48);
    // In text, every outcome has words of its own.
    EXPECT_THAT(Fetch("--tokens 5").out, testing::Not(HasSubstr("\noutcome ")));
  }
}

TEST_F(FetchCommandTest, FailsIfThereIsNothingToFetchFrom) {
  fetches_.Answer(v1::FETCH_OUTCOME_NO_SOURCE, 0, 0);
  const Outcome outcome = Fetch("--tokens 5");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("no store"), HasSubstr("--source")));
  EXPECT_THAT(fetches_.TakeClosed(), ElementsAre(kSession));
}

TEST_F(FetchCommandTest, ARefusalIsAnErrorAndClosesTheSession) {
  const Outcome outcome = Fetch("--tokens 5 --source refused:1");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("PERMISSION_DENIED: no such source"));
  EXPECT_THAT(fetches_.TakeClosed(), ElementsAre(kSession));
}

TEST_F(FetchCommandTest, BadUsageIsRefused) {
  for (const char* arguments :
       {"", "--all", "--tokens 1,x", "--tokens 1 --token-file -", "--tokens 1 --source ''",
        "--tokens 1 --deadline 0", "--tokens 1 --deadline 3601"}) {
    const Outcome outcome = Fetch(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
  }
  const Outcome help = RunProgram("fetch --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Examples:"));
}

TEST_F(FetchCommandTest, WithoutADaemonItSaysSo) {
  server_->Shutdown();
  const Outcome outcome = Fetch("--tokens 5 --timeout 1");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("deploy/run.sh"));
}

}  // namespace
}  // namespace pagoda
