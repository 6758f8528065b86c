// Configuration keys that count bytes, or bytes a second.
#ifndef PAGODA_SERVER_CONFIG_BYTE_COUNT_KEY_H_
#define PAGODA_SERVER_CONFIG_BYTE_COUNT_KEY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "server/config/config_keys.h"

namespace pagoda::server {

// A whole number of bytes, alone or with a unit: B, and KB, MB, GB, TB (decimal, as makers of
// drives count) or KiB, MiB, GiB, TiB. nullopt for anything else.
std::optional<uint64_t> BytesFromText(const std::string& text);
// The shortest text that BytesFromText reads back to the same number.
std::string BytesToText(uint64_t bytes);

// A number of bytes. `zero`: what 0 means, for errors: "no limit".
ConfigKey ByteCountKey(std::string name, uint64_t* field, std::string zero);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_BYTE_COUNT_KEY_H_
