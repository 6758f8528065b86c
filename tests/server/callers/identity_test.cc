#include "server/callers/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/error.h"
#include "events/event.h"
#include "google/protobuf/descriptor.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "manager/accounts/tenants.h"
#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/cache.pb.h"
#include "pagoda/v1/engine.pb.h"
#include "pagoda/v1/events.pb.h"
#include "server/batch/session_owners.h"
#include "server/callers/admission.h"
#include "server/callers/authenticator.h"
#include "server/watch/event_service.h"
#include "vllm/grpc/engine.grpc.pb.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kAliceToken = "alice-0123456789abcdef";
const std::string kBobToken = "bob-0123456789abcdef";
const std::string kOperatorToken = "operator-0123456789abcdef";
const std::string kOtherToken = "other-0123456789abcdef";

constexpr Identity kOperator = {.role = Role::kOperator};
constexpr Identity kAlice = {Role::kTenant, TenantId(1)};
constexpr Identity kBob = {Role::kTenant, TenantId(2)};

TEST(MethodsTest, EveryMethodOfTheContractHasOneRow) {
  std::multiset<std::string> methods;
  for (const google::protobuf::FileDescriptor* file :
       {v1::ExecuteRequest::descriptor()->file(), v1::WatchRequest::descriptor()->file(),
        v1::GetStatusRequest::descriptor()->file(), v1::GenerateRequest::descriptor()->file(),
        grpc::reflection::v1::ServerReflectionRequest::descriptor()->file(),
        grpc::reflection::v1alpha::ServerReflectionRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        methods.insert(absl::StrCat("/", file->service(s)->full_name(), "/",
                                    file->service(s)->method(m)->name()));
      }
    }
  }
  methods.insert(
      absl::StrCat("/", vllm::grpc::engine::VllmEngine::service_full_name(), "/SubscribeKvEvents"));
  std::multiset<std::string> rows;
  for (const Method& method : kMethods) rows.insert(std::string(method.name));
  EXPECT_EQ(rows, methods);
}

TEST(MethodsTest, OfTheAdminServiceATenantMayCallTwoListsAlone) {
  for (const Method& method : kMethods) {
    const bool admin = method.name.find(".AdminService/") != std::string_view::npos;
    const bool for_tenants = !admin || method.name == "/pagoda.v1.AdminService/ListTenants" ||
                             method.name == "/pagoda.v1.AdminService/ListCaches";
    EXPECT_EQ(CheckRole(kAlice, method).ok(), for_tenants) << method.name;
    EXPECT_TRUE(CheckRole(kOperator, method).ok()) << method.name;
  }
  const absl::Status refused = CheckRole(kAlice, MethodNamed("/pagoda.v1.AdminService/EndSession"));
  EXPECT_EQ(ReasonOf(refused), Reason::kPermissionDenied);
}

// Files in a folder, each with a given mode.
class AuthenticatorTest : public ::testing::Test {
 protected:
  AuthenticatorTest() {
    config_.server.tls.client_certificates = ClientCertificates::kOptional;
    config_.tenants.resize(2);
    config_.tenants[0] = {.name = "alice",
                          .credentials = {Write("alice", kAliceToken), {"alice.example"}}};
    config_.tenants[1] = {.name = "bob",
                          .credentials = {Write("bob", kBobToken), {"bob.example", "bob"}}};
    config_.operators = {Write("operators", kOperatorToken), {"root.example"}};
  }

  // Replaces a file by a new one, as deployments do.
  static std::string Write(const std::string& name, const std::string& text, mode_t mode = 0640) {
    const std::string path = absl::StrCat(::testing::TempDir(), "/identity-", getpid(), "-", name);
    const std::string fresh = path + ".new";
    std::ofstream(fresh) << text;
    EXPECT_EQ(chmod(fresh.c_str(), mode), 0);
    EXPECT_EQ(rename(fresh.c_str(), path.c_str()), 0);
    return path;
  }

  std::unique_ptr<Authenticator> Make() {
    auto authenticator = Authenticator::Create(config_);
    EXPECT_TRUE(authenticator.ok()) << authenticator.status();
    return *std::move(authenticator);
  }
  absl::Status Refusal() { return Authenticator::Create(config_).status(); }

