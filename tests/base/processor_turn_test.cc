#include "base/processor_turn.h"

#include <gtest/gtest.h>

#include <atomic>
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

TEST(ProcessorTurnTest, TheWaitForAMutexIsNoPartOfATurn) {
  FairMutex mutex;
  std::atomic<bool> locked = false;
  std::chrono::steady_clock::time_point given_up;
  std::thread thread([&] {
    FairMutexLock lock(&mutex);
    locked = true;
    BeginProcessorTurn();
    while (!mutex.wanted()) {
    }
    mutex.LetOthersIn();
    WorkUntilOver();  // At once, if the wait counted.
    EXPECT_GE(std::chrono::steady_clock::now() - given_up,
              absl::ToChronoMicroseconds(kProcessorTurn));
  });
  while (!locked) {
  }
  {
    FairMutexLock lock(&mutex);
    std::this_thread::sleep_for(2 * absl::ToChronoMicroseconds(kProcessorTurn));
    given_up = std::chrono::steady_clock::now();
  }
  thread.join();
}

TEST(ProcessorTurnTest, ATurnIsNotRestartedOnAThreadThatTakesNone) {
  OnThread([] {
    RestartProcessorTurn();
    std::this_thread::sleep_for(2 * absl::ToChronoMicroseconds(kProcessorTurn));
    EXPECT_FALSE(ProcessorTurnIsOver());
  });
}

}  // namespace
}  // namespace pagoda
