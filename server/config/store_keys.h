// The keys of the sections `store`, `peers` and `fetch`, and their checks.
#ifndef PAGODA_SERVER_CONFIG_STORE_KEYS_H_
#define PAGODA_SERVER_CONFIG_STORE_KEYS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config/config.h"
#include "server/config/config_keys.h"

namespace pagoda::server {

std::vector<ConfigKey> StoreKeys(Config::Store* store);
std::vector<ConfigKey> PeersKeys(Config::Peers* peers);
std::vector<ConfigKey> FetchKeys(Config::Fetch* fetch);

// The paths of both sections that are relative to the configuration's folder.
std::vector<std::string*> StorePaths(Config& config);

// INVALID_ARGUMENT: an address is none; a file belongs to another key that is not set; a tenant is
// unknown.
absl::Status CheckStore(const Config& config);
// INVALID_ARGUMENT: as CheckStore; or daemons on other machines could read without a token and
// without TLS, or would see the token in plaintext, and server.insecure is false.
absl::Status CheckPeers(const Config& config);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_STORE_KEYS_H_
