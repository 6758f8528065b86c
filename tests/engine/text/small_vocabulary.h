// The metadata of a GGUF file with a small vocabulary, valid or invalid.
#ifndef PAGODA_TESTS_ENGINE_TEXT_SMALL_VOCABULARY_H_
#define PAGODA_TESTS_ENGINE_TEXT_SMALL_VOCABULARY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/gguf/gguf_values.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace pagoda {

// The keys "tokenizer.ggml..." and others of one file. Later values replace earlier ones.
class SmallVocabulary {
 public:
  // Numbered by the format.
  enum Type : int { kUndefined, kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

  // Byte pairs: the tokens are the visible characters of all bytes, and these.
  static SmallVocabulary BytePairs(const std::string& pre, const std::vector<std::string>& tokens,
                                   const std::vector<std::string>& merges);
  // Byte pairs of the visible characters of ASCII, spaces and line ends alone, with the
  // pre-tokenizer of Qwen 2, "hi", "<|im_start|>", "<|im_end|>" and a template with them: fewer
  // than 256 tokens.
  static SmallVocabulary Chat();
  // SentencePiece: <unk>, <s>, </s>, the 256 byte tokens, and these with their scores.
  static SmallVocabulary SentencePiece(const std::vector<std::pair<std::string, float>>& tokens);

  // Appends a token to the vocabulary.
  void AddToken(const std::string& text, Type type, float score = 0);

  // `key` is without "tokenizer.ggml.".
  void SetText(const std::string& key, const std::string& value);
  void SetTexts(const std::string& key, const std::vector<std::string>& values);
  void SetNumber(const std::string& key, uint32_t value);
  void SetFlag(const std::string& key, bool value);
  void SetFloats(const std::string& key, const std::vector<float>& values);
  void SetIntegers(const std::string& key, const std::vector<int32_t>& values);
  // A key with its whole name.
  void SetPlainText(const std::string& key, const std::string& value);
  void Remove(const std::string& key);

  uint32_t IdOf(const std::string& token) const;
  const std::vector<std::string>& tokens() const { return tokens_; }

  // The keys with their values in the format.
  std::vector<std::string> Keys() const;
  // A GGUF file's content with these keys instead of those of its tokenizer.
  std::string AddTo(const std::string& content) const;
  // Refers to this object, until the next call.
  const GgufMetadata& Metadata();
  absl::StatusOr<std::unique_ptr<Tokenizer>> Make() { return Tokenizer::FromGguf(Metadata()); }

 private:
  void WriteTokens();

  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  std::vector<float> scores_;
  std::map<std::string, std::string> keys_;  // In the format.
  std::string bytes_;                        // To which metadata_ refers.
  GgufMetadata metadata_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_TEXT_SMALL_VOCABULARY_H_
