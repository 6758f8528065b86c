// How the options of a command name a cached prefix.
#ifndef PAGODA_CLIENTS_PAGODACTL_PREFIX_OPTIONS_H_
#define PAGODA_CLIENTS_PAGODACTL_PREFIX_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "events/block_hash.h"
#include "events/block_key.h"
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
  std::string extra_ids;
  std::string extra_id_file;
  std::vector<std::string> items;
};

// A prefix as operations name it: all that tells blocks apart.
struct Prefix {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> extra_token_ids;
  std::vector<MultimodalItem> multimodal_items;

  // An operation of type T on the prefix.
  template <class T>
  T Named() && {
    T operation;
    operation.name_space = std::move(name_space);
    operation.tokens = std::move(tokens);
    operation.extra_token_ids = std::move(extra_token_ids);
    operation.multimodal_items = std::move(multimodal_items);
    return operation;
  }
};

enum class Tokens { kNeeded, kOrAll };

// Adds --tokens and --token-file (and --all), of which one is needed, the options of extra ids and
// items, and the namespace's.
// `options` outlives the parser.
void AddPrefixOptions(CLI::App& command, PrefixOptions& options, Tokens tokens);

// Reads the files that are named. Errors: INVALID_ARGUMENT.
absl::StatusOr<Prefix> PrefixOf(const PrefixOptions& options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_PREFIX_OPTIONS_H_
