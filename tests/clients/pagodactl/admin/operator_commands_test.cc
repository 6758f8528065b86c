// pagodactl sessions, sequences, tenants, end-session, quarantine and drain against a small
// AdminService with fixed rows.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
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
#include "tests/clients/fixtures/program.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint64_t kSessions = 2500;
constexpr uint64_t kUnknown = 404;
constexpr uint64_t kAlive = 7;  // A quarantine whose writer is alive.

grpc::Status Refusal(grpc::StatusCode code, const std::string& reason) {
  google::rpc::Status details;
  details.set_code(code);
  details.set_message("as asked");
  google::rpc::ErrorInfo info;
  info.set_domain("pagoda");
  info.set_reason(reason);
  details.add_details()->PackFrom(info);
  return {code, "as asked", details.SerializeAsString()};
}

class FakeAdmin final : public v1::AdminService::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    // Another daemon answers once this one has ended.
    response->mutable_start_time()->set_seconds(draining_ && --looks_left_ < 0 ? 2 : 1);
    response->set_draining(draining_);
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest*, v1::DrainResponse*) override {
    draining_ = true;
    return grpc::Status::OK;
  }
  grpc::Status ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse* response) override {
    uint64_t next = 1;
    if (!request->page_token().empty() && !absl::SimpleAtoi(request->page_token(), &next)) {
      return Refusal(grpc::StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT");
    }
    ++pages_;
    // Fewer than requested; a daemon can do this too.
    for (uint32_t i = 0; i < std::min(request->page_size(), 700u) && next <= kSessions; ++i) {
      v1::SessionInfo* session = response->add_sessions();
      session->set_session_id(next++);
      session->set_client_name("engine");
      session->mutable_open_time()->set_seconds(absl::ToUnixSeconds(absl::Now()) - 100);
      if (session->session_id() != 1) session->mutable_lease()->set_seconds(30);
      if (session->session_id() == 3) session->mutable_lease_left()->set_seconds(12);
      session->add_writer_pids(17);
      session->add_writer_pids(18);
      if (session->session_id() == 1) session->set_transport(v1::SESSION_TRANSPORT_RINGS);
      if (session->session_id() == 2) session->set_transport(v1::SESSION_TRANSPORT_GRPC);
    }
    if (next <= kSessions) response->set_next_page_token(absl::StrCat(next));
    return grpc::Status::OK;
  }
  grpc::Status ListSequences(grpc::ServerContext*, const v1::ListSequencesRequest* request,
                             v1::ListSequencesResponse* response) override {
    v1::SequenceInfo* sequence = response->add_sequences();
    sequence->set_session_id(request->session_id());
    sequence->set_sequence_id(uint64_t{1} << 60);
    sequence->set_tenant("team-a");
    sequence->set_token_count(4096);
    return grpc::Status::OK;
  }
  grpc::Status ListTenants(grpc::ServerContext*, const v1::ListTenantsRequest*,
                           v1::ListTenantsResponse* response) override {
    response->add_tenants();
    v1::TenantInfo* tenant = response->add_tenants();
    tenant->set_name("team-a");
    tenant->set_shares(true);
    tenant->set_share(3);
    tenant->set_sessions(2);
    tenant->set_max_sequences(40);
    tenant->set_sequence_bytes(3 << 20);
    tenant->set_max_sequence_bytes(4 << 20);
    for (const v1::Tier tier : {v1::TIER_PRIMARY, v1::TIER_SECOND}) {
      v1::TenantUse* use = tenant->add_use();
      use->set_tier(tier);
      use->set_used_blocks(1500);
      use->set_cached_blocks(700);
      if (tier == v1::TIER_PRIMARY) use->set_quota_blocks(2000);
    }
    return grpc::Status::OK;
  }
  grpc::Status EndSession(grpc::ServerContext*, const v1::EndSessionRequest* request,
                          v1::EndSessionResponse*) override {
    return request->session_id() == kUnknown
               ? Refusal(grpc::StatusCode::NOT_FOUND, "UNKNOWN_SESSION")
               : grpc::Status::OK;
  }
  grpc::Status ListQuarantines(grpc::ServerContext*, const v1::ListQuarantinesRequest*,
                               v1::ListQuarantinesResponse* response) override {
    v1::QuarantineInfo* quarantine = response->add_quarantines();
    quarantine->set_session_id(kAlive);
    quarantine->set_client_name("engine-3");
    quarantine->mutable_since()->set_seconds(absl::ToUnixSeconds(absl::Now()) - 3600);
    quarantine->set_blocks(1234);
    quarantine->add_writer_pids(4242);
    return grpc::Status::OK;
  }
  grpc::Status ReleaseQuarantine(grpc::ServerContext*, const v1::ReleaseQuarantineRequest* request,
                                 v1::ReleaseQuarantineResponse* response) override {
    if (request->session_id() == kUnknown) {
      return Refusal(grpc::StatusCode::NOT_FOUND, "UNKNOWN_QUARANTINE");
    }
    if (request->session_id() == kAlive && !request->force()) {
      return Refusal(grpc::StatusCode::FAILED_PRECONDITION, "WRITER_ALIVE");
    }
    response->set_released_blocks(1234);
    return grpc::Status::OK;
  }

  int TakePages() { return pages_.exchange(0); }

 private:
  std::atomic<int> pages_ = 0;
  std::atomic<bool> draining_ = false;
  std::atomic<int> looks_left_ = 3;
};

class OperatorCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override { server_->Shutdown(); }

  Outcome Ctl(const std::string& arguments) {
    return RunProgram(absl::StrCat("--endpoint ", endpoint_, " ", arguments));
  }
  std::string Print(const std::string& arguments) {
    const Outcome outcome = Ctl(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.err;
    return outcome.out;
  }
  Json PrintJson(const std::string& arguments) {
    return Json::parse(Print(absl::StrCat(arguments, " -o json")));
  }

  const TempDirectory directory_;
  const std::string endpoint_ = absl::StrCat("unix:", directory_.File("pagodad.sock"));
  FakeAdmin admin_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(OperatorCommandsTest, SessionsAreFetchedPageByPage) {
  const Json sessions = PrintJson("sessions")["sessions"];
  ASSERT_THAT(sessions, SizeIs(kSessions));
  for (uint64_t i = 0; i < kSessions; ++i) {
    EXPECT_EQ(sessions[i]["session_id"], absl::StrCat(i + 1));
  }
  EXPECT_EQ(admin_.TakePages(), 4);
  const Json some = PrintJson("sessions --limit 701");
  EXPECT_THAT(some["sessions"], SizeIs(701));
  EXPECT_EQ(some["next_page_token"], "702");
  EXPECT_EQ(admin_.TakePages(), 2);
  EXPECT_THAT(PrintJson("sessions --limit 1")["sessions"], SizeIs(1));
  EXPECT_EQ(admin_.TakePages(), 1);
}

TEST_F(OperatorCommandsTest, ASessionsLeaseIsNoneHeldOrRuns) {
  const std::vector<std::string> lines = Lines(Print("sessions --limit 3"));
  ASSERT_THAT(lines, SizeIs(5));
  EXPECT_THAT(lines[0], HasSubstr("WRITERS"));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("none"), HasSubstr("held"), EndsWith("17,18")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("30.00 s"), HasSubstr("held")));
  EXPECT_THAT(lines[3], HasSubstr("12.00 s"));
  EXPECT_EQ(lines[4], "3 sessions");
  const Json sessions = PrintJson("sessions --limit 3")["sessions"];
  EXPECT_FALSE(sessions[0].contains("lease"));
  EXPECT_EQ(sessions[1]["lease"], "30s");
  EXPECT_EQ(sessions[2]["lease_left"], "12s");
  EXPECT_THAT(sessions[2]["writer_pids"], ElementsAre(17, 18));
}

TEST_F(OperatorCommandsTest, ASessionsTransportIsTold) {
  const std::vector<std::string> lines = Lines(Print("sessions --limit 3"));
  ASSERT_THAT(lines, SizeIs(5));
  EXPECT_THAT(lines[0], HasSubstr("VIA"));
  EXPECT_THAT(lines[1], HasSubstr("  rings  "));
  EXPECT_THAT(lines[2], HasSubstr("  grpc   "));
  EXPECT_THAT(lines[3], HasSubstr("  -      ")) << "a daemon that does not tell";
  const Json sessions = PrintJson("sessions --limit 3")["sessions"];
  EXPECT_EQ(sessions[0]["transport"], "SESSION_TRANSPORT_RINGS");
  EXPECT_EQ(sessions[1]["transport"], "SESSION_TRANSPORT_GRPC");
  EXPECT_EQ(sessions[2]["transport"], "SESSION_TRANSPORT_UNSPECIFIED");
}

