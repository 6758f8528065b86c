#include "server/batch/answer_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"

namespace pagoda::server {
namespace {

using Begun = AnswerMemory::Begun;
using ::testing::ElementsAre;

constexpr SessionRef kSession{SessionId{1}, SessionToken{7}};
constexpr SessionRef kOther{SessionId{2}, SessionToken{8}};

BatchAnswer AnswerWith(char content, size_t bytes = 1) {
  return std::make_shared<const std::string>(bytes, content);
}

class AnswerMemoryTest : public ::testing::Test {
 protected:
  Begun Begin(SessionRef session, uint64_t retry_id, uint64_t fingerprint = 1) {
    const auto begun = memory_.Begin(session, retry_id, fingerprint, &answer_,
                                     [](const auto&) { FAIL() << "nobody waits"; });
    EXPECT_TRUE(begun.ok()) << begun.status();
    return begun.value_or(Begun::kWaits);
  }
  void Run(SessionRef session, uint64_t retry_id, const BatchAnswer& answer) {
    ASSERT_EQ(Begin(session, retry_id), Begun::kRun);
    memory_.End(session, retry_id, answer);
  }

  AnswerMemory memory_{3 << 20};
  BatchAnswer answer_;
};

TEST_F(AnswerMemoryTest, ABatchSentAgainGetsTheFirstAnswer) {
  const BatchAnswer first = AnswerWith('a');
  Run(kSession, 5, first);
  EXPECT_EQ(Begin(kSession, 5), Begun::kAnswered);
  EXPECT_EQ(answer_, first) << "the same bytes, not a copy";
  EXPECT_EQ(Begin(kSession, 6), Begun::kRun);
}

TEST_F(AnswerMemoryTest, SessionsHaveTheirOwnIds) {
  Run(kSession, 5, AnswerWith('a'));
  EXPECT_EQ(Begin(kOther, 5), Begun::kRun);
}

TEST_F(AnswerMemoryTest, AnotherTokenFindsNoAnswer) {
  Run(kSession, 5, AnswerWith('a'));
  const SessionRef wrong{kSession.id, kOther.token};
  EXPECT_EQ(Begin(wrong, 5, /*fingerprint=*/2), Begun::kRun);
  memory_.End(wrong, 5, absl::UnavailableError("the session's token is another one"));
  EXPECT_EQ(Begin(kSession, 5), Begun::kAnswered);
}

TEST_F(AnswerMemoryTest, AnotherBatchUnderAUsedIdIsRefused) {
  Run(kSession, 5, AnswerWith('a'));
  const auto begun = memory_.Begin(kSession, 5, /*fingerprint=*/2, &answer_, nullptr);
  EXPECT_EQ(ReasonOf(begun.status()), Reason::kInvalidArgument);
}

TEST_F(AnswerMemoryTest, WhoeverComesWhileTheFirstRunsGetsItsAnswer) {
  ASSERT_EQ(Begin(kSession, 5), Begun::kRun);
  std::vector<BatchAnswer> answers;
  for (int i = 0; i < 3; ++i) {
    const auto begun = memory_.Begin(kSession, 5, 1, &answer_, [&](const auto& outcome) {
      ASSERT_TRUE(outcome.ok());
      answers.push_back(*outcome);
    });
    ASSERT_TRUE(begun.ok());
    EXPECT_EQ(*begun, Begun::kWaits);
  }
  EXPECT_TRUE(answers.empty());
  const BatchAnswer first = AnswerWith('a');
  memory_.End(kSession, 5, first);
  EXPECT_THAT(answers, ElementsAre(first, first, first));
}

TEST_F(AnswerMemoryTest, WhatFailedAsAWholeRunsAgain) {
  ASSERT_EQ(Begin(kSession, 5), Begun::kRun);
  memory_.End(kSession, 5, absl::UnavailableError("planted"));
  EXPECT_EQ(Begin(kSession, 5), Begun::kRun);
}

TEST_F(AnswerMemoryTest, TheOldestAnswerIsForgottenFirst) {
  for (uint64_t id = 1; id <= AnswerMemory::kMostAnswers + 1; ++id) {
    Run(kSession, id, AnswerWith('x'));
  }
  EXPECT_EQ(Begin(kSession, 1), Begun::kRun);
  EXPECT_EQ(Begin(kSession, 2), Begun::kAnswered);
}

TEST_F(AnswerMemoryTest, ASessionsAnswersAreBoundedInBytes) {
  const size_t half = AnswerMemory::kMostBytes / 2 - 100;
  for (uint64_t id = 1; id <= 3; ++id) Run(kSession, id, AnswerWith('x', half));
  EXPECT_LE(memory_.bytes(), AnswerMemory::kMostBytes);
  EXPECT_EQ(Begin(kSession, 1), Begun::kRun);
  EXPECT_EQ(Begin(kSession, 3), Begun::kAnswered);
  Run(kSession, 9, AnswerWith('x', AnswerMemory::kMostBytes + 1));
  EXPECT_EQ(Begin(kSession, 9), Begun::kRun) << "too large to be kept";
}

TEST_F(AnswerMemoryTest, AllAnswersAreBoundedInBytesAtTheCostOfThoseWhoHaveMost) {
  const size_t most = AnswerMemory::kMostBytes - 100;
  const SessionRef small{SessionId{9}, SessionToken{9}};
  Run(small, 1, AnswerWith('x', 1000));
  for (uint64_t s = 1; s <= 5; ++s) {
    Run({SessionId{s}, SessionToken{s}}, 1, AnswerWith('x', most));
  }
  EXPECT_LE(memory_.bytes(), size_t{3} << 20);
  EXPECT_GT(memory_.bytes(), size_t{2} << 20);
  EXPECT_EQ(Begin(small, 1), Begun::kAnswered) << "it had little";
  EXPECT_EQ(Begin({SessionId{5}, SessionToken{5}}, 1), Begun::kAnswered) << "it is the newest";
}

TEST_F(AnswerMemoryTest, AnAnswerThatIsNotKeptForgetsNoOther) {
  for (uint64_t id = 1; id <= AnswerMemory::kMostAnswers; ++id) {
    Run(kSession, id, AnswerWith('x', 1000));
  }
  Run(kSession, 1000, AnswerWith('x', AnswerMemory::kMostBytes + 1));
  ASSERT_EQ(Begin(kSession, 1001), Begun::kRun);
  memory_.End(kSession, 1001, absl::UnavailableError("planted"));
  EXPECT_EQ(Begin(kSession, 1), Begun::kAnswered);
}

// A search of every session for each forgotten answer would take minutes.
TEST_F(AnswerMemoryTest, ManySessionsWithFullMemoryCostLittle) {
  AnswerMemory memory{1 << 20};
  const BatchAnswer answer = AnswerWith('x', 100);
  for (uint64_t s = 1; s <= 300'000; ++s) {
    const SessionRef session{SessionId{s % 20'000 + 1}, SessionToken{s % 20'000}};
    BatchAnswer unused;
    ASSERT_EQ(memory.Begin(session, s, 1, &unused, nullptr).value(), Begun::kRun);
    memory.End(session, s, answer);
  }
  EXPECT_LE(memory.bytes(), size_t{1} << 20);
  EXPECT_GT(memory.bytes(), size_t{1} << 19);
}

TEST_F(AnswerMemoryTest, EndedSessionsAreSweptAway) {
  Run(kSession, 5, AnswerWith('a'));
  Run(kOther, 5, AnswerWith('b'));
  ASSERT_EQ(Begin(kSession, 6), Begun::kRun);
  memory_.Sweep([](SessionRef session) { return session.id == kOther.id; });
  EXPECT_EQ(Begin(kOther, 5), Begun::kAnswered);
  EXPECT_EQ(Begin(kSession, 5), Begun::kRun);
  memory_.End(kSession, 6, AnswerWith('c'));  // It was running all the time.
}

}  // namespace
}  // namespace pagoda::server
