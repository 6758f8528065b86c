#include "engine/text/tokenizer/gguf_tokenizer.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "engine/text/encoding/byte_level.h"
#include "engine/text/encoding/visible_spaces.h"

namespace pagoda {
namespace {

bool IsSearched(GgufTokenType type) {
  return type == GgufTokenType::kControl || type == GgufTokenType::kUserDefined ||
         type == GgufTokenType::kUnknown;
}

Decoder DecoderFor(const GgufVocabulary& vocabulary) {
  const bool has_byte_tokens = vocabulary.model == GgufVocabulary::Model::kSentencePiece ||
                               vocabulary.pre_tokenizer->has_visible_spaces;
  return Decoder::ForPieces(
      has_byte_tokens ? Decoder::Replaces::kInvalidByte : Decoder::Replaces::kInvalidRun,
      vocabulary.add_space_prefix ? Decoder::FirstSpace::kStrip : Decoder::FirstSpace::kKeep);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> GgufTokenizer::Make(const GgufMetadata& metadata) {
  absl::StatusOr<GgufVocabulary> vocabulary = GgufVocabulary::Read(metadata);
  if (!vocabulary.ok()) return vocabulary.status();
  auto tokenizer = absl::WrapUnique(new GgufTokenizer);
  if (absl::Status status = tokenizer->AddSpecialTokens(*vocabulary); !status.ok()) return status;
  tokenizer->decoder_ = DecoderFor(*vocabulary);
  tokenizer->add_space_prefix_ = vocabulary->add_space_prefix;
  tokenizer->bos_ = vocabulary->bos;
  tokenizer->eos_ = vocabulary->eos;
  tokenizer->add_bos_ = vocabulary->add_bos;
  tokenizer->add_eos_ = vocabulary->add_eos;
  tokenizer->end_tokens_ = std::move(vocabulary->end_tokens);
  tokenizer->types_ = std::move(vocabulary->types);
  if (vocabulary->model == GgufVocabulary::Model::kSentencePiece) {
    tokenizer->has_visible_spaces_ = true;
    tokenizer->scores_ = std::make_unique<ScoreBpe>(
        std::move(vocabulary->tokens), std::move(vocabulary->scores), vocabulary->unknown);
    return tokenizer;
  }
  const GgufPreTokenizer& pre_tokenizer = *vocabulary->pre_tokenizer;
  tokenizer->has_visible_spaces_ = pre_tokenizer.has_visible_spaces;
  tokenizer->joins_newlines_ = pre_tokenizer.joins_newlines;
  tokenizer->words_ = GgufWords::For(pre_tokenizer);
  tokenizer->bpe_ =
      Bpe::FromGguf(std::move(vocabulary->tokens),
                    {.merges = std::move(vocabulary->merges),
                     .bytes = pre_tokenizer.has_visible_spaces ? Bpe::Gguf::Bytes::kHex
                                                               : Bpe::Gguf::Bytes::kAscii,
                     .ignore_merges = pre_tokenizer.ignore_merges});
  return tokenizer;
}

absl::Status GgufTokenizer::AddSpecialTokens(const GgufVocabulary& vocabulary) {
  using SpacesBehind = SpecialTokenFinder::SpacesBehind;
  for (size_t i = 0; i < vocabulary.types.size(); ++i) {
    if (!IsSearched(vocabulary.types[i])) continue;
    const auto id = static_cast<TokenId>(i);
    const std::string& text = *vocabulary.tokens.Token(id);
    if (text.size() > SpecialTokenFinder::kMaxTokenBytes) {
      return BadVocabulary(absl::StrCat("the special token ", i, " has ", text.size(),
                                        " bytes; at most ", SpecialTokenFinder::kMaxTokenBytes));
    }
    const bool drops = vocabulary.drops_spaces_behind_special && text != "<unk>" && text != "<s>" &&
                       text != "<|endoftext|>";
    finder_.Add(text, id, drops ? SpacesBehind::kDropped : SpacesBehind::kKept);
  }
  return absl::OkStatus();
}

void GgufTokenizer::EncodeWord(absl::string_view word, std::vector<TokenId>& out) const {
  if (joins_newlines_ && word.find_first_not_of('\n') == absl::string_view::npos) {
    if (const std::optional<TokenId> token = bpe_->tokens().Find(word)) {
      out.push_back(*token);
      return;
    }
  }
  bpe_->EncodeAnew(has_visible_spaces_ ? std::string(word) : BytesToVisible(word), out);
}

absl::Status GgufTokenizer::EncodePart(absl::string_view text, absl::Time deadline,
                                       std::vector<TokenId>& out) const {
  std::string visible;
  if (has_visible_spaces_) {
    visible = SpacesToVisible(text);
    text = visible;
  }
  if (scores_ != nullptr) return scores_->Encode(text, deadline, out);
  const absl::StatusOr<std::vector<TextRange>> words = words_.Split(text, deadline);
  if (!words.ok()) return words.status();
  for (const TextRange& word : *words) {
    cache_.Encode(
        text.substr(word.begin, word.end - word.begin),
        [this](absl::string_view anew, std::vector<TokenId>& to) { EncodeWord(anew, to); }, out);
  }
  return absl::OkStatus();
}

absl::Status GgufTokenizer::EncodeText(absl::string_view text, SpecialTokens around,
                                       absl::Time deadline, std::vector<TokenId>& out) const {
  const auto add = [&](bool adds, std::optional<TokenId> token) {
    if (around == SpecialTokens::kKeep && adds && token.has_value()) out.push_back(*token);
  };
  const absl::StatusOr<std::vector<SpecialTokenFinder::Part>> parts = finder_.Split(text, deadline);
  if (!parts.ok()) return parts.status();
  add(add_bos_, bos_);
  bool follows_special = true;
  for (const SpecialTokenFinder::Part& part : *parts) {
    if (part.token.has_value()) {
      out.push_back(*part.token);
      follows_special = true;
      continue;
    }
    const bool adds_space = add_space_prefix_ && follows_special;
    absl::Status status = adds_space ? EncodePart(absl::StrCat(" ", part.text), deadline, out)
                                     : EncodePart(part.text, deadline, out);
    if (!status.ok()) return status;
    follows_special = false;
  }
  add(add_eos_, eos_);
  return absl::OkStatus();
}

Decoder::Piece GgufTokenizer::PieceOf(TokenId id, const std::string& text) const {
  switch (types_[id]) {
    case GgufTokenType::kUnknown:
    case GgufTokenType::kControl:
    case GgufTokenType::kUserDefined:
      return {text};
    case GgufTokenType::kUndefined:
    case GgufTokenType::kUnused:
      return {};
    case GgufTokenType::kByte:
      if (const std::optional<char> byte = ByteOfToken(text)) {
        return {.bytes = std::string(1, *byte), .is_byte = true};
      }
      break;
    case GgufTokenType::kNormal:
      break;
  }
  if (has_visible_spaces_) return {VisibleToSpaces(text)};
  std::optional<std::string> bytes = VisibleToBytes(text);
  return {bytes.has_value() ? *std::move(bytes) : text};
}

std::string GgufTokenizer::DecodeToken(TokenId id, const std::string& text,
                                       Decoder::State& state) const {
  return decoder_.AddPiece(PieceOf(id, text), state);
}

std::optional<TokenId> GgufTokenizer::Find(absl::string_view token) const {
  return tokens().Find(token);
}

const std::string* GgufTokenizer::Token(TokenId id) const { return tokens().Token(id); }

bool GgufTokenizer::IsSpecial(TokenId id) const {
  return id < types_.size() &&
         (types_[id] == GgufTokenType::kControl || types_[id] == GgufTokenType::kUnknown);
}

}  // namespace pagoda
