// A tokenizer.json of arbitrary bytes, a valid one with some bytes changed, and arbitrary text for
// both.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/text/chat/chat_format.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "tests/fuzz/byte_reader.h"
#include "tests/fuzz/planted.h"
#include "tests/fuzz/text_checks.h"

namespace pagoda {
namespace {

constexpr const char* kKinds[] = {"qwen", "gemma", "metaspace"};
constexpr size_t kMaxText = 256;

std::string TextOf(absl::Span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

std::string ReadKind(const char* kind) {
  std::ifstream in(absl::StrCat(PAGODA_GOLDEN_DIR, "/text/", kind, "/tokenizer.json"));
  std::string text(std::istreambuf_iterator<char>(in), {});
  PAGODA_CHECK(!text.empty(), "the golden tokenizers are there");
  return text;
}

void CheckFile(const std::string& file, const std::string& text) {
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Parse(file);
  if (!tokenizer.ok()) {
    PAGODA_CHECK(ReasonOf(tokenizer.status()) == Reason::kInvalidCheckpoint ||
                     ReasonOf(tokenizer.status()) == Reason::kInvalidPrompt,
                 "a file is refused by name");
    return;
  }
  fuzz::CheckText(**tokenizer, text);
}

// A tokenizer that changes nothing decodes a text to itself.
void CheckRoundTrip(const std::string& text) {
  static const std::unique_ptr<Tokenizer> tokenizer = *Tokenizer::Parse(ReadKind("llama3"));
  const absl::StatusOr<std::vector<TokenId>> ids =
      tokenizer->Encode(text, SpecialTokens::kLeaveOut);
  PAGODA_CHECK(ids.ok() == IsUtf8(text), "all of UTF-8 is encoded, and nothing else");
  if (!ids.ok()) return;
  std::string decoded = tokenizer->Decode(*ids, SpecialTokens::kKeep);
  if (fuzz::Planted("LostCharacter") && ids->size() > 3) decoded.pop_back();
  PAGODA_CHECK(decoded == text, "what was encoded is decoded");
}

void CheckTemplate(const std::string& text) {
  static const std::unique_ptr<Tokenizer> tokenizer = *Tokenizer::Parse(ReadKind("qwen"));
  const absl::StatusOr<ChatFormat> format = ChatFormat::From(
      {.chat_template = text, .bos_token = "", .eos_token = "<|im_end|>"}, *tokenizer);
  if (!format.ok()) return;
  const std::vector<ChatMessage> messages = {{"user", text}};
  const absl::StatusOr<std::string> prompt =
      format->Render({.messages = messages}, absl::CivilSecond(2025, 1, 1));
  PAGODA_CHECK(!prompt.ok() || IsUtf8(*prompt), "a prompt is UTF-8");
}

void Check(absl::Span<const uint8_t> bytes) {
  fuzz::ByteReader in(bytes);
  switch (in.Below(4)) {
    case 0:
      CheckFile(TextOf(in.Take(bytes.size())), "any text");
      return;
    case 1: {
      std::string file = ReadKind(kKinds[in.Below(std::size(kKinds))]);
      for (uint32_t changes = in.Below(4); changes > 0; --changes) {
        const size_t place = in.Byte() * 256 + in.Byte();
        file[place % file.size()] = static_cast<char>(in.Byte());
      }
      CheckFile(file, TextOf(in.Take(kMaxText)));
      return;
    }
    case 2:
      CheckRoundTrip(TextOf(in.Take(bytes.size())));
      return;
    case 3:
      CheckTemplate(TextOf(in.Take(bytes.size())));
      return;
  }
}

}  // namespace
}  // namespace pagoda

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::Check({data, size});
  return 0;
}
