// The fields that name a prefix: namespace, tokens, extra ids, multimodal items, keys. They are the
// same in every message that has a prefix.
#ifndef PAGODA_WIRE_PREFIX_FIELDS_H_
#define PAGODA_WIRE_PREFIX_FIELDS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "events/client_key.h"
#include "manager/api/operation.h"
#include "pagoda/v1/cache.pb.h"
#include "wire/vocabulary.h"

namespace pagoda {

template <class Proto>
void TokensToProto(const std::vector<TokenId>& tokens, Proto* out) {
  out->mutable_tokens()->Add(tokens.begin(), tokens.end());
}

// A copy of tokens. The thread's turn on its processor can end meanwhile: to copy the tokens of a
// message of 16 MiB takes milliseconds.
std::vector<TokenId> CopyTokens(absl::Span<const TokenId> tokens);

template <class Proto>
std::vector<TokenId> TokensFromProto(const Proto& proto) {
  return CopyTokens(proto.tokens());
}

using KeyProtos = google::protobuf::RepeatedPtrField<std::string>;

void KeysToProto(const std::vector<ClientKey>& keys, KeyProtos* out);
// Error: INVALID_KEY (a key has no bytes, or too many), with the key's index.
absl::StatusOr<std::vector<ClientKey>> KeysFromProto(const KeyProtos& protos);

using MultimodalProtos = google::protobuf::RepeatedPtrField<v1::MultimodalItem>;

void ItemsToProto(const std::vector<MultimodalItem>& items, MultimodalProtos* out);
// Error: INVALID_ARGUMENT (a digest that does not have 32 bytes).
absl::StatusOr<std::vector<MultimodalItem>> ItemsFromProto(const MultimodalProtos& protos);

// Error: INVALID_ARGUMENT.
absl::Status ExtraIdsDoNotFit(int extra_ids, int tokens);

// `Prefix` is an operation with these fields, and `Proto` its message.
template <class Prefix, class Proto>
void PrefixToProto(const Prefix& prefix, Proto* out) {
  NamespaceToProto(prefix.name_space, out->mutable_namespace_());
  TokensToProto(prefix.tokens, out);
  out->mutable_extra_token_ids()->Add(prefix.extra_token_ids.begin(), prefix.extra_token_ids.end());
  ItemsToProto(prefix.multimodal_items, out->mutable_multimodal_items());
  KeysToProto(prefix.keys, out->mutable_keys());
}

// The operation's other fields have their defaults. Errors: INVALID_ARGUMENT (more extra ids than
// tokens); ItemsFromProto's, KeysFromProto's.
template <class Prefix, class Proto>
absl::StatusOr<Prefix> PrefixFromProto(const Proto& proto) {
  // One for each token or none. Otherwise they are not copied: an id takes a byte on the wire, and
  // eight here.
  if (proto.extra_token_ids_size() > proto.tokens_size()) {
    return ExtraIdsDoNotFit(proto.extra_token_ids_size(), proto.tokens_size());
  }
  absl::StatusOr<std::vector<MultimodalItem>> items = ItemsFromProto(proto.multimodal_items());
  if (!items.ok()) return items.status();
  absl::StatusOr<std::vector<ClientKey>> keys = KeysFromProto(proto.keys());
  if (!keys.ok()) return keys.status();
  Prefix prefix;
  prefix.name_space = NamespaceFromProto(proto.namespace_());
  prefix.tokens = TokensFromProto(proto);
  prefix.extra_token_ids = {proto.extra_token_ids().begin(), proto.extra_token_ids().end()};
  prefix.multimodal_items = *std::move(items);
  prefix.keys = *std::move(keys);
  return prefix;
}

}  // namespace pagoda

#endif  // PAGODA_WIRE_PREFIX_FIELDS_H_
