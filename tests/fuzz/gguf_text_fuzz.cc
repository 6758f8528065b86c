// The tokenizer in the metadata of a GGUF file: keys of arbitrary bytes, a golden file with some
// bytes changed, a vocabulary made of decisions, and arbitrary text for each of them.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/checkpoint/gguf/gguf.h"
#include "engine/checkpoint/gguf/gguf_cursor.h"
#include "engine/text/chat/chat_format.h"
#include "engine/text/chat/gguf_chat.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/encoding/visible_spaces.h"
#include "engine/text/tokenizer/gguf_pre_tokenizers.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "tests/fuzz/byte_reader.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/planted.h"
#include "tests/fuzz/text_checks.h"

namespace pagoda::fuzz {
namespace {

constexpr const char* kKinds[] = {"bytes", "spaces", "gemma4"};
constexpr size_t kMaxText = 256;

std::string TextOf(absl::Span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

std::string ReadKind(const char* kind) {
  std::ifstream in(absl::StrCat(PAGODA_GOLDEN_DIR, "/text_gguf/", kind, ".gguf"));
  std::string content(std::istreambuf_iterator<char>(in), {});
  PAGODA_CHECK(!content.empty(), "the golden vocabularies are there");
  return content;
}

bool IsNamed(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  return reason == Reason::kInvalidCheckpoint || reason == Reason::kInvalidArgument;
}

void CheckMetadata(const GgufMetadata& metadata, const std::string& text) {
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromGguf(metadata);
  if (!tokenizer.ok()) {
    PAGODA_CHECK(IsNamed(tokenizer.status()), "a vocabulary is refused by name");
    return;
  }
  for (const TokenId token : (*tokenizer)->end_tokens()) {
    PAGODA_CHECK((*tokenizer)->Token(token) != nullptr, "an end token is one of the vocabulary");
  }
  CheckText(**tokenizer, text);
  const absl::StatusOr<ChatFormat> chat =
      ChatFormat::From(GgufChatSettings(metadata, **tokenizer), **tokenizer);
  PAGODA_CHECK(chat.ok() || IsNamed(chat.status()), "a template is refused by name");
}

void CheckKeys(const std::string& keys, uint64_t count, const std::string& text) {
  GgufCursor cursor({reinterpret_cast<const std::byte*>(keys.data()), keys.size()});
  const absl::StatusOr<GgufMetadata> metadata = ReadGgufMetadata(cursor, count);
  if (metadata.ok()) CheckMetadata(*metadata, text);
}

void CheckChangedFile(ByteReader& in) {
  std::string content = ReadKind(kKinds[in.Below(std::size(kKinds))]);
  for (uint32_t changes = in.Below(4); changes > 0; --changes) {
    const size_t place = in.Byte() * 256 + in.Byte();
    content[place % content.size()] = static_cast<char>(in.Byte());
  }
  const MemoryFile memory(content);
  const absl::StatusOr<GgufFile> file = GgufFile::Open(memory.path());
  if (file.ok()) CheckMetadata(file->metadata(), TextOf(in.Take(kMaxText)));
}

std::string Number(uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> 8 * i);
  return text;
}

std::string Text(const std::string& text) { return Number(text.size(), 8) + text; }

// A valid key with a value of this type.
std::string Key(const std::string& name, uint32_t type, const std::string& value) {
  return Text("tokenizer.ggml." + name) + Number(type, 4) + value;
}

// The format's numbers.
constexpr uint32_t kUint32 = 4;
constexpr uint32_t kFloat32 = 6;
constexpr uint32_t kBool = 7;
constexpr uint32_t kString = 8;
constexpr uint32_t kArray = 9;

std::string ArrayKey(const std::string& name, uint32_t type, uint64_t count,
                     const std::string& elements) {
  return Key(name, kArray, Number(type, 4) + Number(count, 8) + elements);
}

// A vocabulary of a few short tokens, of any model, pre-tokenizer, types and merges.
void CheckDecisions(ByteReader& in) {
  static const std::vector<std::string> names = GgufPreTokenizerNames();
  constexpr const char* kModels[] = {"gpt2", "llama", "gemma4"};
  const auto draw = [&] {
    constexpr const char* kParts[] = {"a", "b", " ",      "\u2581", "\u0120", "\u00E9", "1", "\n",
                                      "<", ">", "<0x61>", "<0xC3>", "\xC3",   "\xA9",   "'", "."};
    std::string text;
    for (uint32_t size = in.Below(4); size > 0; --size) text += kParts[in.Below(16)];
    return text;
  };
  std::string tokens;
  std::string types;
  std::string scores;
  const uint32_t count = 1 + in.Below(24);
  for (uint32_t i = 0; i < count; ++i) {
    tokens += Text(draw());
    types += Number(in.Below(8), 4);
    scores += Number(in.Byte() << 23, 4);  // Any exponent.
  }
  std::string merges;
  const uint32_t merge_count = in.Below(16);
  for (uint32_t i = 0; i < merge_count; ++i) merges += Text(absl::StrCat(draw(), " ", draw()));
  std::vector<std::string> keys = {
      Key("model", kString, Text(kModels[in.Below(std::size(kModels))])),
      Key("pre", kString, Text(names[in.Byte() % names.size()])),
      ArrayKey("tokens", kString, count, tokens),
      ArrayKey("token_type", kUint32, count, types),
      ArrayKey("scores", kFloat32, count, scores),
      ArrayKey("merges", kString, merge_count, merges)};
  for (const char* const id : {"bos_token_id", "eos_token_id", "unknown_token_id"}) {
    if (in.OneIn(2)) keys.push_back(Key(id, kUint32, Number(in.Byte(), 4)));
  }
  for (const char* const flag : {"add_bos_token", "add_eos_token", "add_space_prefix"}) {
    if (in.OneIn(2)) keys.push_back(Key(flag, kBool, Number(in.Below(2), 1)));
  }
  std::string bytes;
  for (const std::string& key : keys) bytes += key;
  const std::string text = in.OneIn(2) ? TextOf(in.Take(kMaxText)) : absl::StrCat(draw(), draw());
  CheckKeys(bytes, keys.size(), text);
}

// A vocabulary with all bytes decodes a text to itself.
void CheckRoundTrip(const std::string& text) {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    const MemoryFile memory(ReadKind("gemma4"));
    return *Tokenizer::FromGguf(GgufFile::Open(memory.path())->metadata());
  }();
  if (absl::StrContains(text, kVisibleSpace)) return;  // It becomes a space.
  const absl::StatusOr<std::vector<TokenId>> ids =
      tokenizer->Encode(text, SpecialTokens::kLeaveOut);
  PAGODA_CHECK(ids.ok() == IsUtf8(text), "all of UTF-8 is encoded, and nothing else");
  if (!ids.ok()) return;
  std::string decoded = tokenizer->Decode(*ids, SpecialTokens::kKeep);
  if (Planted("LostGgufCharacter") && ids->size() > 3) decoded.pop_back();
  PAGODA_CHECK(decoded == text, "what was encoded is decoded");
}

void Check(absl::Span<const uint8_t> bytes) {
  ByteReader in(bytes);
  switch (in.Below(4)) {
    case 0: {
      const uint32_t count = in.Below(16);
      CheckKeys(TextOf(in.Take(bytes.size())), count, "any text");
      return;
    }
    case 1:
      CheckChangedFile(in);
      return;
    case 2:
      CheckDecisions(in);
      return;
    case 3:
      CheckRoundTrip(TextOf(in.Take(bytes.size())));
      return;
  }
}

}  // namespace
}  // namespace pagoda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::fuzz::Check({data, size});
  return 0;
}
