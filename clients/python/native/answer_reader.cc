#include "clients/python/native/answer_reader.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "clients/python/native/wire_reader.h"

namespace pagoda::python {
namespace {

// A field number of a result, and its place in a SequenceResult.
struct Field {
  uint64_t number;
  uint32_t SequenceResult::*value;
};

// What a result's message has, by field numbers of proto/pagoda/v1/cache.proto. 0: no such field.
struct Layout {
  uint64_t result;  // In OperationResult.
  uint64_t tables;
  uint64_t ready_ticket;
  std::span<const Field> fields;
};

using Result = SequenceResult;
constexpr std::array kAdd = {Field{1, &Result::matched_tokens},
                             Field{5, &Result::matched_below_tokens}};
constexpr std::array kCommit = {Field{1, &Result::token_count}};
constexpr std::array kAppend = {Field{2, &Result::token_count}};
constexpr std::array kDescribe = {Field{1, &Result::token_count},
                                  Field{2, &Result::computed_tokens},
                                  Field{3, &Result::reserved_tokens}, Field{5, &Result::losses}};
constexpr std::array kFork = {Field{1, &Result::token_count}, Field{2, &Result::computed_tokens},
                              Field{4, &Result::losses}};
constexpr std::array kTruncate = {Field{1, &Result::token_count},
                                  Field{2, &Result::computed_tokens}};
// AddSequenceResult.matched_secondary_tokens: this client does not show it.
constexpr uint64_t kMatchedSecondary = 4;

constexpr std::array kLayouts = {
    Layout{.result = 4, .tables = 2, .ready_ticket = 3, .fields = kAdd},
    Layout{.result = 5, .tables = 1, .ready_ticket = 2, .fields = {}},  // Reserve.
    Layout{.result = 6, .tables = 0, .ready_ticket = 0, .fields = kCommit},
    Layout{.result = 7, .tables = 1, .ready_ticket = 3, .fields = kAppend},
    Layout{.result = 8, .tables = 0, .ready_ticket = 0, .fields = {}},  // Free.
    Layout{.result = 11, .tables = 4, .ready_ticket = 6, .fields = kDescribe},
    Layout{.result = 12, .tables = 3, .ready_ticket = 5, .fields = kFork},
    Layout{.result = 13, .tables = 3, .ready_ticket = 4, .fields = kTruncate},
};

bool ReadBlock(std::string_view bytes, BlockHandle* block) {
  WireReader reader(bytes);
  while (reader.Next()) {
    switch (reader.tag()) {
      case WireReader::Varint(1):
        block->block_id = reader.value32();
        break;
      case WireReader::Varint(2):
        block->generation = reader.value32();
        break;
      case WireReader::Varint(3):
        block->slot_index = reader.value32();
        break;
      default:
        return false;
    }
  }
  return reader.at_end();
}

bool ReadTable(std::string_view bytes, BlockTable* table) {
  // A block whose fields are not 0 takes at least eight bytes.
  table->blocks.reserve(bytes.size() / 8);
  WireReader reader(bytes);
  while (reader.Next()) {
    switch (reader.tag()) {
      case WireReader::Varint(1):
        table->window_size = reader.value32();
        break;
      case WireReader::Bytes(2):
        if (!ReadBlock(reader.bytes(), &table->blocks.emplace_back())) return false;
        break;
      case WireReader::Varint(3):
        table->first_block = reader.value32();
        break;
      default:
        return false;
    }
  }
  return reader.at_end();
}

bool ReadField(const WireReader& reader, const Layout& layout, SequenceResult* result) {
  if (layout.tables != 0 && reader.tag() == WireReader::Bytes(layout.tables)) {
    return ReadTable(reader.bytes(), &result->tables.emplace_back());
  }
  if (layout.ready_ticket != 0 && reader.tag() == WireReader::Varint(layout.ready_ticket)) {
    result->ready_ticket = reader.value();
    return true;
  }
  for (const Field& field : layout.fields) {
    if (reader.tag() == WireReader::Varint(field.number)) {
      result->*field.value = reader.value32();
      return true;
    }
  }
  return layout.fields.data() == kAdd.data() &&
         reader.tag() == WireReader::Varint(kMatchedSecondary);
}

// Reads an OperationResult, which has exactly one result.
bool ReadResult(std::string_view bytes, SequenceResult* result) {
  WireReader outer(bytes);
  if (!outer.Next()) return false;
  const auto* layout = std::ranges::find_if(
      kLayouts, [&](const Layout& one) { return outer.tag() == WireReader::Bytes(one.result); });
  if (layout == kLayouts.end()) return false;
  WireReader reader(outer.bytes());
  while (reader.Next()) {
    if (!ReadField(reader, *layout, result)) return false;
  }
  return reader.at_end() && !outer.Next() && outer.at_end();
}

bool ReadBatchResult(std::string_view bytes, Answer* answer) {
  WireReader reader(bytes);
  while (reader.Next()) {
    switch (reader.tag()) {
      case WireReader::Bytes(1):
        if (!ReadResult(reader.bytes(), &answer->results.emplace_back())) return false;
        break;
      case WireReader::Varint(2):
        answer->revision = reader.value();
        break;
      case WireReader::Varint(3):
        answer->completed_ticket = reader.value();
        break;
      case WireReader::Varint(5):
        answer->completed_fetch_ticket = reader.value();
        break;
      case WireReader::Varint(6):
        answer->completed_backup_ticket = reader.value();
        break;
      default:
        return false;
    }
  }
  return reader.at_end();
}

}  // namespace

bool ReadAnswer(std::string_view bytes, Answer* answer) {
  WireReader reader(bytes);
  // A second `result` would be merged into the first: rare enough for protobuf.
  bool has_result = false;
  while (reader.Next()) {
    if (reader.tag() == WireReader::Bytes(1) && !std::exchange(has_result, true)) {
      if (!ReadBatchResult(reader.bytes(), answer)) return false;
    } else if (reader.tag() != WireReader::Varint(2)) {  // SessionResponse.batch_id.
      return false;
    }
  }
  return has_result && reader.at_end();
}

}  // namespace pagoda::python
