// The keys of the section `engine`.
#ifndef PAGODA_SERVER_CONFIG_ENGINE_KEYS_H_
#define PAGODA_SERVER_CONFIG_ENGINE_KEYS_H_

#include <vector>

#include "server/config/config.h"
#include "server/config/config_keys.h"

namespace pagoda::server {

std::vector<ConfigKey> EngineKeys(Config::Engine* engine);

// Replaces kEngineAddressAuto by what it stands for.
void ResolveEngineAddresses(Config& config);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_ENGINE_KEYS_H_
