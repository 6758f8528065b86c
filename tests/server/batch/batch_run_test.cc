#include "server/batch/batch_run.h"

#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "google/rpc/error_details.pb.h"
#include "tests/server/held_copies.h"

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// In a daemon the server keeps gRPC initialised. Here each alarm would initialise it and shut it
// down again, and an alarm that is set during a shutdown does not fire.
[[maybe_unused]] const bool kGrpcIsUp = (grpc_init(), true);

constexpr absl::Duration kLong = absl::Seconds(30);  // Only a hang takes this long.

v1::Operation WaitOp(Ticket ticket) {
  v1::Operation operation;
  operation.mutable_wait_for_ticket()->set_ticket(ticket.value());
  return operation;
}

v1::Operation AllocateOp(uint32_t count) {
  v1::Operation operation;
  operation.mutable_allocate_blocks()->set_count(count);
  return operation;
}

class BatchRunTest : public ::testing::Test {
 protected:
  // One running batch.
  struct Running {
    v1::BatchResult result;
    absl::Status status;
    absl::Notification done;
    bool is_read = false;  // Its message is not needed any more.
    std::shared_ptr<BatchRun> run;

    void End(const absl::StatusOr<BatchAnswer>& outcome) {
      status = outcome.status();
      EXPECT_TRUE(!outcome.ok() || result.ParseFromString(**outcome));
      done.Notify();
    }

    // For each operation: "ok", or the reason of its error.
    std::vector<std::string> answers() const {
      std::vector<std::string> all;
      for (const v1::OperationResult& answer : result.results()) {
        google::rpc::ErrorInfo info;
        if (answer.has_error()) answer.error().details(0).UnpackTo(&info);
        all.push_back(answer.has_error() ? info.reason() : "ok");
      }
      return all;
    }
  };

  std::unique_ptr<Running> Start(const std::vector<v1::Operation>& operations,
                                 StepRange steps = {}) {
    return StartFor(session_, operations, steps);
  }
  std::unique_ptr<Running> StartFor(SessionRef session,
                                    const std::vector<v1::Operation>& operations,
                                    StepRange steps = {}, uint64_t retry_id = 0) {
    v1::Batch batch;
    batch.set_retry_id(retry_id);
    for (const v1::Operation& operation : operations) *batch.add_operations() = operation;
    batch.set_step(steps.step);
    batch.set_completed_step(steps.completed_step);
    auto running = std::make_unique<Running>();
    running->run = std::make_shared<BatchRun>(
        BatchRun::Context{.manager = &copies_.manager(),
                          .state = &state_,
                          .waiting = &waiting_,
                          .answers = &answers_},
        session, [r = running.get()](const auto& outcome) { r->End(outcome); });
    running->run->Start(batch, absl::HashOf(batch.SerializeAsString()), [&] {
      batch.Clear();
      running->is_read = true;
    });
    return running;
  }

  static void Await(Running& running) {
    ASSERT_TRUE(running.done.WaitForNotificationWithTimeout(kLong));
  }

