#include "clients/pagodactl/prefix/prefix_options.h"

#include <cstring>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "clients/command_line/tokens.h"

namespace pagoda {
namespace {

// "DIGEST:START:COUNT" or "DIGEST:START:COUNT:OFFSET".
absl::StatusOr<MultimodalItem> ParseItem(const std::string& text) {
  const absl::Status refusal =
      MakeError(Reason::kInvalidArgument,
                absl::StrCat("\"", text, "\" is not DIGEST:START:COUNT[:OFFSET] with a digest of ",
                             2 * sizeof(ItemDigest), " hexadecimal digits"));
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() < 3 || parts.size() > 4) return refusal;
  MultimodalItem item;
  const bool is_hex = parts[0].size() == 2 * sizeof(ItemDigest) &&
                      parts[0].find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  if (!is_hex || !absl::SimpleAtoi(parts[1], &item.token_start) ||
      !absl::SimpleAtoi(parts[2], &item.token_count) ||
      (parts.size() == 4 && !absl::SimpleAtoi(parts[3], &item.item_offset))) {
    return refusal;
  }
  const std::string bytes = absl::HexStringToBytes(parts[0]);
  std::memcpy(item.digest.data(), bytes.data(), sizeof(ItemDigest));
  return item;
}

// "0a1b,2c3d": the keys' bytes in hexadecimal.
absl::StatusOr<std::vector<ClientKey>> ParseKeys(const std::string& text) {
  std::vector<ClientKey> keys;
  for (const std::string& hex : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const bool is_hex =
        hex.size() % 2 == 0 && hex.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (!is_hex) {
      return MakeError(Reason::kInvalidKey,
                       absl::StrCat("\"", hex, "\" is not a key in hexadecimal"));
    }
    const absl::StatusOr<ClientKey> key = ClientKey::Make(absl::HexStringToBytes(hex));
    if (!key.ok()) return key.status();
    keys.push_back(*key);
  }
  return keys;
}

std::string CheckKeys(const std::string& text) {
  return std::string(ParseKeys(text).status().message());
}

std::string CheckItem(const std::string& text) {
  return std::string(ParseItem(text).status().message());
}

}  // namespace

void AddPrefixOptions(CLI::App& command, PrefixOptions& options, Tokens tokens) {
  CLI::Option_group* prefix = command.add_option_group("prefix", "Exactly one of");
  prefix->add_option("--tokens", options.tokens, "The prefix's token ids: 1,2,3")
      ->check(CheckTokens);
  prefix
      ->add_option("--token-file", options.token_file,
                   "A file of token ids, separated by commas or whitespace; - is standard input")
      ->type_name("FILE");
  prefix
      ->add_option("--keys", options.keys,
                   "The keys of the prefix's blocks in hexadecimal, in a namespace with client "
                   "keys: 0a1b,2c3d")
      ->type_name("KEYS")
      ->check(CheckKeys);
  if (tokens == Tokens::kOrAll) {
    prefix->add_flag("--all", options.whole_namespace, "The whole namespace");
  }
  prefix->require_option(1);
  command
      .add_option("--extra-ids", options.extra_ids,
                  "The tokens' extra ids, one per token, 0 for a token without one: 0,0,7")
      ->check(CheckExtraIds);
  command
      .add_option("--extra-id-file", options.extra_id_file,
                  "A file of extra ids, in the form of --token-file")
      ->type_name("FILE")
      ->excludes("--extra-ids");
  command
      .add_option(
          "--item", options.items,
          "An image or another multimodal item in the prefix, DIGEST:START:COUNT[:OFFSET]: "
          "its digest in hexadecimal, its first token, its number of tokens, and the offset "
          "in the item of the first token. Repeat the option for each item, in token order")
      ->type_name("ITEM")
      ->check(CheckItem);
  command.add_option("--lora", options.lora_id, "The namespace's LoRA id");
  command.add_option("--salt", options.salt, "The namespace's cache salt");
  command.add_option("--tenant", options.tenant, "The namespace's tenant");
  if (tokens == Tokens::kOrAll) {
    command.add_flag("--keyed", options.keyed, "With --all: the namespace has client keys");
  }
}

absl::StatusOr<Prefix> PrefixOf(const PrefixOptions& options) {
  Prefix prefix{.name_space = {.lora_id = options.lora_id,
                               .cache_salt = options.salt,
                               .tenant = options.tenant,
                               .keyed = options.keyed || !options.keys.empty()},
                .tokens = {},
                .extra_token_ids = {},
                .multimodal_items = {},
                .keys = {}};
  const bool has_extras =
      !options.extra_ids.empty() || !options.extra_id_file.empty() || !options.items.empty();
  if (options.whole_namespace) {
    if (!has_extras) return prefix;
    return MakeError(Reason::kInvalidArgument,
                     "--all is the whole namespace; extra ids and items need tokens");
  }
  if (prefix.name_space.keyed) {
    if (has_extras || options.keys.empty()) {
      return MakeError(Reason::kKeysAndTokens,
                       "a keyed namespace needs --keys, without tokens, extra ids or items");
    }
    absl::StatusOr<std::vector<ClientKey>> keys = ParseKeys(options.keys);
    if (!keys.ok()) return keys.status();
    prefix.keys = *std::move(keys);
    return prefix;
  }
  absl::StatusOr<std::vector<TokenId>> tokens =
      options.token_file.empty() ? ParseTokens(options.tokens) : ReadTokenFile(options.token_file);
  if (!tokens.ok()) return tokens.status();
  prefix.tokens = *std::move(tokens);
  absl::StatusOr<std::vector<uint64_t>> extra_ids = options.extra_id_file.empty()
                                                        ? ParseExtraIds(options.extra_ids)
                                                        : ReadExtraIdFile(options.extra_id_file);
  if (!extra_ids.ok()) return extra_ids.status();
  prefix.extra_token_ids = *std::move(extra_ids);
  for (const std::string& text : options.items) {
    const absl::StatusOr<MultimodalItem> item = ParseItem(text);
    if (!item.ok()) return item.status();
    prefix.multimodal_items.push_back(*item);
  }
  return prefix;
}

}  // namespace pagoda
