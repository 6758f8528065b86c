#include "engine/turn_queue.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

namespace pagoda {
namespace {

TEST(TurnQueueTest, LetsThreadsThroughInTheOrderOfArrival) {
  TurnQueue queue;
  EXPECT_EQ(queue.lengths().running, 0u);
  std::optional<TurnQueue::Turn> first = queue.Wait();
  EXPECT_EQ(queue.lengths().running, 1u);

  constexpr uint64_t kThreads = 8;
  std::vector<uint64_t> order;  // Guarded by the turn.
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const TurnQueue::Turn turn = queue.Wait();
      order.push_back(i);
    });
    while (queue.lengths().waiting < i + 1) std::this_thread::yield();
  }
  first.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, std::vector<uint64_t>({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(queue.lengths().running, 0u);
  EXPECT_EQ(queue.lengths().waiting, 0u);
}

}  // namespace
}  // namespace pagoda
