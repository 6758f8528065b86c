// Configuration keys for numbers of bytes, or of bytes a second.
#ifndef PAGODA_SERVER_CONFIG_BYTE_COUNT_KEY_H_
#define PAGODA_SERVER_CONFIG_BYTE_COUNT_KEY_H_

#include <cstdint>
#include <string>

#include "server/config/config_keys.h"

namespace pagoda::server {

// A number of bytes in the form of ParseByteSize. `zero`: the meaning of 0 for error messages, such
// as "no limit".
ConfigKey ByteCountKey(std::string name, uint64_t* field, std::string zero);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_BYTE_COUNT_KEY_H_
