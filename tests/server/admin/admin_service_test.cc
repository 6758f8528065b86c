// AdminService's lists and its drain, over the wire.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/daemon.h"
#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class AdminServiceTest : public DaemonTest {
 protected:
  v1::ListSessionsResponse Sessions(uint32_t page_size = 0, const std::string& page_token = "") {
    v1::ListSessionsRequest request;
    request.set_page_size(page_size);
    request.set_page_token(page_token);
    v1::ListSessionsResponse response;
    const grpc::Status status = admin().ListSessions(NewContext().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  v1::ListSequencesResponse Sequences(uint64_t session, uint32_t page_size = 0,
                                      const std::string& page_token = "") {
    v1::ListSequencesRequest request;
    request.set_session_id(session);
    request.set_page_size(page_size);
    request.set_page_token(page_token);
    v1::ListSequencesResponse response;
    const grpc::Status status = admin().ListSequences(NewContext().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  grpc::Status Inspect(const std::vector<uint32_t>& tokens, v1::InspectPrefixResponse* response) {
    v1::InspectPrefixRequest request;
    request.mutable_tokens()->Add(tokens.begin(), tokens.end());
    return admin().InspectPrefix(NewContext().get(), request, response);
  }
};

TEST_F(AdminServiceTest, ASessionIsListedWithWhatItHas) {
  const v1::SessionRef session = Open(5'000).session();
  Allocate(session, 3);
  ASSERT_FALSE(Run(session, AddOp(1, TokensTo(5))).has_error());
  const v1::ListSessionsResponse list = Sessions();
  ASSERT_THAT(list.sessions(), SizeIs(1));
  const v1::SessionInfo& info = list.sessions(0);
  EXPECT_EQ(info.session_id(), session.session_id());
  EXPECT_EQ(info.client_name(), "test");
  EXPECT_EQ(info.lease().seconds(), 5);
  EXPECT_LE(info.lease_left().seconds(), 5);
  EXPECT_TRUE(info.has_lease_left());
  EXPECT_GE(info.open_time().seconds(), Status().start_time().seconds());
  EXPECT_EQ(info.raw_blocks(), 3u);
  EXPECT_EQ(info.sequences(), 1u);
  EXPECT_EQ(list.next_page_token(), "");
  ASSERT_TRUE(Close(session).ok());
  EXPECT_THAT(Sessions().sessions(), SizeIs(0));
}

TEST_F(AdminServiceTest, PagesHoldEachSessionOnce) {
  std::set<uint64_t> opened;
  for (int i = 0; i < 250; ++i) opened.insert(OpenRef().session_id());
  std::set<uint64_t> listed;
  std::vector<int> pages;
  v1::ListSessionsResponse page;
  do {
    page = Sessions(/*page_size=*/0, page.next_page_token());
    pages.push_back(page.sessions_size());
    for (const v1::SessionInfo& info : page.sessions()) {
      EXPECT_TRUE(listed.insert(info.session_id()).second) << info.session_id();
    }
  } while (!page.next_page_token().empty());
  EXPECT_THAT(pages, ElementsAre(100, 100, 50));
  EXPECT_EQ(listed, opened);
  EXPECT_THAT(Sessions(250).sessions(), SizeIs(250));
  EXPECT_EQ(Sessions(250).next_page_token(), "") << "a full page may be the last one";
}

TEST_F(AdminServiceTest, SequencesAreListedInPagesAndBySession) {
  const v1::SessionRef first = OpenRef(), second = OpenRef();
  CacheTokens(first, TokensTo(8));
  for (const uint64_t sequence : {3, 1, 2}) {
    ASSERT_FALSE(Run(first, AddOp(sequence, TokensTo(10))).has_error());
  }
  ASSERT_FALSE(Run(second, AddOp(7, {9, 9})).has_error());
  std::vector<uint64_t> names;
  v1::ListSequencesResponse page;
  do {
    page = Sequences(0, /*page_size=*/3, page.next_page_token());
    for (const v1::SequenceInfo& info : page.sequences()) names.push_back(info.sequence_id());
  } while (!page.next_page_token().empty());
  EXPECT_THAT(names, ElementsAre(1, 2, 3, 7));

  const v1::ListSequencesResponse of_first = Sequences(first.session_id());
  ASSERT_THAT(of_first.sequences(), SizeIs(3));
  const v1::SequenceInfo& info = of_first.sequences(0);
  EXPECT_EQ(info.session_id(), first.session_id());
  EXPECT_EQ(info.client_name(), "test");
  EXPECT_EQ(info.matched_tokens(), 8u);
  EXPECT_EQ(info.computed_tokens(), 8u);
  EXPECT_EQ(info.token_count(), 10u);
  EXPECT_EQ(info.reserved_tokens(), 10u);
  EXPECT_EQ(info.blocks(), 3u);
  EXPECT_THAT(Sequences(second.session_id()).sequences(), SizeIs(1));
  EXPECT_THAT(Sequences(12345).sequences(), SizeIs(0));
}

TEST_F(AdminServiceTest, AMadeUpPageTokenIsRefused) {
  v1::ListSessionsRequest sessions;
  sessions.set_page_token("more");
  v1::ListSessionsResponse ignored;
  EXPECT_EQ(InfoOf(admin().ListSessions(NewContext().get(), sessions, &ignored)).reason(),
            "INVALID_ARGUMENT");
  v1::ListSequencesRequest sequences;
  sequences.set_page_token("more");
  v1::ListSequencesResponse ignored_too;
  EXPECT_EQ(InfoOf(admin().ListSequences(NewContext().get(), sequences, &ignored_too)).reason(),
            "INVALID_ARGUMENT");
}

TEST_F(AdminServiceTest, APrefixIsInspectedBlockForBlock) {
  const v1::SessionRef session = OpenRef();
  CacheTokens(session, TokensTo(10));
  v1::InspectPrefixResponse response;
  ASSERT_TRUE(Inspect(TokensTo(9), &response).ok());
  EXPECT_EQ(response.matched_tokens(), 9u);
  ASSERT_THAT(response.blocks(), SizeIs(3));
  // The same handles as in a match.
  const v1::MatchPrefixResult match = Run(session, MatchOp(TokensTo(10))).match_prefix();
  const std::vector<BlockHandle> matched = HandlesOf(match.blocks());
  ASSERT_THAT(matched, SizeIs(3));
  for (int i = 0; i < 3; ++i) {
    const v1::InspectedBlock& block = response.blocks(i);
    EXPECT_EQ(block.block().block_id(), matched[i].id.value());
    EXPECT_EQ(block.block().generation(), matched[i].generation.value());
    EXPECT_EQ(block.block().slot_index(), matched[i].slot.value());
    EXPECT_EQ(block.tier(), v1::TIER_PRIMARY);
    EXPECT_EQ(block.token_start(), 4u * i);
    EXPECT_EQ(block.token_count(), i == 2 ? 1u : 4u);
    EXPECT_EQ(block.priority(), 35u);
    EXPECT_EQ(block.holders(), 0u);
    EXPECT_FALSE(block.pinned());
    EXPECT_NE(block.hash(), 0u);
  }
  EXPECT_EQ(InfoOf(Inspect({}, &response)).reason(), "INVALID_COUNT");
}

TEST_F(AdminServiceTest, WithoutAHookADrainIsRefused) {
  v1::DrainResponse response;
  const grpc::Status status = admin().Drain(NewContext().get(), {}, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_FALSE(Status().draining());
}

TEST(DrainRequestTest, IsPassedOnOnce) {
  std::atomic<int> requests = 0;
  const Config config = TestConfig();
  const auto daemon = Daemon::Start(config, [&requests] { ++requests; });
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const auto admin = v1::AdminService::NewStub(grpc::CreateChannel(
      absl::StrCat("unix:", config.server.unix_socket), grpc::InsecureChannelCredentials()));
  for (int i = 0; i < 3; ++i) {
    v1::DrainResponse response;
    EXPECT_TRUE(admin->Drain(NewContext().get(), {}, &response).ok());
  }
  EXPECT_EQ(requests, 1);
}

}  // namespace
}  // namespace pagoda::server
