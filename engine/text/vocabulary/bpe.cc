#include "engine/text/vocabulary/bpe.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/encoding/bounded_json.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/vocabulary/bpe_merger.h"

namespace pagoda {
namespace {

absl::StatusOr<TokenTable> ReadVocabulary(const nlohmann::json& vocab) {
  if (!vocab.is_object() || vocab.empty()) {
    return BadTokenizer("model.vocab is not an object with tokens");
  }
  uint64_t size = 0;
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= TokenTable::kMaxTokens) {
      return BadTokenizer(absl::StrCat("model.vocab: the id of '", token.substr(0, 80),
                                       "' is not an integer below ", TokenTable::kMaxTokens));
    }
    size = std::max(size, id.get<uint64_t>() + 1);
  }
  TokenTable tokens(size, vocab.size());
  for (const auto& [token, id] : vocab.items()) {
    if (tokens.Add(id.get<TokenId>(), token) == TokenTable::Added::kIdTaken) {
      return BadTokenizer(absl::StrCat("model.vocab: two tokens have the id ", id.get<uint64_t>()));
    }
  }
  return tokens;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Bpe>> Bpe::Parse(const nlohmann::json& model) {
  JsonFields fields(model, "model");
  const std::string type = fields.String("type", "BPE");  // Old files lack this field.
  if (fields.status().ok() && type != "BPE") {
    return BadTokenizer(absl::StrCat("the model '", type, "' is not supported, only BPE is"));
  }
  const bool byte_fallback = fields.Bool("byte_fallback", false);
  const bool fuse_unknown = fields.Bool("fuse_unk", false);
  const bool ignore_merges = fields.Bool("ignore_merges", false);
  const std::string unknown = fields.String("unk_token", "");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!fields.String(key, "").empty()) {
      return BadTokenizer(absl::StrCat("model.", key, " is not supported"));
    }
  }
  const nlohmann::json* dropout = fields.Find("dropout");
  if (dropout != nullptr && *dropout != 0.0) {
    return BadTokenizer("model.dropout is not supported");
  }
  const nlohmann::json* vocab = fields.Require("vocab");
  const nlohmann::json* merges = fields.Require("merges");
  if (!fields.status().ok()) return fields.status();
  absl::StatusOr<TokenTable> tokens = ReadVocabulary(*vocab);
  if (!tokens.ok()) return tokens.status();
  auto bpe = absl::WrapUnique(new Bpe(*std::move(tokens)));
  bpe->byte_fallback_ = byte_fallback;
  bpe->fuse_unknown_ = fuse_unknown;
  bpe->ignore_merges_ = ignore_merges;
  if (absl::Status status = bpe->ReadMerges(*merges); !status.ok()) return status;
  if (!unknown.empty()) {
    bpe->unknown_ = bpe->tokens_.Find(unknown);
    if (!bpe->unknown_.has_value()) return BadTokenizer("model.unk_token is not in model.vocab");
  }
  if (bpe->byte_fallback_) {
    for (int byte = 0; byte < 256; ++byte) {
      bpe->bytes_.push_back(bpe->tokens_.Find(absl::StrFormat("<0x%02X>", byte)));
    }
  }
  return bpe;
}

absl::Status Bpe::ReadMerges(const nlohmann::json& merges) {
  if (!merges.is_array()) return BadTokenizer("model.merges is not a list");
  merges_.reserve(merges.size());
  uint32_t rank = 0;
  for (const nlohmann::json& merge : merges) {
    absl::string_view left;
    absl::string_view right;
    if (merge.is_string()) {
      const absl::string_view text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != absl::string_view::npos) {
        left = text.substr(0, space);
        right = text.substr(space + 1);
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    }
    if (absl::Status status = AddMerge(left, right, rank); !status.ok()) return status;
    ++rank;
  }
  return absl::OkStatus();
}

absl::Status Bpe::AddMerge(absl::string_view left, absl::string_view right, uint32_t rank) {
  const std::optional<TokenId> left_id = tokens_.Find(left);
  const std::optional<TokenId> right_id = tokens_.Find(right);
  const std::optional<TokenId> both = tokens_.Find(absl::StrCat(left, right));
  if (!left_id.has_value() || !right_id.has_value() || !both.has_value()) {
    return BadTokenizer(
        absl::StrCat("model.merges: number ", rank,
                     ": two tokens, or their merged token, are not in model.vocab"));
  }
  merges_[{*left_id, *right_id}] = {rank, *both};
  return absl::OkStatus();
}

bool Bpe::AddBytes(absl::string_view character, std::vector<TokenId>& out) const {
  if (!byte_fallback_) return false;
  const auto token_of = [&](char byte) { return bytes_[static_cast<uint8_t>(byte)]; };
  if (!std::all_of(character.begin(), character.end(),
                   [&](char byte) { return token_of(byte).has_value(); })) {
    return false;
  }
  for (const char byte : character) out.push_back(*token_of(byte));
  return true;
}

std::vector<TokenId> Bpe::Characters(absl::string_view word) const {
  std::vector<TokenId> tokens;
  bool after_unknown = false;
  while (!word.empty()) {
    const absl::string_view character = word.substr(0, ReadUtf8(word).size);
    word.remove_prefix(character.size());
    if (const std::optional<TokenId> id = tokens_.Find(character)) {
      tokens.push_back(*id);
      after_unknown = false;
    } else if (AddBytes(character, tokens)) {
      after_unknown = false;
    } else if (unknown_.has_value()) {
      if (!after_unknown || !fuse_unknown_) tokens.push_back(*unknown_);
      after_unknown = true;
    }
  }
  return tokens;
}

void Bpe::EncodeAnew(absl::string_view word, std::vector<TokenId>& out) const {
  if (ignore_merges_) {
    if (const std::optional<TokenId> id = tokens_.Find(word)) {
      out.push_back(*id);
      return;
    }
  }
  if (has_pieces_) return EncodePieces(word, out);
  Merger(*this, Characters(word)).Run(out);
}

void Bpe::Encode(absl::string_view word, std::vector<TokenId>& out) const {
  cache_.Encode(
      word, [this](absl::string_view anew, std::vector<TokenId>& to) { EncodeAnew(anew, to); },
      out);
}

}  // namespace pagoda