TEST_F(OperatorCommandsTest, SequencesAreThoseOfTheSession) {
  const Json row = PrintJson("sequences --session 9")["sequences"][0];
  EXPECT_EQ(row["session_id"], "9");
  EXPECT_EQ(row["sequence_id"], absl::StrCat(uint64_t{1} << 60));
  EXPECT_THAT(Print("sequences"),
              AllOf(HasSubstr("team-a"), HasSubstr("4,096"), EndsWith("1 sequence\n")));
}

TEST_F(OperatorCommandsTest, TenantsShowUseAndQuotas) {
  const Json tenants = PrintJson("tenants")["tenants"];
  ASSERT_THAT(tenants, SizeIs(2));
  EXPECT_EQ(tenants[1]["use"][0]["quota_blocks"], 2000);
  EXPECT_FALSE(tenants[1]["use"][1].contains("quota_blocks"));
  EXPECT_EQ(tenants[1]["max_sequences"], "40");
  EXPECT_EQ(tenants[1]["sequence_bytes"], absl::StrCat(3 << 20));
  EXPECT_EQ(tenants[1]["max_sequence_bytes"], absl::StrCat(4 << 20));
  const std::vector<std::string> lines = Lines(Print("tenants"));
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_THAT(lines[1], HasSubstr("(default tenant)"));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("team-a, shares"), HasSubstr("3.0 MiB"),
                              HasSubstr("primary"), HasSubstr("1,500"), EndsWith("2,000")));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("secondary"), EndsWith("none")));
}

TEST_F(OperatorCommandsTest, ASessionIsEnded) {
  EXPECT_EQ(Print("end-session 3"), "session 3 is ended\n");
  EXPECT_EQ(PrintJson("end-session 3"), Json::object());
  const Outcome unknown = Ctl(absl::StrCat("end-session ", kUnknown));
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("UNKNOWN_SESSION: as asked"));
}

TEST_F(OperatorCommandsTest, QuarantineAloneLists) {
  // The service that answers counts back from now, so that two answers differ by the clock.
  Json alone = PrintJson("quarantine");
  Json list = PrintJson("quarantine list");
  EXPECT_EQ(alone["quarantines"][0].erase("since"), 1u);
  EXPECT_EQ(list["quarantines"][0].erase("since"), 1u);
  EXPECT_EQ(alone, list);
  EXPECT_EQ(PrintJson("quarantine")["quarantines"][0]["blocks"], 1234);
  EXPECT_THAT(Print("quarantine"), AllOf(HasSubstr("engine-3"), HasSubstr("1,234"),
                                         HasSubstr("1 h 0 min"), HasSubstr("4242")));
}

TEST_F(OperatorCommandsTest, AQuarantineIsReleasedOrForced) {
  EXPECT_EQ(Print("quarantine release 5"), "1,234 blocks of session 5 released\n");
  const Outcome alive = Ctl(absl::StrCat("quarantine release ", kAlive));
  EXPECT_EQ(alive.exit_code, 1);
  EXPECT_EQ(alive.out, "");
  EXPECT_THAT(alive.err, AllOf(HasSubstr("WRITER_ALIVE"), HasSubstr("--force")));
  EXPECT_EQ(PrintJson(absl::StrCat("quarantine release --force ", kAlive))["released_blocks"],
            1234);
  EXPECT_EQ(Ctl(absl::StrCat("quarantine release ", kUnknown)).exit_code, 1);
}

TEST_F(OperatorCommandsTest, ADrainEndsWhereAnotherDaemonAnswers) {
  EXPECT_EQ(PrintJson("drain"), Json::object());
  EXPECT_EQ(PrintJson("drain --wait"), Json::object());
}

}  // namespace
}  // namespace pagoda
