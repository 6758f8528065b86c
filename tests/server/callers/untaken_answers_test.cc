#include "server/callers/untaken_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr size_t kMost = 20;
constexpr size_t kTenants = 3;  // With the operators and the strangers, a part is 2 of 20.
constexpr size_t kMostOfOne = 12;
constexpr Identity kUntakenAlice = {Role::kTenant, TenantId(1)};
constexpr Identity kUntakenBob = {Role::kTenant, TenantId(2)};
constexpr Identity kUntakenOperator = {.role = Role::kOperator};
constexpr absl::Duration kTick = absl::Milliseconds(20);

class UntakenAnswersTest : public ::testing::Test {
 protected:
  // An answered call. It goes on until it is popped from calls_.
  void AddAnswer(std::optional<Identity> caller) {
    calls_.emplace_back(&answers_, &contexts_.emplace_back());
    if (caller.has_value()) calls_.back().SetCaller(*caller);
    calls_.back().SetAnswered();
  }
  // The numbers of the calls that are cancelled after the next tick.
  std::vector<int> Tick(absl::Duration after = kTick) {
    now_ += after;
    answers_.CancelSome(now_);
    return std::exchange(cancelled_, {});
  }

  std::deque<grpc::CallbackServerContext> contexts_;  // In the order of the calls.
  std::vector<int> cancelled_;
  absl::Time now_ = absl::UnixEpoch();
  UntakenAnswers answers_{kMost, kTenants, [this](grpc::ServerContextBase* context) {
                            for (int i = 0; i < static_cast<int>(contexts_.size()); ++i) {
                              if (&contexts_[i] == context) cancelled_.push_back(i);
                            }
                          }};
  std::deque<UntakenAnswers::Call> calls_;
};

TEST_F(UntakenAnswersTest, AnAnswerHasAMinute) {
  AddAnswer(kUntakenAlice);
  EXPECT_THAT(Tick(), IsEmpty());
  AddAnswer(kUntakenBob);
  EXPECT_THAT(Tick(UntakenAnswers::kDeadline), IsEmpty());
  EXPECT_THAT(Tick(), ElementsAre(0));
  EXPECT_THAT(Tick(), IsEmpty()) << "once";
  EXPECT_THAT(Tick(UntakenAnswers::kDeadline), ElementsAre(1));
}

TEST_F(UntakenAnswersTest, ACallThatIsNotAnsweredHasNoDeadline) {
  UntakenAnswers::InterceptedCall call(&answers_, &contexts_.emplace_back());
  Tick();
  EXPECT_THAT(Tick(absl::Hours(1)), IsEmpty());
  call.SetAnswered();
  Tick();
  EXPECT_THAT(Tick(absl::Hours(1)), ElementsAre(0));
}

TEST_F(UntakenAnswersTest, TheOldestAnswersBeyondTheShareOfTheirCallerAreCancelled) {
  AddAnswer(kUntakenBob);
  for (size_t i = 0; i < kMostOfOne + 3; ++i) AddAnswer(kUntakenAlice);
  EXPECT_THAT(Tick(), UnorderedElementsAre(1, 2, 3)) << "not the older one of another caller";
  for (size_t i = 0; i < 2; ++i) AddAnswer(kUntakenAlice);
  EXPECT_THAT(Tick(), UnorderedElementsAre(4, 5));
}

TEST_F(UntakenAnswersTest, TheOperatorsAndTheStrangersHaveSharesToo) {
  for (int i = 0; i < 40; ++i) AddAnswer(std::nullopt);
  EXPECT_EQ(Tick().size(), 40 - kMostOfOne);
  AddAnswer(kUntakenOperator);
  AddAnswer(kUntakenAlice);
  EXPECT_THAT(Tick(), IsEmpty());
}

TEST_F(UntakenAnswersTest, AnAnswerThatWasTakenIsForgotten) {
  for (size_t i = 0; i < kMostOfOne; ++i) AddAnswer(kUntakenAlice);
  Tick();
  calls_.clear();
  for (size_t i = 0; i < kMostOfOne; ++i) AddAnswer(kUntakenAlice);
  EXPECT_THAT(Tick(UntakenAnswers::kDeadline + kTick), IsEmpty());
}

