// How the options of a command name a cached prefix.
#ifndef PAGODA_CLIENTS_PAGODACTL_PREFIX_OPTIONS_H_
#define PAGODA_CLIENTS_PAGODACTL_PREFIX_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "events/block_hash.h"
#include "pools/types.h"

namespace CLI {
class App;
}

namespace pagoda {

struct PrefixOptions {
  std::string tokens;
  std::string token_file;
  bool whole_namespace = false;
  std::optional<uint64_t> lora_id;
  std::string salt;
  std::string tenant;
};

// A prefix as operations name it.
struct Prefix {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
};

enum class Tokens { kNeeded, kOrAll };

// Adds --tokens and --token-file (and --all), of which one is needed, and the namespace's options.
// `options` outlives the parser.
void AddPrefixOptions(CLI::App& command, PrefixOptions& options, Tokens tokens);

// Reads the file, if one is named. Errors: INVALID_ARGUMENT.
absl::StatusOr<Prefix> PrefixOf(const PrefixOptions& options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_PREFIX_OPTIONS_H_