  // Waits for an event after `revision`.
  void AwaitEvent(Revision revision) {
    while (copies_.manager().Read(&BlockManager::revision) == revision) {
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  HeldCopies copies_;
  const SessionRef session_ = copies_.Open();
  const Ticket ticket_ = copies_.Offload(session_, {1, 2, 3, 4, 5, 6, 7, 8});
  ServingState state_;
  BatchRun::Set waiting_;
  AnswerMemory answers_;
};

TEST_F(BatchRunTest, WithoutAWaitABatchIsAnsweredAtOnce) {
  const auto running = Start({AllocateOp(1), v1::Operation(), AllocateOp(0)});
  EXPECT_TRUE(running->done.HasBeenNotified());
  EXPECT_TRUE(running->status.ok());
  EXPECT_THAT(running->answers(), ElementsAre("ok", "INVALID_ARGUMENT", "INVALID_COUNT"));
  EXPECT_EQ(running->result.revision(), copies_.manager().Read(&BlockManager::revision).value());
}

TEST_F(BatchRunTest, ABatchSentAgainIsNotRunAgain) {
  const auto allocated = [&] {
    return copies_.manager().Read(&BlockManager::Stats).windows[0].counters.allocated_blocks;
  };
  const uint64_t before = allocated();
  const auto first = StartFor(session_, {AllocateOp(1)}, {}, 77);
  const auto again = StartFor(session_, {AllocateOp(1)}, {}, 77);
  EXPECT_TRUE(again->done.HasBeenNotified());
  EXPECT_EQ(again->result.SerializeAsString(), first->result.SerializeAsString());
  EXPECT_EQ(allocated() - before, 1u);
  EXPECT_EQ(ReasonOf(StartFor(session_, {AllocateOp(2)}, {}, 77)->status),
            Reason::kInvalidArgument);
  EXPECT_THAT(StartFor(session_, {AllocateOp(1)}, {}, 78)->answers(), ElementsAre("ok"));
  EXPECT_EQ(allocated() - before, 2u);
}

TEST_F(BatchRunTest, ABatchSentAgainWhileItWaitsGetsTheSameAnswer) {
  const auto first = StartFor(session_, {AllocateOp(1), WaitOp(ticket_)}, {}, 5);
  const auto again = StartFor(session_, {AllocateOp(1), WaitOp(ticket_)}, {}, 5);
  EXPECT_FALSE(again->done.HasBeenNotified());
  EXPECT_TRUE(again->is_read) << "what waits for another's answer holds no message";
  copies_.Finish();
  Await(*first);
  Await(*again);
  EXPECT_THAT(again->answers(), ElementsAre("ok", "ok"));
  EXPECT_EQ(again->result.SerializeAsString(), first->result.SerializeAsString());
}

TEST_F(BatchRunTest, AnAnswerIsForWhoHasTheSessionsToken) {
  StartFor(session_, {AllocateOp(1)}, {}, 77);
  const SessionRef fenced{session_.id, SessionToken{session_.token.low() + 1}};
  EXPECT_EQ(ReasonOf(StartFor(fenced, {AllocateOp(1)}, {}, 77)->status), Reason::kStaleSession);
  // What a wrong token did leaves nothing behind.
  EXPECT_EQ(ReasonOf(StartFor(fenced, {AllocateOp(2)}, {}, 77)->status), Reason::kStaleSession);
  EXPECT_THAT(StartFor(session_, {AllocateOp(1)}, {}, 77)->answers(), ElementsAre("ok"));
}

TEST_F(BatchRunTest, AnAnswerIsForALivingSession) {
  StartFor(session_, {AllocateOp(1)}, {}, 77);
  ASSERT_TRUE(copies_.manager().CloseSession(session_).ok());
  EXPECT_EQ(ReasonOf(StartFor(session_, {AllocateOp(1)}, {}, 77)->status), Reason::kStaleSession);
  EXPECT_EQ(ReasonOf(StartFor(session_, {AllocateOp(2)}, {}, 77)->status), Reason::kStaleSession);
}

TEST_F(BatchRunTest, AnEmptyBatchTellsTheStateOfTheCache) {
  const auto running = Start({});
  EXPECT_TRUE(running->done.HasBeenNotified());
  EXPECT_EQ(running->result.revision(), copies_.manager().Read(&BlockManager::revision).value());
  EXPECT_LT(running->result.completed_ticket(), ticket_.value());
}

TEST_F(BatchRunTest, TheRestRunsWhenTheCopiesAreDone) {
  const auto running = Start({AllocateOp(1), WaitOp(ticket_), AllocateOp(2)});
  EXPECT_FALSE(running->done.HasBeenNotified());
  EXPECT_EQ(waiting_.size(), 1u);
  // Another batch of the same session does not wait.
  const auto other = Start({AllocateOp(1)});
  EXPECT_TRUE(other->done.HasBeenNotified());
  copies_.Finish();
  Await(*running);
  EXPECT_TRUE(running->status.ok());
  EXPECT_THAT(running->answers(), ElementsAre("ok", "ok", "ok"));
  EXPECT_EQ(running->result.results(1).wait_for_ticket().completed_ticket(), ticket_.value());
  EXPECT_EQ(running->result.results(2).allocate_blocks().blocks().size(), 2 * sizeof(BlockHandle));
  EXPECT_EQ(running->result.completed_ticket(), ticket_.value());
  EXPECT_EQ(waiting_.size(), 0u);
}

// The end of the copies wakes the batch, not its deadline. Takes the best of three rounds, because
// a busy machine is slow to wake a thread.
TEST_F(BatchRunTest, TheRestRunsAsSoonAsTheCopiesAreDone) {
  copies_.Finish();
  absl::Duration shortest = absl::InfiniteDuration();
  for (TokenId round = 1; round <= 3; ++round) {
    const auto running = Start({WaitOp(copies_.Offload(session_, {100 * round, 2, 3, 4}))});
    EXPECT_FALSE(running->done.HasBeenNotified());
    const absl::Time end = absl::Now();
    copies_.Finish();
    Await(*running);
    shortest = std::min(shortest, absl::Now() - end);
  }
  EXPECT_LT(shortest, kMaxTicketWait / 4);
}

TEST_F(BatchRunTest, AWaitForWhatIsDoneWaitsForNothing) {
  copies_.Finish();
  const auto running = Start({WaitOp(Ticket(0)), WaitOp(ticket_), WaitOp(Ticket(1))});
  EXPECT_TRUE(running->done.HasBeenNotified());
  EXPECT_THAT(running->answers(), ElementsAre("ok", "ok", "ok"));
}

TEST_F(BatchRunTest, AnUnknownTicketFailsAtOnceAndTheOthersRun) {
  const auto running = Start({WaitOp(Ticket(ticket_.value() + 1)), AllocateOp(1)});
  EXPECT_TRUE(running->done.HasBeenNotified());
  EXPECT_THAT(running->answers(), ElementsAre("UNKNOWN_TICKET", "ok"));
}

TEST_F(BatchRunTest, WaitsOfABatchTakeOneTimeTogether) {
  const absl::Time start = absl::Now();
  const auto running = Start({WaitOp(ticket_), AllocateOp(1), WaitOp(ticket_), WaitOp(Ticket(0))});
  Await(*running);
  EXPECT_GE(absl::Now() - start, kMaxTicketWait);
  EXPECT_LT(absl::Now() - start, 2 * kMaxTicketWait);
  EXPECT_TRUE(running->status.ok());
  EXPECT_THAT(running->answers(), ElementsAre("WAIT_TIMEOUT", "ok", "WAIT_TIMEOUT", "ok"));
  EXPECT_EQ(waiting_.size(), 0u);
  // The copies finish when no batch waits for them any more.
  copies_.Finish();
}

TEST_F(BatchRunTest, EndedWaitsFailAndTheRestRuns) {
  const auto running = Start({WaitOp(ticket_), AllocateOp(1), WaitOp(ticket_)});
  running->run->EndWaits(MakeError(Reason::kDraining, "going"));
  Await(*running);
  EXPECT_THAT(running->answers(), ElementsAre("DRAINING", "ok", "DRAINING"));
  running->run->EndWaits(MakeError(Reason::kDraining, "again"));
}

// What waits behind an ended one registers nothing, and checks no content again.
TEST_F(BatchRunTest, ManyWaitsThatCannotBeginEndAtOnce) {
  std::vector<v1::Operation> operations(2000, WaitOp(ticket_));
  operations.push_back(AllocateOp(1));
  const auto running = Start(operations);
  running->run->EndWaits(ClientGone());
  Await(*running);
  EXPECT_EQ(running->result.results_size(), 2001);
  EXPECT_EQ(running->answers().back(), "ok");
}

TEST_F(BatchRunTest, TheRestOfABatchThatBeganFailsAlone) {
  copies_.Finish();
  const auto running = Start({AllocateOp(1), WaitOp(ticket_), AllocateOp(1)});
  EXPECT_TRUE(running->done.HasBeenNotified());
  EXPECT_THAT(running->answers(), ElementsAre("ok", "ok", "ok"));
}

TEST_F(BatchRunTest, WhileTheDaemonDrainsNothingWaits) {
  state_.Enter(ServingState::Phase::kDraining);
  const auto running = Start({WaitOp(ticket_), AllocateOp(1)});
  EXPECT_TRUE(running->done.HasBeenNotified());
  EXPECT_THAT(running->answers(), ElementsAre("DRAINING", "ok"));
  EXPECT_EQ(waiting_.size(), 0u);
}

TEST_F(BatchRunTest, ASessionThatEndsMeanwhileFailsOnlyWhatIsLeft) {
  const auto running = Start({AllocateOp(1), WaitOp(ticket_), v1::Operation(), AllocateOp(1)});
  ASSERT_TRUE(copies_.manager().CloseSession(session_).ok());
  copies_.Finish();
  Await(*running);
  EXPECT_TRUE(running->status.ok()) << running->status;
  EXPECT_THAT(running->answers(),
              ElementsAre("ok", "STALE_SESSION", "INVALID_ARGUMENT", "STALE_SESSION"));
  EXPECT_EQ(running->result.results(0).allocate_blocks().blocks().size(), sizeof(BlockHandle));
  EXPECT_EQ(waiting_.size(), 0u);
}

TEST_F(BatchRunTest, StepsThatGoOnMeanwhileFailOnlyWhatIsLeft) {
  const auto running =
      Start({AllocateOp(1), WaitOp(ticket_), AllocateOp(1)}, {.step = 4, .completed_step = 3});
  EXPECT_TRUE(Start({AllocateOp(1)}, {.step = 5, .completed_step = 4})->status.ok());
  copies_.Finish();
  Await(*running);
  EXPECT_TRUE(running->status.ok()) << running->status;
  EXPECT_THAT(running->answers(), ElementsAre("ok", "STEP_BACKWARDS", "STEP_BACKWARDS"));
  EXPECT_EQ(running->result.results(0).allocate_blocks().blocks().size(), sizeof(BlockHandle));
}

TEST_F(BatchRunTest, ALeaseDoesNotRunWhileItsOwnBatchWaits) {
  const absl::Duration lease = absl::Seconds(60);
  const SessionRef session = copies_.Open(lease);
  const auto running = StartFor(session, {AllocateOp(1), WaitOp(ticket_), AllocateOp(1)});
  copies_.PutClockForward(2 * lease);
  EXPECT_EQ(copies_.manager().ExpireSessions(), 0u);
  copies_.Finish();
  Await(*running);
  EXPECT_THAT(running->answers(), ElementsAre("ok", "ok", "ok"));
  // The lease runs again from the end of the wait.
  EXPECT_EQ(copies_.manager().ExpireSessions(), 0u);
  copies_.PutClockForward(lease);
  EXPECT_EQ(copies_.manager().ExpireSessions(), 1u);
}

TEST_F(BatchRunTest, AWaitThatADrainEndsAtOnceLeavesTheLeaseRunning) {
  const absl::Duration lease = absl::Seconds(60);
  const SessionRef session = copies_.Open(lease);
  state_.Enter(ServingState::Phase::kDraining);
  EXPECT_TRUE(StartFor(session, {WaitOp(ticket_)})->done.HasBeenNotified());
  copies_.PutClockForward(lease);
  EXPECT_EQ(copies_.manager().ExpireSessions(), 1u);
}

TEST_F(BatchRunTest, ASequenceThatACopyShortenedIsNamed) {
  copies_.Finish();
  // Onboards both blocks.
  const auto added = copies_.Run<AddedSequence>(
      session_, AddSequence{.sequence = SequenceId(5), .tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9}});
  ASSERT_EQ(added.matched_tokens, 8u);
  const auto running = Start({WaitOp(added.ready)});
  copies_.Finish(absl::DataLossError("the copy failed"));
  Await(*running);
  EXPECT_THAT(running->answers(), ElementsAre("ok"));
  ASSERT_EQ(running->result.shortened_size(), 1);
  EXPECT_EQ(running->result.shortened(0).sequence_id(), 5u);
  EXPECT_EQ(running->result.shortened(0).computed_tokens(), 0u);
  EXPECT_EQ(running->result.shortened(0).losses(), 1u);
  EXPECT_FALSE(running->result.shortened(0).must_be_freed());
  // Every answer names the sequence until a commit shows that the client knows of the loss.
  EXPECT_EQ(Start({})->result.shortened_size(), 1);
  const Ticket other = copies_.Offload(session_, {51, 52, 53, 54});
  v1::Operation commit;
  commit.mutable_commit_tokens()->set_sequence_id(5);
  commit.mutable_commit_tokens()->set_computed_tokens(9);
  EXPECT_THAT(Start({commit})->answers(), ElementsAre("KV_LOST"));
  commit.mutable_commit_tokens()->set_known_losses(1);
  const auto parts = Start({AllocateOp(1), WaitOp(other), commit});
  copies_.Finish();
  Await(*parts);
  EXPECT_THAT(parts->answers(), ElementsAre("ok", "ok", "ok"));
  EXPECT_EQ(parts->result.shortened_size(), 0) << "what the first part named is named no more";
}

TEST_F(BatchRunTest, StepsGoForward) {
  EXPECT_TRUE(Start({AllocateOp(1)}, {.step = 4, .completed_step = 3})->status.ok());
  const auto back = Start({AllocateOp(1)}, {.step = 3, .completed_step = 3});
  EXPECT_EQ(ReasonOf(back->status), Reason::kStepBackwards);
}

TEST_F(BatchRunTest, ABatchHasALimit) {
  const auto running = Start(std::vector<v1::Operation>(kMaxBatchOperations + 1, AllocateOp(0)));
  EXPECT_EQ(ReasonOf(running->status), Reason::kBatchTooLarge);
}

// The same for in-process callers: SharedManager::Execute blocks its caller.
TEST_F(BatchRunTest, InTheProcessTooWhatRanBeforeAWaitKeepsItsResults) {
  const std::vector<Operation> operations = {AllocateBlocks{.count = 1}, WaitForTicket{ticket_},
                                             AllocateBlocks{.count = 1}};
  SharedManager& manager = copies_.manager();
  const Revision before = manager.Read(&BlockManager::revision);
  absl::StatusOr<BatchResult> result = absl::UnknownError("not run");
  std::thread caller(
      [&] { result = manager.Execute(session_, operations, {.step = 4, .completed_step = 3}); });
  AwaitEvent(before);  // The first block is allocated.
  const Operation later = AllocateBlocks{.count = 1};
  EXPECT_TRUE(manager.Execute(session_, {&later, 1}, {.step = 5, .completed_step = 4}).ok());
  copies_.Finish();
  caller.join();
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_THAT(result->results, SizeIs(3));
  EXPECT_THAT(std::get<AllocatedBlocks>(*result->results[0]).blocks, SizeIs(1));
  EXPECT_EQ(ReasonOf(result->results[1].status()), Reason::kStepBackwards);
  EXPECT_EQ(ReasonOf(result->results[2].status()), Reason::kStepBackwards);
}

TEST_F(BatchRunTest, InTheProcessTooALeaseDoesNotRunWhileItsOwnBatchWaits) {
  const absl::Duration lease = absl::Seconds(60);
  const SessionRef session = copies_.Open(lease);
  SharedManager& manager = copies_.manager();
  const Revision before = manager.Read(&BlockManager::revision);
  const std::vector<Operation> operations = {AllocateBlocks{.count = 1}, WaitForTicket{ticket_},
                                             AllocateBlocks{.count = 1}};
  absl::StatusOr<BatchResult> result = absl::UnknownError("not run");
  std::thread caller([&] { result = manager.Execute(session, operations); });
  AwaitEvent(before);                       // The first block is allocated.
  absl::SleepFor(absl::Milliseconds(200));  // Now it waits.
  copies_.PutClockForward(2 * lease);
  EXPECT_EQ(manager.ExpireSessions(), 0u);
  copies_.Finish();
  caller.join();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->results.at(2).ok());
  copies_.PutClockForward(lease);
  EXPECT_EQ(manager.ExpireSessions(), 1u);
}