TEST_F(UntakenAnswersTest, AMovedCallEndsOnce) {
  std::optional<UntakenAnswers::Call> first(std::in_place, &answers_, &contexts_.emplace_back());
  first->SetCaller(kUntakenAlice);
  UntakenAnswers::Call second = *std::move(first);
  second.SetAnswered();
  first.reset();
  Tick();
  EXPECT_THAT(Tick(absl::Hours(1)), ElementsAre(0));
}

TEST_F(UntakenAnswersTest, TheHandlerNamesTheCallerOfAnInterceptedCall) {
  std::deque<UntakenAnswers::InterceptedCall> calls;
  for (size_t i = 0; i < kMostOfOne + 1; ++i) {
    calls.emplace_back(&answers_, &contexts_.emplace_back());
    answers_.SetCaller(&contexts_.back(), i % 2 == 0 ? kUntakenAlice : kUntakenBob);
    calls.back().SetAnswered();
  }
  EXPECT_THAT(Tick(), IsEmpty()) << "two callers";
  calls.front().End();
  answers_.SetCaller(&contexts_.front(), kUntakenBob);
  calls.front().SetAnswered();
  Tick();
  EXPECT_EQ(Tick(absl::Hours(1)).size(), kMostOfOne) << "an ended call is not cancelled";
}

// gRPC ends a call while another thread cancels it. The context lives until that is over.
TEST(UntakenAnswersThreadTest, ACallDoesNotEndWhileItIsCancelled) {
  absl::Notification cancelling;
  std::atomic<bool> ended = false, ended_early = false;
  UntakenAnswers answers(1, 1, [&](grpc::ServerContextBase*) {
    cancelling.Notify();
    absl::SleepFor(absl::Milliseconds(50));  // Now the other thread waits.
    ended_early = ended.load();
  });
  grpc::CallbackServerContext context;
  std::optional<UntakenAnswers::Call> call(std::in_place, &answers, &context);
  call->SetAnswered();
  answers.CancelSome(absl::UnixEpoch());
  std::thread canceller([&] { answers.CancelSome(absl::UnixEpoch() + absl::Hours(1)); });
  cancelling.WaitForNotification();
  call.reset();
  ended = true;
  canceller.join();
  EXPECT_FALSE(ended_early);
}

// TryCancel can end the call on the same thread.
TEST(UntakenAnswersThreadTest, ACallCanEndOnTheThreadThatCancelsIt) {
  std::optional<UntakenAnswers::Call> call;
  UntakenAnswers answers(1, 1, [&](grpc::ServerContextBase*) { call.reset(); });
  grpc::CallbackServerContext context;
  call.emplace(&answers, &context);
  call->SetAnswered();
  answers.CancelSome(absl::UnixEpoch());
  answers.CancelSome(absl::UnixEpoch() + absl::Hours(1));
  EXPECT_FALSE(call.has_value());
}

TEST(UntakenAnswersThreadTest, CallsOfManyThreadsBeginAndEndWhileSomeAreCancelled) {
  constexpr int kThreads = 4, kCalls = 5000;
  std::atomic<int> cancelled = 0;
  UntakenAnswers answers(8, 1, [&](grpc::ServerContextBase* context) {
    EXPECT_EQ(context->deadline(), std::chrono::system_clock::time_point::max()) << "it lives";
    ++cancelled;
  });
  std::atomic<int> running = kThreads;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      std::deque<grpc::CallbackServerContext> contexts;
      std::deque<UntakenAnswers::Call> calls;
      for (int i = 0; i < kCalls || cancelled == 0; ++i) {
        calls.emplace_back(&answers, &contexts.emplace_back()).SetAnswered();
        if (calls.size() < 16) continue;
        calls.pop_front();
        contexts.pop_front();
      }
      --running;
    });
  }
  absl::Time now = absl::UnixEpoch();
  while (running > 0) answers.CancelSome(now += kTick);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(cancelled, 0);
}

}  // namespace
}  // namespace pagoda::server
