// Arguments of the calls on sessions.
#ifndef PAGODA_MANAGER_API_SESSION_CALLS_H_
#define PAGODA_MANAGER_API_SESSION_CALLS_H_

#include <cstdint>

namespace pagoda {

// kOneCall: the call that ends a session or a quarantine also frees its blocks. kChunks: the call
// only begins to, and SessionEndings::ContinueEndings frees them.
enum class EndIn : uint8_t { kOneCall, kChunks };

}  // namespace pagoda

#endif  // PAGODA_MANAGER_API_SESSION_CALLS_H_