// Any call can log expirations.
TEST_F(BatchRunTest, OpeningASessionPutsWhatExpiredIntoTheLog) {
  copies_.Finish();
  SequenceRetention retention;
  retention.ranges = {{.token_start = 0,
                       .token_end = std::nullopt,
                       .retention = {.priority = Priority(80), .duration = absl::Seconds(1)}}};
  const auto set = copies_.Run<RetentionSet>(
      session_, SetRetention{{}, {1, 2, 3, 4, 5, 6, 7, 8}, std::move(retention)});
  ASSERT_EQ(set.blocks, 2u);
  const Revision before = copies_.log().last();
  copies_.PutClockForward(absl::Seconds(2));
  copies_.Open();
  EXPECT_GT(copies_.log().last(), before);
  EXPECT_EQ(copies_.log().last(), copies_.manager().Read(&BlockManager::revision));
}

// Waits, ends and copies race on several threads: each batch is answered once.
TEST_F(BatchRunTest, EndsAndCopiesMayMeet) {
  for (int round = 0; round < 200; ++round) {
    const auto running = Start({WaitOp(ticket_), AllocateOp(0), WaitOp(ticket_)});
    std::thread end([&] { running->run->EndWaits(absl::CancelledError("gone")); });
    if (round == 100) copies_.Finish();
    end.join();
    Await(*running);
    EXPECT_TRUE(running->status.ok());
    const std::string waited = running->answers()[0];
    EXPECT_TRUE(waited == "ok" || waited == "CANCELLED") << waited;
  }
  EXPECT_EQ(waiting_.size(), 0u);
}

}  // namespace
}  // namespace pagoda::server