  static absl::StatusOr<Identity> ByToken(const Authenticator& authenticator,
                                          const std::string& token) {
    const std::string authorization = absl::StrCat("Bearer ", token);
    return authenticator.Identify(ShownCredentials{.authorization = authorization, .names = {}});
  }
  static absl::StatusOr<Identity> ByNames(const Authenticator& authenticator,
                                          const std::vector<absl::string_view>& names) {
    return authenticator.Identify(ShownCredentials{.names = names});
  }
  static bool IsUnknown(const absl::StatusOr<Identity>& caller) {
    return ReasonOf(caller.status()) == Reason::kUnauthenticated;
  }

  Config config_;
};

TEST_F(AuthenticatorTest, WhereNobodyIsNamedEverybodyIsAnOperator) {
  config_ = Config();
  const auto authenticator = Make();
  EXPECT_EQ(*ByNames(*authenticator, {}), kOperator);
  EXPECT_EQ(*ByToken(*authenticator, "whatever"), kOperator);
}

TEST_F(AuthenticatorTest, ATokenSaysWhoCalls) {
  const auto authenticator = Make();
  EXPECT_EQ(*ByToken(*authenticator, kAliceToken), kAlice);
  EXPECT_EQ(*ByToken(*authenticator, kBobToken), kBob);
  EXPECT_EQ(*ByToken(*authenticator, kOperatorToken), kOperator);
  const ShownCredentials lower = {.authorization = "bearer alice-0123456789abcdef", .names = {}};
  EXPECT_EQ(*authenticator->Identify(lower), kAlice) << "the scheme's case does not count";
}

TEST_F(AuthenticatorTest, WhatIsNotKnownIsRefused) {
  const auto authenticator = Make();
  EXPECT_TRUE(IsUnknown(ByNames(*authenticator, {})));
  EXPECT_TRUE(IsUnknown(ByToken(*authenticator, kOtherToken)));
  EXPECT_TRUE(IsUnknown(ByToken(*authenticator, "")));
  EXPECT_TRUE(IsUnknown(ByToken(*authenticator, kAliceToken + " ")));
  EXPECT_TRUE(IsUnknown(ByToken(*authenticator, kAliceToken.substr(1))));
  EXPECT_TRUE(IsUnknown(authenticator->Identify(ShownCredentials{.authorization = kAliceToken})));
  EXPECT_TRUE(IsUnknown(ByNames(*authenticator, {"mallory.example"})));
}

TEST_F(AuthenticatorTest, ACertificatesNamesSayWhoCalls) {
  const auto authenticator = Make();
  EXPECT_EQ(*ByNames(*authenticator, {"alice.example"}), kAlice);
  EXPECT_EQ(*ByNames(*authenticator, {"x", "bob.example", "bob"}), kBob);
  EXPECT_EQ(*ByNames(*authenticator, {"root.example"}), kOperator);
  EXPECT_TRUE(IsUnknown(ByNames(*authenticator, {"alice.example", "bob"}))) << "two callers";
}

TEST_F(AuthenticatorTest, ATokenGoesBeforeTheCertificate) {
  const auto authenticator = Make();
  const std::string good = "Bearer " + kAliceToken;
  const std::string bad = "Bearer " + kOtherToken;
  EXPECT_EQ(*authenticator->Identify({.authorization = good, .names = {"bob"}}), kAlice);
  EXPECT_TRUE(IsUnknown(authenticator->Identify({.authorization = bad, .names = {"bob"}})));
}

TEST_F(AuthenticatorTest, AFileHoldsManyTokensAndRemarks) {
  Write("alice", absl::StrCat("# of the first cluster\n\n  ", kAliceToken, "\r\n", kOtherToken));
  const auto authenticator = Make();
  EXPECT_EQ(*ByToken(*authenticator, kAliceToken), kAlice);
  EXPECT_EQ(*ByToken(*authenticator, kOtherToken), kAlice);
}

TEST_F(AuthenticatorTest, AFileThatIsNoGoodIsRefusedAndNoTokenIsTold) {
  config_.tenants[0].credentials.tokens_file = "/no/such/file";
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("/no/such/file"));
  config_.tenants[0].credentials.tokens_file = Write("alice", "\nshort-secret\n");
  EXPECT_EQ(ReasonOf(Refusal()), Reason::kInvalidArgument);
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("alice:2: "));
  EXPECT_THAT(std::string(Refusal().message()), Not(HasSubstr("secret")));
  Write("alice", "two words that are long enough");
  EXPECT_EQ(ReasonOf(Refusal()), Reason::kInvalidArgument);
  Write("alice", kBobToken);
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("also belongs to another caller"));
}

