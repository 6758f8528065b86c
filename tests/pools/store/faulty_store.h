// What the tests of a store with a scripted server share.
#ifndef PAGODA_TESTS_POOLS_STORE_FAULTY_STORE_H_
#define PAGODA_TESTS_POOLS_STORE_FAULTY_STORE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "pools/store/redis_store.h"
#include "pools/store/stored_value.h"
#include "tests/pools/store/store_blocks.h"
#include "tests/wait_until.h"

namespace pagoda {

inline constexpr size_t kBytes = 100'000;
inline constexpr absl::Duration kTimeout = absl::Milliseconds(300);
inline constexpr absl::Duration kMargin = absl::Seconds(2);  // The delay of a busy machine.

inline std::unique_ptr<RedisStore> StoreAt(RedisAddress address, RedisOptions options = {}) {
  options.seeds = {std::move(address)};
  absl::StatusOr<std::unique_ptr<RedisStore>> store = RedisStore::Create(std::move(options));
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

inline std::string ValueOf(uint32_t number, size_t size = kBytes) {
  const std::vector<std::byte> block = TestBlock(number, size);
  const absl::Span<const std::byte> pieces[] = {block};
  const StoredHeader header = MakeStoredHeader(TestKey(number), "", pieces);
  std::string value(reinterpret_cast<const char*>(header.data()), header.size());
  value.append(reinterpret_cast<const char*>(block.data()), block.size());
  return value;
}

inline std::string Bulk(const std::string& value) {
  return absl::StrCat("$", value.size(), "\r\n", value, "\r\n");
}

// A get of one key ends with an outcome, in time. Only one that is expected to time out has a short
// time.
inline void ExpectGet(RedisStore& store, StoreOutcome expected, uint32_t number = 1) {
  const absl::Duration timeout = expected == StoreOutcome::kTimedOut ? kTimeout : absl::Seconds(20);
  const absl::Time start = absl::Now();
  const GotBlocks got = GetAndWait(store, {number}, kBytes, timeout);
  EXPECT_LT(absl::Now() - start, timeout + kMargin);
  EXPECT_THAT(got.outcomes, testing::ElementsAre(expected))
      << StoreOutcomeName(got.outcomes[0]) << "; " << store.stats().last_error;
  EXPECT_TRUE(got.AreRight({number}));
}

// The processor time of this process.
inline absl::Duration CpuTime() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_POOLS_STORE_FAULTY_STORE_H_
