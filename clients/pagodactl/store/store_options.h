// The options of `store check` that name a store.
#ifndef PAGODA_CLIENTS_PAGODACTL_STORE_STORE_OPTIONS_H_
#define PAGODA_CLIENTS_PAGODACTL_STORE_STORE_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pools/store/redis_options.h"

namespace CLI {
class App;
}

namespace pagoda {

// The flags that the parser fills. Empty: not given.
struct StoreFlags {
  std::string config_file;  // The daemon's configuration file. With it the other flags are ignored.
  std::vector<std::string> servers;
  std::vector<std::string> allowed_networks;
  std::string key_prefix = "pagoda:";
  std::string secret_file;
  std::string username;
  std::string password_file;
  bool tls = false;  // Also with one of the three files.
  std::string tls_ca;
  std::string tls_certificate;
  std::string tls_key;
};

// Adds the options. `flags` must outlive the parser.
void AddStoreFlags(CLI::App& command, StoreFlags& flags);

// The store that the flags name, or the section `store` of a configuration of pagodad. As there, a
// relative path begins at the configuration's folder. Errors: InvalidArgument (no server; not an
// address; a file cannot be read, is no YAML or has another form).
absl::StatusOr<RedisOptions> StoreOptionsOf(const StoreFlags& flags);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_STORE_STORE_OPTIONS_H_
