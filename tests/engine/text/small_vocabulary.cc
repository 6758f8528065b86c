#include "tests/engine/text/small_vocabulary.h"

#include <algorithm>
#include <bit>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "engine/checkpoint/gguf/gguf_cursor.h"
#include "engine/text/encoding/byte_level.h"
#include "tests/engine/fixtures/gguf_content.h"

namespace pagoda {
namespace {

// The format's numbers.
constexpr uint32_t kInt32 = 5;
constexpr uint32_t kFloat32 = 6;
constexpr uint32_t kBool = 7;
constexpr uint32_t kString = 8;

std::string Whole(const std::string& key) { return absl::StrCat("tokenizer.ggml.", key); }

}  // namespace

SmallVocabulary SmallVocabulary::BytePairs(const std::string& pre,
                                           const std::vector<std::string>& tokens,
                                           const std::vector<std::string>& merges) {
  SmallVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.AddToken(BytesToVisible(std::string(1, static_cast<char>(byte))), kNormal);
  }
  for (const std::string& token : tokens) vocabulary.AddToken(token, kNormal);
  vocabulary.SetText("model", "gpt2");
  vocabulary.SetText("pre", pre);
  vocabulary.SetTexts("merges", merges);
  return vocabulary;
}

SmallVocabulary SmallVocabulary::Chat() {
  SmallVocabulary vocabulary;
  vocabulary.AddToken(BytesToVisible("\n"), kNormal);
  for (char character = ' '; character <= '~'; ++character) {
    vocabulary.AddToken(BytesToVisible(std::string(1, character)), kNormal);
  }
  vocabulary.AddToken("hi", kNormal);
  vocabulary.AddToken("<|im_start|>", kControl);
  vocabulary.AddToken("<|im_end|>", kControl);
  vocabulary.SetText("model", "gpt2");
  vocabulary.SetText("pre", "qwen2");
  vocabulary.SetTexts("merges", {"h i"});
  vocabulary.SetPlainText("tokenizer.chat_template",
                          "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                          "<|im_end|>\n{% endfor %}<|im_start|>assistant\n");
  return vocabulary;
}

SmallVocabulary SmallVocabulary::SentencePiece(
    const std::vector<std::pair<std::string, float>>& tokens) {
  SmallVocabulary vocabulary;
  vocabulary.AddToken("<unk>", kUnknown);
  vocabulary.AddToken("<s>", kControl);
  vocabulary.AddToken("</s>", kControl);
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.AddToken(absl::StrFormat("<0x%02X>", byte), kByte);
  }
  for (const auto& [token, score] : tokens) vocabulary.AddToken(token, kNormal, score);
  vocabulary.SetText("model", "llama");
  return vocabulary;
}

void SmallVocabulary::AddToken(const std::string& text, Type type, float score) {
  tokens_.push_back(text);
  types_.push_back(type);
  scores_.push_back(score);
  WriteTokens();
}

void SmallVocabulary::WriteTokens() {
  SetTexts("tokens", tokens_);
  SetIntegers("token_type", types_);
  SetFloats("scores", scores_);
}

void SmallVocabulary::SetText(const std::string& key, const std::string& value) {
  SetPlainText(Whole(key), value);
}

void SmallVocabulary::SetPlainText(const std::string& key, const std::string& value) {
  keys_[key] = GgufString(key, value);
}

void SmallVocabulary::SetTexts(const std::string& key, const std::vector<std::string>& values) {
  std::string elements;
  for (const std::string& value : values) elements += GgufText(value);
  keys_[Whole(key)] = GgufArray(Whole(key), kString, values.size(), elements);
}

void SmallVocabulary::SetNumber(const std::string& key, uint32_t value) {
  keys_[Whole(key)] = GgufUint32(Whole(key), value);
}

void SmallVocabulary::SetFlag(const std::string& key, bool value) {
  keys_[Whole(key)] = GgufText(Whole(key)) + GgufNumber(kBool, 4) + GgufNumber(value ? 1 : 0, 1);
}

void SmallVocabulary::SetFloats(const std::string& key, const std::vector<float>& values) {
  std::string elements;
  for (const float value : values) elements += GgufNumber(std::bit_cast<uint32_t>(value), 4);
  keys_[Whole(key)] = GgufArray(Whole(key), kFloat32, values.size(), elements);
}

void SmallVocabulary::SetIntegers(const std::string& key, const std::vector<int32_t>& values) {
  std::string elements;
  for (const int32_t value : values) elements += GgufNumber(static_cast<uint32_t>(value), 4);
  keys_[Whole(key)] = GgufArray(Whole(key), kInt32, values.size(), elements);
}

void SmallVocabulary::Remove(const std::string& key) { keys_.erase(Whole(key)); }

uint32_t SmallVocabulary::IdOf(const std::string& token) const {
  const auto found = std::find(tokens_.begin(), tokens_.end(), token);
  PAGODA_CHECK(found != tokens_.end(), "the vocabulary has the token");
  return static_cast<uint32_t>(found - tokens_.begin());
}

std::vector<std::string> SmallVocabulary::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, bytes] : keys_) keys.push_back(bytes);
  return keys;
}

std::string SmallVocabulary::AddTo(const std::string& content) const {
  GgufCursor cursor({reinterpret_cast<const std::byte*>(content.data()), content.size()});
  cursor.Take(8);  // The magic and the version.
  const auto tensors = cursor.Number<uint64_t>();
  const auto count = cursor.Number<uint64_t>();
  std::vector<std::string> keys = Keys();
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t begin = cursor.position();
    const absl::StatusOr<GgufMetadata> key = ReadGgufMetadata(cursor, 1);
    PAGODA_CHECK(key.ok(), "the file's own keys are valid");
    if (absl::StartsWith(key->begin()->first, "tokenizer.")) continue;
    keys.push_back(content.substr(begin, cursor.position() - begin));
  }
  const uint64_t keys_end = cursor.position();
  for (uint64_t i = 0; i < tensors; ++i) {
    cursor.Name();
    cursor.Take(8 * cursor.Number<uint32_t>());  // The shape.
    cursor.Take(4 + 8);                          // Type and offset.
  }
  const uint64_t header_end = cursor.position();
  std::string changed = content.substr(0, 16) + GgufNumber(keys.size(), 8);
  for (const std::string& key : keys) changed += key;
  changed += content.substr(keys_end, header_end - keys_end);
  changed.resize((changed.size() + 31) / 32 * 32);
  return changed + content.substr((header_end + 31) / 32 * 32);
}

const GgufMetadata& SmallVocabulary::Metadata() {
  bytes_.clear();
  for (const auto& [key, bytes] : keys_) bytes_ += bytes;
  GgufCursor cursor({reinterpret_cast<const std::byte*>(bytes_.data()), bytes_.size()});
  absl::StatusOr<GgufMetadata> metadata = ReadGgufMetadata(cursor, keys_.size());
  PAGODA_CHECK(metadata.ok(), "the keys are valid");
  metadata_ = *std::move(metadata);
  return metadata_;
}

}  // namespace pagoda
