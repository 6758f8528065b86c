// A number for everything that a run saw. Two runs of one seed must have the same number.
#ifndef PAGODA_TESTS_SIM_WORDS_DIGEST_H_
#define PAGODA_TESTS_SIM_WORDS_DIGEST_H_

#include <cstdint>
#include <string_view>

#include "events/event.h"
#include "pools/order.h"
#include "tests/sim/words/random.h"

namespace pagoda::sim {

class Digest {
 public:
  void Add(uint64_t word) { value_ = Mix(value_ * 0x9E3779B97F4A7C15 + word); }
  void Add(std::string_view bytes);
  // Every field of it.
  void Add(const Event& event);
  void Add(const Order& order);

  uint64_t value() const { return value_; }

 private:
  void AddExtra(const TokenExtra& extra);

  uint64_t value_ = 0;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_WORDS_DIGEST_H_
