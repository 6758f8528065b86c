// Whether the core records events.
#ifndef PAGODA_MANAGER_RECORD_EVENTS_H_
#define PAGODA_MANAGER_RECORD_EVENTS_H_

#include <cstdint>

namespace pagoda {

// kNo: nothing happens, as far as anybody can see. For replays and for measuring what events cost.
enum class RecordEvents : uint8_t { kNo, kYes };

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RECORD_EVENTS_H_
