#include "wire/prefix_fields.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/processor_turn.h"

namespace pagoda {
namespace {

constexpr size_t kDigestBytes = sizeof(ItemDigest);

std::string DigestToBytes(const ItemDigest& digest) {
  std::string bytes(kDigestBytes, '\0');
  for (size_t i = 0; i < kDigestBytes; ++i) {
    bytes[i] = static_cast<char>(digest[i / 8] >> (i % 8 * 8) & 0xFF);
  }
  return bytes;
}

// REQUIRES: kDigestBytes bytes.
ItemDigest DigestFromBytes(const std::string& bytes) {
  ItemDigest digest = {};
  for (size_t i = 0; i < kDigestBytes; ++i) {
    digest[i / 8] |= uint64_t{static_cast<unsigned char>(bytes[i])} << (i % 8 * 8);
  }
  return digest;
}

}  // namespace

std::vector<TokenId> CopyTokens(absl::Span<const TokenId> tokens) {
  constexpr size_t kPieceTokens = 16'384;
  std::vector<TokenId> copy;
  copy.reserve(tokens.size());
  for (; !tokens.empty(); tokens.remove_prefix(std::min(kPieceTokens, tokens.size()))) {
    const absl::Span<const TokenId> piece = tokens.first(std::min(kPieceTokens, tokens.size()));
    copy.insert(copy.end(), piece.begin(), piece.end());
    EndProcessorTurnIfOver();
  }
  return copy;
}

absl::Status ExtraIdsDoNotFit(int extra_ids, int tokens) {
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat(Counted(extra_ids, "extra id"), " for ", Counted(tokens, "token"),
                                "; there is one for each token, or none"));
}

void KeysToProto(const std::vector<ClientKey>& keys, KeyProtos* out) {
  out->Reserve(out->size() + static_cast<int>(keys.size()));
  for (const ClientKey& key : keys) *out->Add() = std::string(key.bytes());
}

absl::StatusOr<std::vector<ClientKey>> KeysFromProto(const KeyProtos& protos) {
  std::vector<ClientKey> keys;
  keys.reserve(protos.size());
  for (const std::string& proto : protos) {
    const absl::StatusOr<ClientKey> key = ClientKey::Make(proto);
    if (!key.ok()) {
      return MakeError(Reason::kInvalidKey,
                       absl::StrCat("keys[", keys.size(), "] has ", proto.size(),
                                    " bytes; a key has 1 to ", ClientKey::kMaxBytes));
    }
    keys.push_back(*key);
  }
  return keys;
}

void ItemsToProto(const std::vector<MultimodalItem>& items, MultimodalProtos* out) {
  for (const MultimodalItem& item : items) {
    v1::MultimodalItem* proto = out->Add();
    proto->set_digest(DigestToBytes(item.digest));
    proto->set_token_start(item.token_start);
    proto->set_token_count(item.token_count);
    proto->set_item_offset(item.item_offset);
  }
}

absl::StatusOr<std::vector<MultimodalItem>> ItemsFromProto(const MultimodalProtos& protos) {
  std::vector<MultimodalItem> items;
  items.reserve(protos.size());
  for (const v1::MultimodalItem& proto : protos) {
    if (proto.digest().size() != kDigestBytes) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("multimodal_items[", items.size(), "].digest has ",
                                    proto.digest().size(), " bytes; a digest has ", kDigestBytes));
    }
    items.push_back({.digest = DigestFromBytes(proto.digest()),
                     .token_start = proto.token_start(),
                     .token_count = proto.token_count(),
                     .item_offset = proto.item_offset()});
  }
  return items;
}

}  // namespace pagoda
