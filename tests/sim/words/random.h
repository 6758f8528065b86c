#ifndef PAGODA_TESTS_SIM_WORDS_RANDOM_H_
#define PAGODA_TESTS_SIM_WORDS_RANDOM_H_

#include <cstdint>

namespace pagoda::sim {

// Spreads the bits of a number (the finalizer of splitmix64).
constexpr uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// splitmix64 (Steele, Lea, Flood, 2014). Every operation of a run has its own stream, so leaving
// one out does not change what the others draw.
class Random {
 public:
  Random() = default;
  Random(uint64_t seed, uint64_t stream) : state_(Mix(seed + 1) ^ Mix(~stream)) {}

  uint64_t Next() { return Mix(state_ += 0x9E3779B97F4A7C15); }
  // 0 to n - 1. REQUIRES: n > 0.
  uint32_t Below(uint32_t n) {
    return static_cast<uint32_t>((static_cast<uint64_t>(static_cast<uint32_t>(Next())) * n) >> 32);
  }
  // low to high, both inclusive.
  uint32_t Between(uint32_t low, uint32_t high) { return low + Below(high - low + 1); }
  bool OneIn(uint32_t n) { return Below(n) == 0; }
  bool Percent(uint32_t percent) { return Below(100) < percent; }

 private:
  uint64_t state_ = 0;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_WORDS_RANDOM_H_
