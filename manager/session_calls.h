// What BlockManager's operations on sessions are given.
#ifndef PAGODA_MANAGER_SESSION_CALLS_H_
#define PAGODA_MANAGER_SESSION_CALLS_H_

#include <cstdint>

namespace pagoda {

// Whether the call that ends a session or a quarantine frees its blocks, or only begins to: then
// BlockManager::ContinueEndings frees them.
enum class EndIn : uint8_t { kOneCall, kChunks };

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SESSION_CALLS_H_