TEST_F(AuthenticatorTest, AFileThatOthersCanReadOrWriteIsRefusedUnlessTheOperatorAllowsIt) {
  for (const mode_t mode : {0644, 0604, 0602}) {
    config_.server.insecure = false;
    Write("alice", kAliceToken, mode);
    EXPECT_THAT(std::string(Refusal().message()), HasSubstr("every user of this machine")) << mode;
    config_.server.insecure = true;
    EXPECT_EQ(*ByToken(*Make(), kAliceToken), kAlice);
  }
}

TEST_F(AuthenticatorTest, ARefreshTakesTokensInAndOut) {
  const auto authenticator = Make();
  Write("alice", kOtherToken);
  EXPECT_EQ(*ByToken(*authenticator, kAliceToken), kAlice) << "not yet";
  authenticator->Refresh();
  EXPECT_TRUE(IsUnknown(ByToken(*authenticator, kAliceToken)));
  EXPECT_EQ(*ByToken(*authenticator, kOtherToken), kAlice);
  EXPECT_EQ(*ByToken(*authenticator, kBobToken), kBob);
}

TEST_F(AuthenticatorTest, ARefreshKeepsTheTokensOfAFileThatIsNoGood) {
  const auto authenticator = Make();
  Write("alice", "short");
  Write("bob", kBobToken + "\n" + kOtherToken);
  authenticator->Refresh();
  EXPECT_EQ(*ByToken(*authenticator, kAliceToken), kAlice);
  EXPECT_EQ(*ByToken(*authenticator, kOtherToken), kBob) << "the good file counts";
  Write("alice", kAliceToken, 0644);
  Write("bob", kAliceToken);
  authenticator->Refresh();
  EXPECT_EQ(*ByToken(*authenticator, kAliceToken), kAlice);
  EXPECT_EQ(*ByToken(*authenticator, kBobToken), kBob);
  Write("bob", kBobToken);
  unlink(config_.tenants[0].credentials.tokens_file.c_str());
  authenticator->Refresh();
  EXPECT_EQ(*ByToken(*authenticator, kAliceToken), kAlice);
  Write("alice", "# nobody\n");
  authenticator->Refresh();
  EXPECT_TRUE(IsUnknown(ByToken(*authenticator, kAliceToken))) << "an empty file is a good one";
}

TEST_F(AuthenticatorTest, ATokenThatMovesFromOneTenantToAnotherMovesWhenBothFilesSaySo) {
  const auto authenticator = Make();
  Write("bob", kAliceToken);
  authenticator->Refresh();
  EXPECT_EQ(*ByToken(*authenticator, kAliceToken), kAlice);
  Write("alice", kOtherToken);
  authenticator->Refresh();
  EXPECT_EQ(*ByToken(*authenticator, kAliceToken), kBob);
  EXPECT_EQ(*ByToken(*authenticator, kOtherToken), kAlice);
}

TEST(AdmissionTest, ACallWhoseDeadlineIsOverDoesNotRun) {
  const absl::Time now = absl::UnixEpoch();
  EXPECT_TRUE(CheckInTime(now + absl::Nanoseconds(1), now).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(CheckInTime(now, now)));
}

class TenantsTest : public ::testing::Test {
 protected:
  TenantsTest() {
    tenants_ = std::make_unique<TenantTable>(*TenantTable::Create(
        {{.name = "alice"}, {.name = "bob"}, {.name = "carol", .shares = true}}, 1));
    admission_ = std::make_unique<Admission>(1, nullptr, nullptr, tenants_.get());
  }
  // "refused" if the request is refused.
  std::string Confined(TenantId tenant, const std::string& named) {
    const auto key = tenants_->Confine(tenant, {.cache_salt = "salt", .tenant = named});
    if (!key.ok()) return "refused";
    EXPECT_EQ(key->cache_salt, "salt");
    return key->tenant;
  }

  std::unique_ptr<TenantTable> tenants_;
  std::unique_ptr<Admission> admission_;
};

TEST_F(TenantsTest, ASessionIsItsCallersAndOnlyAnOperatorNamesAnother) {
  EXPECT_EQ(*admission_->SessionTenant(kAlice, ""), TenantId(1));
  EXPECT_EQ(*admission_->SessionTenant(kAlice, "alice"), TenantId(1));
  EXPECT_EQ(*admission_->SessionTenant(kOperator, ""), kDefaultTenant);
  EXPECT_EQ(*admission_->SessionTenant(kOperator, "bob"), TenantId(2));
  EXPECT_EQ(ReasonOf(admission_->SessionTenant(kOperator, "mallory").status()),
            Reason::kUnknownTenant);
  for (const char* other : {"bob", "mallory"}) {
    EXPECT_EQ(ReasonOf(admission_->SessionTenant(kAlice, other).status()),
              Reason::kPermissionDenied)
        << "whether there is such a tenant or not";
  }
}

