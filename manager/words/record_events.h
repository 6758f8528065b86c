// Whether the core records events.
#ifndef PAGODA_MANAGER_WORDS_RECORD_EVENTS_H_
#define PAGODA_MANAGER_WORDS_RECORD_EVENTS_H_

#include <cstdint>

namespace pagoda {

// kNo: the core records no events. For replays, and to measure the cost of events.
enum class RecordEvents : uint8_t { kNo, kYes };

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_RECORD_EVENTS_H_
