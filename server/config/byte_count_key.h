// Configuration keys for numbers of bytes, or of bytes a second.
#ifndef PAGODA_SERVER_CONFIG_BYTE_COUNT_KEY_H_
#define PAGODA_SERVER_CONFIG_BYTE_COUNT_KEY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "server/config/config_keys.h"

namespace pagoda::server {

// Parses a whole number of bytes, alone or with a unit: B; the decimal KB, MB, GB, TB, which makers
// of drives use; or KiB, MiB, GiB, TiB. nullopt for anything else.
std::optional<uint64_t> BytesFromText(const std::string& text);
// The shortest text that BytesFromText reads back to the same number.
std::string BytesToText(uint64_t bytes);

// A number of bytes. `zero`: the meaning of 0 for error messages, such as "no limit".
ConfigKey ByteCountKey(std::string name, uint64_t* field, std::string zero);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_BYTE_COUNT_KEY_H_
