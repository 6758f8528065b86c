// The kind of configuration key that says how many bytes a second something may move.
#ifndef PAGODA_SERVER_CONFIG_BYTE_RATE_KEY_H_
#define PAGODA_SERVER_CONFIG_BYTE_RATE_KEY_H_

#include <cstdint>
#include <string>

#include "server/config/config_keys.h"

namespace pagoda::server {

// Bytes a second: a whole number, alone or with a unit, which is decimal as makers of drives have
// it (44MB) or binary (42MiB). 0: no limit.
ConfigKey ByteRateKey(std::string name, uint64_t* field);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_BYTE_RATE_KEY_H_
