#include "engine/text/tokenizer/decoder.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/text/encoding/bounded_json.h"
#include "engine/text/encoding/byte_level.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/split/metaspace.h"

namespace pagoda {
namespace {

// Strips at most `count` of the character from one end.
std::string StripLeft(const std::string& text, const std::string& character, uint64_t count) {
  absl::string_view rest = text;
  for (; count > 0 && absl::StartsWith(rest, character); --count) {
    rest.remove_prefix(character.size());
  }
  return std::string(rest);
}

std::string StripRight(const std::string& text, const std::string& character, uint64_t count) {
  absl::string_view rest = text;
  for (; count > 0 && absl::EndsWith(rest, character); --count) {
    rest.remove_suffix(character.size());
  }
  return std::string(rest);
}

absl::Status NotServed(const std::string& what) {
  return BadTokenizer(absl::StrCat("the decoder '", what, "' is not supported"));
}

}  // namespace

absl::StatusOr<Decoder> Decoder::Parse(const nlohmann::json* json) {
  Decoder decoder;
  if (json == nullptr) {
    decoder.separator_ = " ";
    return decoder;
  }
  Stage stage = Stage::kTokens;
  if (absl::Status status = decoder.Add(*json, 0, stage); !status.ok()) return status;
  return decoder;
}

absl::Status Decoder::SetBytes(Bytes bytes, Stage& stage) {
  if (stage != Stage::kTokens) return NotServed("ByteLevel or ByteFallback behind the text");
  bytes_ = bytes;
  // ByteLevel yields one text. ByteFallback still yields tokens, which Fuse joins.
  stage = bytes == Bytes::kByteLevel ? Stage::kText : Stage::kBytes;
  return absl::OkStatus();
}

absl::Status Decoder::Add(const nlohmann::json& json, int depth, Stage& stage) {
  JsonFields fields(json, "decoder");
  const std::string type = fields.String("type", "");
  if (!fields.status().ok()) return fields.status();
  if (type == "ByteLevel") return SetBytes(Bytes::kByteLevel, stage);
  if (type == "ByteFallback") return SetBytes(Bytes::kByteFallback, stage);
  if (type == "Fuse") {
    stage = Stage::kText;
    return absl::OkStatus();
  }
  if (type == "Strip") return AddStrip(json, stage);
  if (type == "Replace" || type == "Metaspace") {
    if (stage != Stage::kTokens) return NotServed(type + " behind the bytes");
    return AddTokenStep(json, type);
  }
  if (type != "Sequence" || depth > 0) return NotServed(type);
  const nlohmann::json* list = fields.Require("decoders");
  if (list == nullptr) return fields.status();
  for (const nlohmann::json& element : *list) {
    if (absl::Status status = Add(element, depth + 1, stage); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Decoder::AddTokenStep(const nlohmann::json& json, const std::string& type) {
  JsonFields fields(json, "decoder");
  if (type == "Metaspace") {
    const absl::StatusOr<Metaspace> meta = Metaspace::Parse(json, "decoder");
    if (!meta.ok()) return meta.status();
    token_steps_.push_back([meta = *meta](const std::string& token, uint64_t index) {
      const bool drops = index == 0 && meta.scheme != Metaspace::Scheme::kNever;
      return absl::StrReplaceAll(token, {{meta.replacement, drops ? "" : " "}});
    });
    return absl::OkStatus();
  }
  const nlohmann::json* pattern = fields.Require("pattern");
  const std::string content = fields.String("content", "");
  if (!fields.status().ok()) return fields.status();
  JsonFields pattern_fields(*pattern, "decoder.pattern");
  const std::string wanted = pattern_fields.String("String", "");
  if (!pattern_fields.status().ok()) return pattern_fields.status();
  if (wanted.empty()) return NotServed("Replace of a regular expression");
  token_steps_.push_back([wanted, content](const std::string& token, uint64_t) {
    return absl::StrReplaceAll(token, {{wanted, content}});
  });
  return absl::OkStatus();
}

absl::Status Decoder::AddStrip(const nlohmann::json& json, Stage stage) {
  JsonFields fields(json, "decoder");
  const std::string character = fields.String("content", "");
  const uint64_t start = fields.Number("start", 0);
  const uint64_t stop = fields.Number("stop", 0);
  if (!fields.status().ok()) return fields.status();
  if (character.empty() || ReadUtf8(character).size != character.size()) {
    return BadTokenizer("decoder.content is not one character");
  }
  if (stage == Stage::kBytes) return NotServed("Strip between ByteFallback and Fuse");
  if (stage == Stage::kTokens) {
    token_steps_.push_back([=](const std::string& token, uint64_t) {
      return StripRight(StripLeft(token, character, start), character, stop);
    });
    return absl::OkStatus();
  }
  // The end of a growing text is unknown.
  if (stop > 0 || strip_count_ > 0) return NotServed("Strip of the text's end, or twice");
  strip_character_ = ReadUtf8(character).code_point;
  strip_count_ = static_cast<uint32_t>(std::min<uint64_t>(start, UINT32_MAX));
  return absl::OkStatus();
}

Decoder Decoder::ForPieces(Replaces replaces, FirstSpace first_space) {
  Decoder decoder;
  decoder.bytes_ = replaces == Replaces::kInvalidByte ? Bytes::kByteFallback : Bytes::kByteLevel;
  decoder.strip_character_ = ' ';
  decoder.strip_count_ = first_space == FirstSpace::kStrip ? 1 : 0;
  return decoder;
}

Decoder::Piece Decoder::PieceOf(std::string token, const State& state) const {
  for (const TokenStep& step : token_steps_) token = step(std::move(token), state.tokens);
  if (bytes_ == Bytes::kByteFallback) {
    if (const std::optional<char> byte = ByteOfToken(token)) {
      return {.bytes = std::string(1, *byte), .is_byte = true};
    }
  }
  if (bytes_ == Bytes::kByteLevel) {
    // An added token stands for itself.
    if (std::optional<std::string> bytes = VisibleToBytes(token)) return {*std::move(bytes)};
  }
  return {std::move(token)};
}

void Decoder::Replace(size_t bytes, std::string& out) const {
  const size_t count = bytes_ == Bytes::kByteFallback ? bytes : 1;
  for (size_t i = 0; i < count; ++i) out += kReplacementCharacter;
}

void Decoder::TakeCharacters(State& state, std::string& out) const {
  absl::string_view rest = state.incomplete;
  while (!rest.empty()) {
    const Utf8Prefix prefix = ReadUtf8(rest);
    if (prefix.kind == Utf8Prefix::Kind::kIncomplete) break;
    if (prefix.kind == Utf8Prefix::Kind::kCharacter) {
      out.append(rest.data(), prefix.size);
    } else {
      Replace(prefix.size, out);
    }
    rest.remove_prefix(prefix.size);
  }
  state.incomplete.erase(0, state.incomplete.size() - rest.size());
}

void Decoder::StripBeginning(State& state, std::string& text) const {
  size_t begin = 0;
  while (!state.has_begun && begin < text.size()) {
    const Utf8Prefix prefix = ReadUtf8(absl::string_view(text).substr(begin));
    if (state.stripped == strip_count_ || prefix.code_point != strip_character_) {
      state.has_begun = true;
      break;
    }
    begin += prefix.size;
    ++state.stripped;
  }
  text.erase(0, begin);
}

std::string Decoder::Add(const std::string& token, State& state) const {
  return AddPiece(PieceOf(token, state), state);
}

std::string Decoder::AddPiece(Piece piece, State& state) const {
  std::string text;
  if (!separator_.empty() && state.tokens > 0) piece.bytes.insert(0, separator_);
  // A character cannot begin in byte tokens and end in another token.
  if (bytes_ == Bytes::kByteFallback && !piece.is_byte && !state.incomplete.empty()) {
    Replace(state.incomplete.size(), text);
    state.incomplete.clear();
  }
  ++state.tokens;
  state.incomplete += piece.bytes;
  TakeCharacters(state, text);
  StripBeginning(state, text);
  return text;
}

std::string Decoder::BytesOf(const std::string& token, Place place) const {
  return BytesOfPiece(PieceOf(token, StateAt(place)), place);
}

std::string Decoder::BytesOfPiece(Piece piece, Place place) const {
  State state = StateAt(place);
  if (state.tokens > 0) piece.bytes.insert(0, separator_);
  StripBeginning(state, piece.bytes);
  return piece.bytes;
}

std::string Decoder::Finish(State& state) const {
  std::string text;
  if (!state.incomplete.empty()) Replace(state.incomplete.size(), text);
  StripBeginning(state, text);
  state = {};
  return text;
}

}  // namespace pagoda
