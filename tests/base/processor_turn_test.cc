#include "base/processor_turn.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/fair_mutex.h"

namespace pagoda {
namespace {

// On a thread of its own, because other tests' threads take no turns.
template <class Body>
void OnThread(Body body) {
  std::thread(body).join();
}

void WorkUntilOver() {
  while (!ProcessorTurnIsOver()) {
  }
}

TEST(ProcessorTurnTest, AThreadThatTakesNoTurnsNeverEndsOne) {
  OnThread([] { BeginProcessorTurn(); });  // Another thread's turn is its own.
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(ProcessorTurnIsOver());
  EndProcessorTurnIfOver();
  EXPECT_FALSE(ProcessorTurnIsOver());
}

TEST(ProcessorTurnTest, ATurnTakesItsTimeAndTheNextBeginsAtItsEnd) {
  OnThread([] {
    BeginProcessorTurn();
    WorkUntilOver();
    for (int turn = 0; turn < 3; ++turn) {
      const auto end = std::chrono::steady_clock::now();
      EndProcessorTurnIfOver();
      WorkUntilOver();  // At once, if the next turn had not begun.
      EXPECT_GE(std::chrono::steady_clock::now() - end, absl::ToChronoMicroseconds(kProcessorTurn))
          << "turn " << turn;
    }
  });
}

TEST(ProcessorTurnTest, AThreadThatLetsOthersIntoAMutexEndsItsTurn) {
  OnThread([] {
    FairMutex mutex;
    FairMutexLock lock(&mutex);
    BeginProcessorTurn();
    WorkUntilOver();
    const auto end = std::chrono::steady_clock::now();
    mutex.LetOthersIn();
    WorkUntilOver();  // At once, if the turn had not ended.
    EXPECT_GE(std::chrono::steady_clock::now() - end, absl::ToChronoMicroseconds(kProcessorTurn));
  });
}

}  // namespace
}  // namespace pagoda
