// The options that name a cached prefix.
#ifndef PAGODA_CLIENTS_PAGODACTL_PREFIX_PREFIX_OPTIONS_H_
#define PAGODA_CLIENTS_PAGODACTL_PREFIX_PREFIX_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "pools/types.h"

namespace CLI {
class App;
}

namespace pagoda {

struct PrefixOptions {
  std::string tokens;
  std::string token_file;
  std::string keys;
  bool whole_namespace = false;
  std::optional<uint64_t> lora_id;
  std::string salt;
  std::string tenant;
  bool keyed = false;
  std::string extra_ids;
  std::string extra_id_file;
  std::vector<std::string> items;
};

// A prefix as operations name it: everything that identifies its blocks.
struct Prefix {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> extra_token_ids;
  std::vector<MultimodalItem> multimodal_items;
  std::vector<ClientKey> keys;

  bool empty() const { return tokens.empty() && keys.empty(); }
  // The prefix's length in tokens.
  uint64_t size(uint32_t tokens_per_block) const {
    return tokens.size() + uint64_t{keys.size()} * tokens_per_block;
  }

  // An operation of type T on the prefix.
  template <class T>
  T Named() && {
    T operation;
    operation.name_space = std::move(name_space);
    operation.tokens = std::move(tokens);
    operation.extra_token_ids = std::move(extra_token_ids);
    operation.multimodal_items = std::move(multimodal_items);
    operation.keys = std::move(keys);
    return operation;
  }
};

enum class Tokens { kNeeded, kOrAll };

// Adds --tokens, --token-file and --keys (and --all with kOrAll), of which exactly one must be
// given. Also adds the options of extra ids, items and the namespace. `options` must outlive the
// parser.
void AddPrefixOptions(CLI::App& command, PrefixOptions& options, Tokens tokens);

// Builds the prefix; reads the files that the options name. Errors: INVALID_ARGUMENT, INVALID_KEY,
// KEYS_AND_TOKENS.
absl::StatusOr<Prefix> PrefixOf(const PrefixOptions& options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_PREFIX_PREFIX_OPTIONS_H_
