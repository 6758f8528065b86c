#include "engine/text/tokenizer/json_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/text/encoding/bounded_json.h"

namespace pagoda {
namespace {

// For the normalized text of an added token.
constexpr absl::Duration kNormalizeTime = absl::Seconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> JsonTokenizer::Parse(absl::string_view json) {
  const absl::StatusOr<nlohmann::json> root = ParseBoundedJson(json, kMaxJsonDepth);
  if (!root.ok()) return BadTokenizer(root.status().message());
  auto tokenizer = absl::WrapUnique(new JsonTokenizer);
  if (absl::Status status = tokenizer->Read(*root); !status.ok()) return status;
  return tokenizer;
}

absl::Status JsonTokenizer::Read(const nlohmann::json& root) {
  JsonFields fields(root, "");
  const nlohmann::json* model = fields.Require("model");
  if (!fields.status().ok()) return fields.status();
  absl::StatusOr<std::unique_ptr<Bpe>> bpe = Bpe::Parse(*model);
  if (!bpe.ok()) return bpe.status();
  bpe_ = *std::move(bpe);
  absl::StatusOr<Normalizer> normalizer = Normalizer::Parse(fields.Find("normalizer"));
  if (!normalizer.ok()) return normalizer.status();
  normalizer_ = *std::move(normalizer);
  absl::StatusOr<PreTokenizer> words = PreTokenizer::Parse(fields.Find("pre_tokenizer"));
  if (!words.ok()) return words.status();
  pre_tokenizer_ = *std::move(words);
  absl::StatusOr<Decoder> decoder = Decoder::Parse(fields.Find("decoder"));
  if (!decoder.ok()) return decoder.status();
  decoder_ = *std::move(decoder);
  absl::StatusOr<std::vector<AddedToken>> added = ParseAddedTokens(fields.Find("added_tokens"));
  if (!added.ok()) return added.status();
  size_ = bpe_->tokens().size();
  for (AddedToken& token : *added) {
    size_ = std::max<size_t>(size_, token.id + 1);
    added_ids_[token.content] = token.id;
    added_[token.id] = std::move(token);
  }
  if (absl::Status status = AddFinders(); !status.ok()) return status;
  const nlohmann::json* processor = fields.Find("post_processor");
  return processor == nullptr ? absl::OkStatus() : ReadPostProcessor(*processor, 0);
}

absl::Status JsonTokenizer::AddFinders() {
  for (const auto& [id, token] : added_) {
    if (!token.normalized) {
      raw_finder_.Add(token.content, token);
      continue;
    }
    const absl::StatusOr<std::string> text =
        normalizer_.Apply(token.content, absl::Now() + kNormalizeTime);
    if (!text.ok()) return text.status();
    normalized_finder_.Add(*text, token);
  }
  return absl::OkStatus();
}

absl::Status JsonTokenizer::ReadPostProcessor(const nlohmann::json& json, int depth) {
  JsonFields fields(json, "post_processor");
  const std::string type = fields.String("type", "");
  if (!fields.status().ok()) return fields.status();
  if (type == "ByteLevel")
    return absl::OkStatus();  // It only corrects offsets, which are not
                              // used.
  if (type == "TemplateProcessing") return ReadTemplate(json);
  if (type != "Sequence" || depth > 0) {
    return BadTokenizer(absl::StrCat("the post_processor '", type, "' is not supported"));
  }
  const nlohmann::json* list = fields.Require("processors");
  if (list == nullptr) return fields.status();
  for (const nlohmann::json& element : *list) {
    if (absl::Status status = ReadPostProcessor(element, depth + 1); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status JsonTokenizer::ReadTemplate(const nlohmann::json& json) {
  JsonFields fields(json, "post_processor");
  const nlohmann::json* single = fields.Require("single");
  const nlohmann::json* tokens = fields.Find("special_tokens");
  if (single == nullptr) return fields.status();
  bool is_behind = false;
  for (const nlohmann::json& element : *single) {
    if (element.is_object() && element.contains("Sequence")) {
      if (is_behind) return BadTokenizer("post_processor.single has two sequences");
      is_behind = true;
      continue;
    }
    const auto named = [&](const nlohmann::json& of, const char* key) {
      return of.is_object() && of.contains(key) ? &of.at(key) : nullptr;
    };
    const nlohmann::json* special = named(element, "SpecialToken");
    const nlohmann::json* name = special == nullptr ? nullptr : named(*special, "id");
    const nlohmann::json* entry = name == nullptr || !name->is_string() || tokens == nullptr
                                      ? nullptr
                                      : named(*tokens, name->get<std::string>().c_str());
    const nlohmann::json* ids = entry == nullptr ? nullptr : named(*entry, "ids");
    if (ids == nullptr) {
      return BadTokenizer("post_processor.single names a special token without ids");
    }
    for (const nlohmann::json& id : *ids) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= size_) {
        return BadTokenizer("post_processor.special_tokens: an id that no token has");
      }
      (is_behind ? behind_ : before_).push_back(id.get<TokenId>());
    }
  }
  if (!is_behind) return BadTokenizer("post_processor.single has no sequence");
  return absl::OkStatus();
}

absl::Status JsonTokenizer::EncodePart(absl::string_view text, bool begins_text,
                                       absl::Time deadline, std::vector<TokenId>& out) const {
  const absl::StatusOr<std::string> normalized = normalizer_.Apply(text, deadline);
  if (!normalized.ok()) return normalized.status();
  for (const AddedTokenFinder::Part& part :
       normalized_finder_.Split(*normalized, AddedTokenFinder::Special::kFind)) {
    if (part.token.has_value()) {
      out.push_back(*part.token);
      continue;
    }
    Word word{.text = std::string(part.text),
              .begins_text = begins_text && !normalizer_.DropsBeginning(text) &&
                             part.text.data() == normalized->data()};
    const absl::StatusOr<std::vector<Word>> words = pre_tokenizer_.Apply(std::move(word), deadline);
    if (!words.ok()) return words.status();
    for (const Word& piece : *words) bpe_->Encode(piece.text, out);
  }
  return absl::OkStatus();
}

std::optional<TokenId> JsonTokenizer::Find(absl::string_view token) const {
  const auto added = added_ids_.find(token);
  return added == added_ids_.end() ? bpe_->tokens().Find(token) : added->second;
}

const std::string* JsonTokenizer::Token(TokenId id) const {
  const auto added = added_.find(id);
  return added == added_.end() ? bpe_->tokens().Token(id) : &added->second.content;
}

bool JsonTokenizer::IsSpecial(TokenId id) const {
  const auto added = added_.find(id);
  return added != added_.end() && added->second.special;
}

absl::Status JsonTokenizer::EncodeText(absl::string_view text, SpecialTokens around,
                                       absl::Time deadline, std::vector<TokenId>& out) const {
  if (around == SpecialTokens::kKeep) out = before_;
  for (const AddedTokenFinder::Part& part :
       raw_finder_.Split(text, AddedTokenFinder::Special::kFind)) {
    if (part.token.has_value()) {
      out.push_back(*part.token);
      continue;
    }
    absl::Status status = EncodePart(part.text, part.text.data() == text.data(), deadline, out);
    if (!status.ok()) return status;
  }
  if (around == SpecialTokens::kKeep) out.insert(out.end(), behind_.begin(), behind_.end());
  return absl::OkStatus();
}

std::string JsonTokenizer::DecodeToken(TokenId /*id*/, const std::string& text,
                                       Decoder::State& state) const {
  return decoder_.Add(text, state);
}

}  // namespace pagoda
