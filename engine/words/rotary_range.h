#ifndef PAGODA_ENGINE_WORDS_ROTARY_RANGE_H_
#define PAGODA_ENGINE_WORDS_ROTARY_RANGE_H_

#include <cstdint>

namespace pagoda {

// Which factors of LongRoPE a sequence's keys and queries are rotated with
// (RotaryConfig::Scaling::kLongRope). Other rotary embeddings have one range.
enum class RotaryRange : uint8_t { kShort, kLong };

}  // namespace pagoda

#endif  // PAGODA_ENGINE_WORDS_ROTARY_RANGE_H_