TEST_F(TenantsTest, ATenantIsAloneInItsNamespaceUnlessItShares) {
  const TenantId alice(1);
  const TenantId carol(3);
  EXPECT_EQ(Confined(alice, ""), "alice");
  EXPECT_EQ(Confined(alice, "alice"), "alice");
  EXPECT_EQ(Confined(alice, "bob"), "refused");
  EXPECT_EQ(Confined(carol, ""), "");
  EXPECT_EQ(Confined(carol, "carol"), "");
  EXPECT_EQ(Confined(carol, "alice"), "refused");
  EXPECT_EQ(Confined(kDefaultTenant, "alice"), "alice");
}

TEST_F(TenantsTest, AnEventIsVisibleToItsTenantToWhoSharesAndToOperators) {
  const auto shows = [this](const Identity& caller, const Event& event) {
    bool shown = false;
    VisibleTo(caller, *tenants_).Apply(event, [&](const Event&) { shown = true; });
    return shown;
  };
  const auto sees = [&](const Identity& caller, TenantId owner) {
    return shows(caller, Event{.tenant = owner, .what = UpdatedEvent{}});
  };
  const Identity carol = {Role::kTenant, TenantId(3)};
  for (const TenantId owner : {kDefaultTenant, TenantId(1), TenantId(2), TenantId(3)}) {
    EXPECT_TRUE(sees(kOperator, owner)) << owner;
    EXPECT_EQ(sees(kAlice, owner), owner == TenantId(1)) << owner;
    EXPECT_EQ(sees(carol, owner), owner == TenantId(3) || owner == kDefaultTenant) << owner;
  }
  const Event reset = {.what = RemovedEvent{.scope = RemovedEvent::Scope::kWindow}};
  EXPECT_TRUE(shows(kAlice, reset)) << "its blocks are among them";
}

using Sessions = absl::Span<const SessionRef>;
std::vector<bool> Kept(Sessions sessions) { return std::vector<bool>(sessions.size(), true); }
// Turns a check of one session into the check of many that SessionOwners uses.
SessionOwners::Kept EachBy(std::function<bool(SessionRef)> kept) {
  return [kept = std::move(kept)](Sessions sessions) {
    std::vector<bool> answers;
    for (const SessionRef session : sessions) answers.push_back(kept(session));
    return answers;
  };
}
SessionRef Session(uint64_t id) { return {SessionId(id), SessionToken(id + 100)}; }

TEST(SessionOwnersTest, ATenantReachesItsOwnSessionsAlone) {
  SessionOwners owners(8);
  owners.Add(Session(1), kAlice.tenant, kAlice, Kept);
  owners.Add(Session(2), kDefaultTenant, kOperator, Kept);
  EXPECT_TRUE(owners.Check(Session(1), kAlice).ok());
  EXPECT_EQ(ReasonOf(owners.Check(Session(1), kBob)), Reason::kUnknownSession);
  EXPECT_EQ(ReasonOf(owners.Check(Session(2), kBob)), Reason::kUnknownSession);
  for (const uint64_t id : {1, 2, 3}) EXPECT_TRUE(owners.Check(Session(id), kOperator).ok());
  EXPECT_EQ(ReasonOf(owners.Check(Session(3), kBob)), Reason::kUnknownSession)
      << "a session that nobody is known to own is nobody's";
}

