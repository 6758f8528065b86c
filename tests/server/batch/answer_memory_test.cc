#include "server/batch/answer_memory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace pagoda::server {
namespace {

using Begun = AnswerMemory::Begun;

constexpr SessionRef kSession{SessionId{1}, SessionToken{7}};
constexpr SessionRef kOther{SessionId{2}, SessionToken{8}};

v1::BatchResult AnswerWith(uint64_t revision, size_t bytes = 0) {
  v1::BatchResult answer;
  answer.set_revision(revision);
  if (bytes > 0) answer.add_results()->mutable_error()->set_message(std::string(bytes, 'x'));
  return answer;
}

class AnswerMemoryTest : public ::testing::Test {
 protected:
  Begun Begin(SessionRef session, uint64_t retry_id, uint64_t fingerprint = 1) {
    const auto begun = memory_.Begin(session, retry_id, fingerprint, &out_,
                                     [](const absl::Status&) { FAIL() << "nobody waits"; });
    EXPECT_TRUE(begun.ok()) << begun.status();
    return begun.value_or(Begun::kWaits);
  }
  void Run(SessionRef session, uint64_t retry_id, const v1::BatchResult& answer) {
    ASSERT_EQ(Begin(session, retry_id), Begun::kRun);
    memory_.End(session, retry_id, absl::OkStatus(), answer);
  }

  AnswerMemory memory_{3 << 20};
  v1::BatchResult out_;
};

TEST_F(AnswerMemoryTest, ABatchSentAgainGetsTheFirstAnswer) {
  Run(kSession, 5, AnswerWith(42));
  EXPECT_EQ(Begin(kSession, 5), Begun::kAnswered);
  EXPECT_EQ(out_.revision(), 42u);
  EXPECT_EQ(Begin(kSession, 6), Begun::kRun);
}

TEST_F(AnswerMemoryTest, SessionsHaveTheirOwnIds) {
  Run(kSession, 5, AnswerWith(42));
  EXPECT_EQ(Begin(kOther, 5), Begun::kRun);
}

TEST_F(AnswerMemoryTest, AnotherBatchUnderAUsedIdIsRefused) {
  Run(kSession, 5, AnswerWith(42));
  const auto begun = memory_.Begin(kSession, 5, /*fingerprint=*/2, &out_, nullptr);
  EXPECT_EQ(ReasonOf(begun.status()), Reason::kInvalidArgument);
}

TEST_F(AnswerMemoryTest, WhoeverComesWhileTheFirstRunsGetsItsAnswer) {
  ASSERT_EQ(Begin(kSession, 5), Begun::kRun);
  std::vector<v1::BatchResult> outs(3);
  size_t answered = 0;
  for (v1::BatchResult& out : outs) {
    const auto begun = memory_.Begin(kSession, 5, 1, &out, [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok());
      ++answered;
    });
    ASSERT_TRUE(begun.ok());
    EXPECT_EQ(*begun, Begun::kWaits);
  }
  EXPECT_EQ(answered, 0u);
  memory_.End(kSession, 5, absl::OkStatus(), AnswerWith(9));
  EXPECT_EQ(answered, 3u);
  for (const v1::BatchResult& out : outs) EXPECT_EQ(out.revision(), 9u);
}

TEST_F(AnswerMemoryTest, WhatFailedAsAWholeRunsAgain) {
  ASSERT_EQ(Begin(kSession, 5), Begun::kRun);
  memory_.End(kSession, 5, absl::UnavailableError("planted"), {});
  EXPECT_EQ(Begin(kSession, 5), Begun::kRun);
}

TEST_F(AnswerMemoryTest, TheOldestAnswerIsForgottenFirst) {
  for (uint64_t id = 1; id <= AnswerMemory::kMostAnswers + 1; ++id) {
    Run(kSession, id, AnswerWith(id));
  }
  EXPECT_EQ(Begin(kSession, 1), Begun::kRun);
  EXPECT_EQ(Begin(kSession, 2), Begun::kAnswered);
}

TEST_F(AnswerMemoryTest, ASessionsAnswersAreBoundedInBytes) {
  const size_t half = AnswerMemory::kMostBytes / 2 - 100;
  for (uint64_t id = 1; id <= 3; ++id) Run(kSession, id, AnswerWith(id, half));
  EXPECT_LE(memory_.bytes(), AnswerMemory::kMostBytes);
  EXPECT_EQ(Begin(kSession, 1), Begun::kRun);
  EXPECT_EQ(Begin(kSession, 3), Begun::kAnswered);
  Run(kSession, 9, AnswerWith(9, AnswerMemory::kMostBytes + 1));
  EXPECT_EQ(Begin(kSession, 9), Begun::kRun) << "too large to be kept";
}

TEST_F(AnswerMemoryTest, AllAnswersAreBoundedInBytesAtTheCostOfThoseWhoHaveMost) {
  const size_t most = AnswerMemory::kMostBytes - 100;
  const SessionRef small{SessionId{9}, SessionToken{9}};
  Run(small, 1, AnswerWith(9, 1000));
  for (uint64_t s = 1; s <= 5; ++s) {
    Run({SessionId{s}, SessionToken{s}}, 1, AnswerWith(s, most));
  }
  EXPECT_LE(memory_.bytes(), size_t{3} << 20);
  EXPECT_GT(memory_.bytes(), size_t{2} << 20);
  EXPECT_EQ(Begin(small, 1), Begun::kAnswered) << "it had little";
  EXPECT_EQ(Begin({SessionId{5}, SessionToken{5}}, 1), Begun::kAnswered) << "it is the newest";
}

TEST_F(AnswerMemoryTest, EndedSessionsAreSweptAway) {
  Run(kSession, 5, AnswerWith(42));
  Run(kOther, 5, AnswerWith(43));
  ASSERT_EQ(Begin(kSession, 6), Begun::kRun);
  memory_.Sweep([](SessionRef session) { return session.id == kOther.id; });
  EXPECT_EQ(Begin(kOther, 5), Begun::kAnswered);
  EXPECT_EQ(Begin(kSession, 5), Begun::kRun);
  memory_.End(kSession, 6, absl::OkStatus(), AnswerWith(1));  // It was running all the time.
}

}  // namespace
}  // namespace pagoda::server
