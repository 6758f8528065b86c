#include "kernels/execution/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

namespace pagoda::kernels::cpu {
namespace {

TEST(ThreadPoolTest, EachWorkerRunsOnceOnAThreadOfItsOwn) {
  for (const uint32_t num_threads : {1u, 2u, 5u}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    std::vector<std::thread::id> threads(num_threads);
    std::vector<int> runs(num_threads);
    pool.Run([&](uint32_t w) {
      threads[w] = std::this_thread::get_id();
      ++runs[w];
    });
    EXPECT_EQ(threads[0], std::this_thread::get_id());
    for (uint32_t w = 0; w < num_threads; ++w) {
      EXPECT_EQ(runs[w], 1);
      for (uint32_t other = 0; other < w; ++other) EXPECT_NE(threads[w], threads[other]);
    }
  }
}

TEST(ThreadPoolTest, WhatOneCallWroteTheNextOneSees) {
  ThreadPool pool(4);
  std::vector<uint64_t> numbers(4, 0);
  for (uint64_t round = 1; round <= 2000; ++round) {
    // Each worker reads the value that its neighbour wrote in the previous round.
    std::vector<uint64_t> before = numbers;
    pool.Run([&](uint32_t w) { numbers[w] = before[(w + 1) % 4] + 1; });
    for (const uint64_t number : numbers) ASSERT_EQ(number, round);
  }
}

TEST(ThreadPoolTest, TheCallersTimesCountItsWaits) {
  using std::chrono::milliseconds;
  constexpr milliseconds kLong(20);
  ThreadPool pool(2);
  const ThreadPool::CallerTimes before = ThreadPool::OfThisThread();
  pool.Run([&](uint32_t w) {
    if (w == 1) std::this_thread::sleep_for(2 * kLong);
    if (w == 0) std::this_thread::sleep_for(kLong);
  });
  ThreadPool(1).Run([](uint32_t) {});  // Has nobody to wait for.
  const ThreadPool::CallerTimes after = ThreadPool::OfThisThread();
  EXPECT_EQ(after.runs - before.runs, 1u);
  EXPECT_GE(after.in_runs - before.in_runs, 2 * kLong);
  EXPECT_LE(after.waiting - before.waiting, after.in_runs - before.in_runs - kLong)
      << "its own part is no wait";
  std::thread([] { EXPECT_EQ(ThreadPool::OfThisThread().runs, 0u); }).join();
}

TEST(ThreadPoolTest, SleepingThreadsWake) {
  ThreadPool pool(3);
  std::atomic<int> runs = 0;
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // Much longer than the spinning.
    pool.Run([&](uint32_t) { ++runs; });
  }
  EXPECT_EQ(runs, 15);
}

TEST(ThreadPoolTest, ASecondCallerWaits) {
  ThreadPool pool(2);
  std::atomic<int> inside = 0;
  std::atomic<int> total = 0;
  const auto call = [&] {
    for (int i = 0; i < 300; ++i) {
      pool.Run([&](uint32_t w) {
        ++total;
        if (w != 0) return;
        EXPECT_EQ(inside.fetch_add(1), 0);
        inside.fetch_sub(1);
      });
    }
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_EQ(total, 1200);
}

TEST(ThreadPoolTest, ScratchIsAlignedAndEachWorkersOwn) {
  ThreadPool pool(3);
  for (const size_t bytes : {100, 5000, 300}) {
    std::vector<std::byte*> memory(3);
    pool.Run([&](uint32_t w) {
      const absl::Span<std::byte> scratch = pool.Scratch(w, bytes);
      ASSERT_EQ(scratch.size(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.data()) % 64, 0u);
      std::memset(scratch.data(), static_cast<int>(w), bytes);
      memory[w] = scratch.data();
    });
    for (uint32_t w = 0; w < 3; ++w) {
      EXPECT_EQ(memory[w][0], std::byte(w));
      EXPECT_EQ(memory[w][bytes - 1], std::byte(w));
      // Kept until a call needs more.
      EXPECT_EQ(pool.Scratch(w, 10).data(), memory[w]);
    }
  }
}

TEST(ThreadPoolTest, EveryWorkerHasItsScratch) {
  for (const uint32_t num_threads : {1u, 3u}) {
    ThreadPool pool(num_threads);
    std::vector<std::byte*> memory(num_threads);
    pool.RunWithScratch(1000, [&](uint32_t w, absl::Span<std::byte> scratch) {
      ASSERT_EQ(scratch.size(), 1000u);
      std::memset(scratch.data(), static_cast<int>(w), scratch.size());
      memory[w] = scratch.data();
    });
    for (uint32_t w = 0; w < num_threads; ++w) {
      EXPECT_EQ(memory[w][999], std::byte(w));
      EXPECT_EQ(pool.Scratch(w, 1000).data(), memory[w]);
    }
  }
}

// Sanitizers end the program themselves if memory is missing.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ThreadPoolTest, MemoryThatLacksIsToldToTheCallerBeforeAnythingRuns) {
  ThreadPool pool(3);
  std::atomic<int> runs = 0;
  const size_t too_much = size_t{1} << 60;
  EXPECT_THROW(pool.RunWithScratch(too_much, [&](uint32_t, absl::Span<std::byte>) { ++runs; }),
               std::bad_alloc);
  EXPECT_EQ(runs, 0);
  pool.RunWithScratch(64, [&](uint32_t, absl::Span<std::byte> scratch) {
    scratch[63] = std::byte{1};
    ++runs;
  });
  EXPECT_EQ(runs, 3);
}
#endif

TEST(ThreadPoolDeathTest, WorkThatThrowsEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const uint32_t thrower : {0u, 1u}) {
    EXPECT_DEATH(
        {
          ThreadPool pool(2);
          try {
            pool.Run([&](uint32_t w) {
              if (w == thrower) throw std::bad_alloc();
            });
          } catch (const std::bad_alloc&) {
            std::exit(0);  // It overtook the other thread.
          }
        },
        "");
  }
}

}  // namespace
}  // namespace pagoda::kernels::cpu
