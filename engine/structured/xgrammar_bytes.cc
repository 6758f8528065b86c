#include "engine/structured/xgrammar_bytes.h"

// The library's inner headers.
#include <compiled_grammar_impl.h>
#include <grammar_impl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

using xgrammar::AdaptiveTokenMask;
using xgrammar::ParserState;
using xgrammar::SerializationError;

// Both processes run the same program, so values are as in memory.
class ByteWriter {
 public:
  template <typename T>
  void Value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <typename T>
  void Values(const T* values, size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    Value<uint64_t>(count);
    bytes_.append(reinterpret_cast<const char*>(values), count * sizeof(T));
  }
  void Values(const std::vector<int32_t>& values) { Values(values.data(), values.size()); }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

[[noreturn]] void Refuse(absl::string_view why) {
  throw std::runtime_error(absl::StrCat("the compiled grammar is damaged: ", why));
}

class ByteReader {
 public:
  explicit ByteReader(absl::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, Take(sizeof(value)), sizeof(value));
    return value;
  }
  template <typename T>
  std::vector<T> Values() {
    const uint64_t count = Value<uint64_t>();
    if (count > bytes_.size() / sizeof(T)) Refuse("it ends early");
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), Take(count * sizeof(T)), count * sizeof(T));
    return values;
  }
  std::string Text() {
    const std::vector<char> text = Values<char>();
    return {text.begin(), text.end()};
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  const char* Take(size_t size) {
    if (size > bytes_.size()) Refuse("it ends early");
    const char* const begin = bytes_.data();
    bytes_.remove_prefix(size);
    return begin;
  }

  absl::string_view bytes_;
};

// The library's grammar as JSON, without the automata of its rules: they are views of the whole
// grammar's automaton.
void WriteRules(const xgrammar::Grammar::Impl& grammar, ByteWriter& writer) {
  auto plain = std::make_shared<xgrammar::Grammar::Impl>(grammar);
  plain->per_rule_fsms.clear();
  plain->optimized = false;
  const std::string json = xgrammar::Grammar(std::move(plain)).SerializeJSON();
  writer.Values(json.data(), json.size());
  writer.Value(grammar.optimized);
  writer.Value<uint64_t>(grammar.per_rule_fsms.size());
  for (const auto& rule : grammar.per_rule_fsms) {
    writer.Value(rule.has_value());
    if (!rule.has_value()) continue;
    writer.Value<int32_t>(rule->GetFsm().GetStart());
    writer.Values(rule->GetFsm().GetEnds());
    writer.Value<int32_t>(rule->GetEdgeNum());
    writer.Value<int32_t>(rule->GetNodeNum());
  }
}

xgrammar::Grammar ReadRules(ByteReader& reader) {
  auto parsed = xgrammar::Grammar::DeserializeJSON(reader.Text());
  if (const auto* error = std::get_if<SerializationError>(&parsed)) {
    std::visit([](const auto& what) { Refuse(what.what()); }, *error);
  }
  auto grammar = std::get<xgrammar::Grammar>(std::move(parsed));
  if (grammar.IsNull() || grammar->complete_fsm.IsNull()) Refuse("it has no automaton");
  grammar->optimized = reader.Value<bool>();
  const auto rules = reader.Value<uint64_t>();
  for (uint64_t i = 0; i < rules; ++i) {
    auto& rule = grammar->per_rule_fsms.emplace_back();
    if (!reader.Value<bool>()) continue;
    const auto start = reader.Value<int32_t>();
    auto ends = reader.Values<int32_t>();
    const auto edges = reader.Value<int32_t>();
    const auto nodes = reader.Value<int32_t>();
    const auto is_state = [&](int32_t state) {
      return state >= 0 && state < grammar->complete_fsm.NumStates();
    };
    if (!is_state(start) || !std::all_of(ends.begin(), ends.end(), is_state)) {
      Refuse("a rule has a state that does not exist");
    }
    rule.emplace(xgrammar::CompactFSMWithStartEnd(grammar->complete_fsm, start, std::move(ends)),
                 edges, nodes);
  }
  if (const auto wrong = grammar->Validate(); wrong.has_value()) Refuse(*wrong);
  return grammar;
}

