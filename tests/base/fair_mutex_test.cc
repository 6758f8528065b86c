#include "base/fair_mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace pagoda {
namespace {

TEST(FairMutexTest, WhoWaitsHasHadTheMutexWhenItsHolderHasLetOthersIn) {
  FairMutex mutex;
  for (int round = 0; round < 200; ++round) {
    bool had_it = false;
    mutex.Lock();
    EXPECT_FALSE(mutex.wanted());
    std::thread other([&] {
      const FairMutexLock lock(&mutex);
      had_it = true;
    });
    while (!mutex.wanted()) std::this_thread::yield();
    // The first time, the thread can still be on its way to the gate. The second time it is there.
    mutex.LetOthersIn();
    while (!had_it && mutex.wanted()) mutex.LetOthersIn();
    EXPECT_TRUE(had_it);
    mutex.Unlock();
    other.join();
  }
}

TEST(FairMutexTest, OneHasItAtATimeWhateverTheyDo) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 20'000;
  FairMutex mutex;
  int counted = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const FairMutexLock lock(&mutex);
        const int before = counted;
        if (mutex.wanted()) {
          mutex.LetOthersIn();
          ++counted;
        } else {
          counted = before + 1;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counted, kThreads * kRounds);
  EXPECT_FALSE(mutex.wanted());
}

}  // namespace
}  // namespace pagoda