// A client whose token was revoked continues with another.
TEST(SessionOwnersTest, TheOpenersLastCredentialIsKnown) {
  SessionOwners owners(8);
  const auto with = [](Identity caller, uint8_t token) {
    caller.token = TokenDigest{token};
    return caller;
  };
  const auto token_of = [&](uint64_t id) { return owners.OpenerOf(SessionId(id))->token; };
  owners.Add(Session(1), kAlice.tenant, with(kAlice, 1), Kept);
  owners.Add(Session(2), kAlice.tenant, with(kOperator, 2), Kept);
  EXPECT_EQ(token_of(1), TokenDigest{1});
  EXPECT_EQ(*owners.OpenerOf(SessionId(2)), kOperator);
  EXPECT_FALSE(owners.OpenerOf(SessionId(3)).has_value());

  // Other callers' credentials do not replace the opener's, and neither does a credential of a call
  // without the session's token.
  EXPECT_FALSE(owners.Check(Session(1), with(kBob, 3)).ok());
  EXPECT_TRUE(owners.Check(Session(1), with(kOperator, 4)).ok());
  EXPECT_TRUE(owners.Check({SessionId(1), SessionToken(7)}, with(kAlice, 5)).ok());
  EXPECT_TRUE(owners.Check(Session(2), with(kAlice, 6)).ok());
  EXPECT_EQ(token_of(1), TokenDigest{1});
  EXPECT_EQ(token_of(2), TokenDigest{2});

  EXPECT_TRUE(owners.Check(Session(1), with(kAlice, 7)).ok());
  EXPECT_TRUE(owners.Check(Session(2), with(kOperator, 8)).ok());
  EXPECT_EQ(token_of(1), TokenDigest{7});
  EXPECT_EQ(token_of(2), TokenDigest{8});
  EXPECT_TRUE(owners.Check(Session(1), kAlice).ok()) << "by a certificate";
  EXPECT_EQ(token_of(1), std::nullopt);
}

TEST(SessionOwnersTest, OnlySessionsOfWhichNothingIsKeptAreForgotten) {
  SessionOwners owners(8);
  const auto is_odd = [](SessionRef session) { return session.token.low() % 2 == 1; };
  for (uint64_t id = 1; id <= 100; ++id) {
    owners.Add(Session(id), kAlice.tenant, kAlice, EachBy([&](SessionRef other) {
                 return is_odd(other) && other.id.value() + 8 > id;
               }));
    EXPECT_LE(owners.size(), 8u);
  }
  EXPECT_EQ(ReasonOf(owners.Check(Session(99), kBob)), Reason::kUnknownSession);
  EXPECT_EQ(ReasonOf(owners.Check(Session(100), kBob)), Reason::kUnknownSession);
  EXPECT_TRUE(owners.Check(Session(99), kAlice).ok());
  EXPECT_EQ(ReasonOf(owners.Check(Session(1), kAlice)), Reason::kUnknownSession) << "forgotten";
}

// The owner of a quarantined session stays known, however many sessions follow it.
TEST(SessionOwnersTest, TheOwnersOfAllThatIsKeptAreKnown) {
  SessionOwners owners(8);
  uint64_t questions = 0;
  const SessionOwners::Kept kept = EachBy([&](SessionRef session) {
    ++questions;
    return session.id.value() <= 100;
  });
  constexpr uint64_t kSessions = 10'000;
  for (uint64_t id = 1; id <= kSessions; ++id) {
    owners.Add(Session(id), kAlice.tenant, kAlice, kept);
    ASSERT_LE(owners.size(), 202u);
  }
  for (uint64_t id = 1; id <= 100; ++id) {
    ASSERT_EQ(ReasonOf(owners.Check(Session(id), kBob)), Reason::kUnknownSession);
    ASSERT_TRUE(owners.Check(Session(id), kAlice).ok());
  }
  EXPECT_LT(questions, 3 * kSessions) << "nobody is asked of all of them each time";
}

// Every call for a session looks up its owner. It must not wait for a scan of all owners.
TEST(SessionOwnersTest, ForgettingManyHoldsUpNobody) {
  constexpr size_t kMost = 5000;
  SessionOwners owners(kMost);
  size_t pieces = 0;
  std::future<size_t> meanwhile;  // Its destructor waits for the call.
  const auto none_is_kept = [&](Sessions sessions) {
    EXPECT_LE(sessions.size(), SessionOwners::kPiece);
    if (++pieces == 3) {
      meanwhile = std::async(std::launch::async, [&owners] { return owners.size(); });
      EXPECT_EQ(meanwhile.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    }
    return std::vector<bool>(sessions.size(), false);
  };
  for (uint64_t id = 1; id <= 2 * kMost; ++id) {
    owners.Add(Session(id), kAlice.tenant, kAlice, none_is_kept);
    ASSERT_LE(owners.size(), kMost + 1);
  }
  EXPECT_GT(pieces, kMost / 2 / SessionOwners::kPiece);
  EXPECT_FALSE(owners.OpenerOf(SessionId(1)).has_value()) << "the oldest are forgotten first";
  EXPECT_TRUE(owners.OpenerOf(SessionId(2 * kMost)).has_value());
}

}  // namespace
}  // namespace pagoda::server
