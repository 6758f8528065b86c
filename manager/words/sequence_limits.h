// The most that the sequences of a cache may cost beside their blocks.
#ifndef PAGODA_MANAGER_WORDS_SEQUENCE_LIMITS_H_
#define PAGODA_MANAGER_WORDS_SEQUENCE_LIMITS_H_

#include <cstdint>

namespace pagoda {

// SequenceAccounts applies these limits and says which bytes count.
struct SequenceLimits {
  uint32_t max_sequences = 65'536;
  uint64_t max_bytes = uint64_t{256} << 20;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_SEQUENCE_LIMITS_H_
