#include "engine/text/tokenizer/tokenizer.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/text/encoding/bounded_json.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/tokenizer/gguf_tokenizer.h"
#include "engine/text/tokenizer/json_tokenizer.h"

namespace pagoda {
namespace {

// Per text.
constexpr absl::Duration kEncodeTime = absl::Seconds(10);

absl::Status BadPrompt(absl::string_view what) {
  return MakeError(Reason::kInvalidPrompt, absl::StrCat("the text ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& file) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(file, error);
  if (error) return absl::NotFoundError(absl::StrCat("cannot read ", file));
  if (size > kMaxFileBytes) return BadTokenizer(absl::StrCat(file, " is too large"));
  std::string text(size, '\0');
  std::ifstream in(file, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(size))) {
    return absl::NotFoundError(absl::StrCat("cannot read ", file));
  }
  return Parse(text);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Parse(absl::string_view json) {
  return JsonTokenizer::Parse(json);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromGguf(const GgufMetadata& metadata) {
  return GgufTokenizer::Make(metadata);
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::Encode(absl::string_view text,
                                                       SpecialTokens around) const {
  if (text.size() > kMaxTextBytes) {
    return BadPrompt(absl::StrCat("has ", text.size(), " bytes; at most ", kMaxTextBytes));
  }
  if (!IsUtf8(text)) return BadPrompt("is not valid UTF-8");
  std::vector<TokenId> tokens;
  absl::Status status = EncodeText(text, around, absl::Now() + kEncodeTime, tokens);
  if (!status.ok()) return status;
  return tokens;
}

std::string Tokenizer::Decode(absl::Span<const TokenId> tokens, SpecialTokens special) const {
  StreamDecoder stream(this, special);
  std::string text;
  for (const TokenId token : tokens) text += stream.Add(token);
  return text + stream.Finish();
}

std::string Tokenizer::Bytes(TokenId id, Decoder::Place place) const {
  const std::string* const text = Token(id);
  return text == nullptr ? std::string() : BytesOfToken(id, *text, place);
}

std::string StreamDecoder::Add(TokenId token) {
  const std::string* const text = tokenizer_.Token(token);
  if (text == nullptr) return "";
  if (special_ == SpecialTokens::kLeaveOut && tokenizer_.IsSpecial(token)) return "";
  return tokenizer_.DecodeToken(token, *text, state_);
}

}  // namespace pagoda
