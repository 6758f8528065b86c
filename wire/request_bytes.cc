#include "wire/request_bytes.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/repeated_field.h"
#include "google/protobuf/wire_format_lite.h"
#include "wire/token_varints.h"

namespace pagoda {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using WireFormat = google::protobuf::internal::WireFormatLite;
using TokenIds = google::protobuf::RepeatedField<uint32_t>;

// Below this many bytes of tokens protobuf is fast enough.
constexpr size_t kLongPrompt = 512;

constexpr uint32_t BytesTag(int number) {
  return static_cast<uint32_t>(number << 3 | WireFormat::WIRETYPE_LENGTH_DELIMITED);
}

// A length-delimited field inside of a message.
struct Field {
  size_t begin;  // Of the tag.
  size_t end;
  absl::string_view content;
};

// The field with this tag, if the message has exactly one. nullopt also for damaged messages.
std::optional<Field> FindOnly(absl::string_view message, uint32_t wanted) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(message.data()),
                      static_cast<int>(message.size()));
  std::optional<Field> found;
  for (;;) {
    const auto begin = static_cast<size_t>(in.CurrentPosition());
    const uint32_t tag = in.ReadTag();
    if (tag == 0) return begin == message.size() ? found : std::nullopt;
    if (tag != wanted) {
      // The same field in another form, such as tokens that are not packed.
      if (tag >> 3 == wanted >> 3 || !WireFormat::SkipField(&in, tag)) return std::nullopt;
      continue;
    }
    uint32_t size;
    if (found.has_value() || !in.ReadVarint32(&size)) return std::nullopt;
    const auto content = static_cast<size_t>(in.CurrentPosition());
    if (size > message.size() - content || !in.Skip(static_cast<int>(size))) return std::nullopt;
    found = Field{begin, content + size, message.substr(content, size)};
  }
}

// The field that a message begins with, if it has this tag.
std::optional<Field> First(absl::string_view message, uint32_t wanted) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(message.data()),
                      static_cast<int>(message.size()));
  uint32_t size;
  if (in.ReadTag() != wanted || !in.ReadVarint32(&size)) return std::nullopt;
  const auto content = static_cast<size_t>(in.CurrentPosition());
  if (size > message.size() - content) return std::nullopt;
  return Field{0, content + size, message.substr(content, size)};
}

void AppendVarint(uint32_t value, std::string* out) {
  uint8_t bytes[5];
  out->append(reinterpret_cast<const char*>(bytes),
              static_cast<size_t>(CodedOutputStream::WriteVarint32ToArray(value, bytes) - bytes));
}

// The message with other content in the field.
std::string Replace(absl::string_view message, const Field& field, uint32_t tag,
                    absl::string_view content) {
  std::string made(message.substr(0, field.begin));
  AppendVarint(tag, &made);
  AppendVarint(static_cast<uint32_t>(content.size()), &made);
  absl::StrAppend(&made, content, message.substr(field.end));
  return made;
}

// An operation that can have a long prompt.
struct Kind {
  uint32_t tag;     // In v1::Operation.
  uint32_t tokens;  // The tag of the tokens in its request.
  TokenIds* (*field)(v1::Operation& operation);
};
constexpr Kind kKinds[] = {
    {BytesTag(v1::Operation::kAddSequenceFieldNumber),
     BytesTag(v1::AddSequenceRequest::kTokensFieldNumber),
     [](v1::Operation& operation) { return operation.mutable_add_sequence()->mutable_tokens(); }},
    {BytesTag(v1::Operation::kMatchPrefixFieldNumber),
     BytesTag(v1::MatchPrefixRequest::kTokensFieldNumber),
     [](v1::Operation& operation) { return operation.mutable_match_prefix()->mutable_tokens(); }},
    {BytesTag(v1::Operation::kQueryCapacityFieldNumber),
     BytesTag(v1::QueryCapacityRequest::kTokensFieldNumber),
     [](v1::Operation& operation) { return operation.mutable_query_capacity()->mutable_tokens(); }},
};
constexpr uint32_t kBatch = BytesTag(v1::SessionRequest::kBatchFieldNumber);
constexpr uint32_t kOperation = BytesTag(v1::Batch::kOperationsFieldNumber);

// A request whose first operation has a long prompt, without the prompt.
struct Cut {
  std::string rest;
  absl::string_view tokens;
  const Kind* kind;
};

std::optional<Cut> CutPrompt(absl::string_view bytes) {
  const std::optional<Field> batch = FindOnly(bytes, kBatch);
  if (!batch.has_value()) return std::nullopt;
  const std::optional<Field> operation = First(batch->content, kOperation);
  if (!operation.has_value() || operation->content.size() < kLongPrompt) return std::nullopt;
  for (const Kind& kind : kKinds) {
    const std::optional<Field> request = First(operation->content, kind.tag);
    // Behind it another request could replace it.
    if (!request.has_value() || request->end != operation->content.size()) continue;
    const std::optional<Field> tokens = FindOnly(request->content, kind.tokens);
    if (!tokens.has_value() || tokens->content.size() < kLongPrompt) return std::nullopt;
    std::string rest = absl::StrCat(request->content.substr(0, tokens->begin),
                                    request->content.substr(tokens->end));
    rest = Replace(operation->content, *request, kind.tag, rest);
    rest = Replace(batch->content, *operation, kOperation, rest);
    return Cut{Replace(bytes, *batch, kBatch, rest), tokens->content, &kind};
  }
  return std::nullopt;
}

}  // namespace

bool ParseSessionRequest(absl::string_view bytes, v1::SessionRequest* request) {
  if (const std::optional<Cut> cut = CutPrompt(bytes); cut.has_value()) {
    if (!request->ParseFromString(cut->rest)) return false;
    TokenIds* tokens = cut->kind->field(*request->mutable_batch()->mutable_operations(0));
    const auto count = static_cast<int>(CountVarints(cut->tokens));
    tokens->Reserve(count);
    if (ReadVarints(cut->tokens, tokens->AddNAlreadyReserved(count))) return true;
  }
  return request->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace pagoda
