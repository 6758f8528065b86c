// Blocks for tests of stores, and calls that wait for their end.
#ifndef PAGODA_TESTS_POOLS_STORE_STORE_BLOCKS_H_
#define PAGODA_TESTS_POOLS_STORE_STORE_BLOCKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "pools/store/store.h"

namespace pagoda {

inline StoreKey TestKey(uint32_t number, uint8_t layout = 1) {
  StoreKey key;
  key.layout.fill(std::byte{layout});
  std::memcpy(key.digest.data(), &number, sizeof number);
  return key;
}

// The bytes that belong to a key.
inline std::vector<std::byte> TestBlock(uint32_t number, size_t size) {
  std::mt19937_64 random(number);
  std::vector<std::byte> bytes(size);
  for (size_t at = 0; at < size; at += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min<size_t>(8, size - at));
  }
  return bytes;
}

using Outcomes = std::vector<StoreOutcome>;

inline size_t CountOf(const Outcomes& outcomes, StoreOutcome outcome) {
  return static_cast<size_t>(std::count(outcomes.begin(), outcomes.end(), outcome));
}

// Waits for a batch. The calls' `done` must come once.
class Waiter {
 public:
  Store::Done done() {
    return [this](const Outcomes& outcomes) {
      outcomes_ = outcomes;
      notification_.Notify();  // Stops the process if it comes twice.
    };
  }
  Outcomes Wait() {
    notification_.WaitForNotification();
    return outcomes_;
  }
  bool is_done() const { return notification_.HasBeenNotified(); }

 private:
  absl::Notification notification_;
  Outcomes outcomes_;
};

inline Outcomes PutAndWait(Store& store, const std::vector<uint32_t>& numbers, size_t size,
                           absl::Duration timeout, uint8_t layout = 1,
                           absl::Duration time_to_live = absl::Minutes(10)) {
  std::vector<std::vector<std::byte>> blocks;
  std::vector<Store::Write> batch;
  for (const uint32_t number : numbers) {
    blocks.push_back(TestBlock(number, size));
    const absl::Span<const std::byte> whole = blocks.back();
    batch.push_back({TestKey(number, layout), {whole.first(size / 3), whole.subspan(size / 3)}});
  }
  Waiter waiter;
  store.Put(std::move(batch), time_to_live, timeout, waiter.done());
  return waiter.Wait();
}

struct GotBlocks {
  Outcomes outcomes;
  std::vector<std::vector<std::byte>> blocks;

  // Whether each block that is kOk has its key's bytes.
  bool AreRight(const std::vector<uint32_t>& numbers) const {
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (outcomes[i] == StoreOutcome::kOk &&
          blocks[i] != TestBlock(numbers[i], blocks[i].size())) {
        return false;
      }
    }
    return true;
  }
};

inline GotBlocks GetAndWait(Store& store, const std::vector<uint32_t>& numbers, size_t size,
                            absl::Duration timeout, uint8_t layout = 1) {
  GotBlocks got;
  got.blocks.assign(numbers.size(), std::vector<std::byte>(size));
  std::vector<Store::Read> batch;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const absl::Span<std::byte> whole = absl::MakeSpan(got.blocks[i]);
    batch.push_back(
        {TestKey(numbers[i], layout), {whole.first(size / 2), whole.subspan(size / 2)}});
  }
  Waiter waiter;
  store.Get(std::move(batch), timeout, waiter.done());
  got.outcomes = waiter.Wait();
  return got;
}

inline Outcomes ExistsAndWait(Store& store, const std::vector<uint32_t>& numbers,
                              absl::Duration timeout, uint8_t layout = 1) {
  std::vector<StoreKey> keys;
  for (const uint32_t number : numbers) keys.push_back(TestKey(number, layout));
  Waiter waiter;
  store.Exists(std::move(keys), timeout, waiter.done());
  return waiter.Wait();
}

// `count` numbers from `first` on.
inline std::vector<uint32_t> Numbers(uint32_t first, uint32_t count) {
  std::vector<uint32_t> numbers(count);
  for (uint32_t i = 0; i < count; ++i) numbers[i] = first + i;
  return numbers;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_POOLS_STORE_STORE_BLOCKS_H_
