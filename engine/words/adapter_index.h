#ifndef PAGODA_ENGINE_WORDS_ADAPTER_INDEX_H_
#define PAGODA_ENGINE_WORDS_ADAPTER_INDEX_H_

#include <cstdint>

#include "base/strong_id.h"

namespace pagoda {

// The place of a LoRA adapter in the engine's list.
using AdapterIndex = StrongId<struct AdapterIndexTag, uint32_t>;

// The model alone.
inline constexpr AdapterIndex kNoAdapter(~uint32_t{0});

}  // namespace pagoda

#endif  // PAGODA_ENGINE_WORDS_ADAPTER_INDEX_H_
