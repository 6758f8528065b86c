#include "clients/pagodactl/prefix_options.h"

#include <utility>

#include "CLI/CLI.hpp"
#include "clients/pagodactl/tokens.h"

namespace pagoda {
void AddPrefixOptions(CLI::App& command, PrefixOptions& options, Tokens tokens) {
  CLI::Option_group* prefix = command.add_option_group("prefix", "Exactly one of");
  prefix->add_option("--tokens", options.tokens, "The prefix's token ids: 1,2,3")
      ->check(CheckTokens);
  prefix
      ->add_option("--token-file", options.token_file,
                   "A file of token ids, separated by commas or whitespace; - is standard input")
      ->type_name("FILE");
  if (tokens == Tokens::kOrAll) {
    prefix->add_flag("--all", options.whole_namespace, "The whole namespace");
  }
  prefix->require_option(1);
  command.add_option("--lora", options.lora_id, "The namespace's LoRA id");
  command.add_option("--salt", options.salt, "The namespace's cache salt");
  command.add_option("--tenant", options.tenant, "The namespace's tenant");
}

absl::StatusOr<Prefix> PrefixOf(const PrefixOptions& options) {
  Prefix prefix{.name_space = {.lora_id = options.lora_id,
                               .cache_salt = options.salt,
                               .tenant = options.tenant},
                .tokens = {}};
  if (options.whole_namespace) return prefix;
  absl::StatusOr<std::vector<TokenId>> tokens =
      options.token_file.empty() ? ParseTokens(options.tokens) : ReadTokenFile(options.token_file);
  if (!tokens.ok()) return tokens.status();
  prefix.tokens = *std::move(tokens);
  return prefix;
}

}  // namespace pagoda