void WriteMask(const AdaptiveTokenMask& mask, ByteWriter& writer) {
  writer.Value(mask.store_type);
  writer.Values(mask.accepted_indices);
  writer.Values(mask.rejected_indices);
  writer.Values(mask.uncertain_indices);
  const int bits = mask.accepted_bitset.Size();
  std::vector<uint32_t> words(xgrammar::DynamicBitset::GetBufferSize(bits));
  if (bits > 0) xgrammar::DynamicBitset(bits, words.data()) = mask.accepted_bitset;
  writer.Value<int32_t>(bits);
  writer.Values(words.data(), words.size());
}

AdaptiveTokenMask ReadMask(const xgrammar::TokenizerInfo& vocabulary, ByteReader& reader) {
  using StoreType = AdaptiveTokenMask::StoreType;
  AdaptiveTokenMask mask;
  mask.store_type = reader.Value<StoreType>();
  mask.accepted_indices = reader.Values<int32_t>();
  mask.rejected_indices = reader.Values<int32_t>();
  mask.uncertain_indices = reader.Values<int32_t>();
  const auto bits = reader.Value<int32_t>();
  auto words = reader.Values<uint32_t>();
  const bool has_bits = mask.store_type == StoreType::kAcceptedBitset;
  if (!has_bits && mask.store_type != StoreType::kAccepted &&
      mask.store_type != StoreType::kRejected) {
    Refuse("a mask of tokens has no known form");
  }
  if (bits != (has_bits ? vocabulary.GetVocabSize() : 0) ||
      words.size() != static_cast<size_t>(xgrammar::DynamicBitset::GetBufferSize(bits))) {
    Refuse("a mask of tokens has another size");
  }
  if (bits > 0) {
    mask.accepted_bitset = xgrammar::DynamicBitset(bits);
    const xgrammar::DynamicBitset read(bits, words.data());
    mask.accepted_bitset = read;
  }
  const auto tokens = static_cast<int64_t>(vocabulary.GetSortedDecodedVocab().size());
  for (const auto* indices :
       {&mask.accepted_indices, &mask.rejected_indices, &mask.uncertain_indices}) {
    if (std::any_of(indices->begin(), indices->end(),
                    [&](int32_t index) { return index < 0 || index >= tokens; })) {
      Refuse("a mask has a token that does not exist");
    }
  }
  return mask;
}

}  // namespace

std::string BytesOf(const xgrammar::CompiledGrammar& grammar) {
  ByteWriter writer;
  WriteRules(*grammar->grammar.ImplPtr(), writer);
  writer.Value<uint64_t>(grammar->adaptive_token_mask_cache.size());
  for (const auto& [state, mask] : grammar->adaptive_token_mask_cache) {
    writer.Value(state);
    WriteMask(mask, writer);
  }
  return writer.Take();
}

xgrammar::CompiledGrammar GrammarOf(absl::string_view bytes,
                                    const xgrammar::TokenizerInfo& vocabulary) {
  ByteReader reader(bytes);
  auto grammar = std::make_shared<xgrammar::CompiledGrammar::Impl>();
  grammar->grammar = ReadRules(reader);
  grammar->tokenizer_info = vocabulary;
  const auto masks = reader.Value<uint64_t>();
  for (uint64_t i = 0; i < masks; ++i) {
    const auto state = reader.Value<ParserState>();
    grammar->adaptive_token_mask_cache.emplace(state, ReadMask(vocabulary, reader));
  }
  if (!reader.at_end()) Refuse("it does not end");
  return xgrammar::CompiledGrammar(std::move(grammar));
}

}  // namespace pagoda
