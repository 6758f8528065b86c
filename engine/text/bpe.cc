#include "engine/text/bpe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/text/bounded_json.h"
#include "engine/text/utf8.h"

namespace pagoda {
namespace {

// The number of cached words and their greatest length, about 10 MiB in all. A full cache is
// emptied, which costs less than tracking the last use.
constexpr size_t kMaxKnownWords = 1 << 16;
constexpr size_t kMaxKnownWordBytes = 64;

constexpr uint32_t kNone = ~uint32_t{0};

}  // namespace

// Merges the tokens of one word: the most important pair first, and of equal ones the leftmost.
class Bpe::Merger {
 public:
  Merger(const Bpe& bpe, const std::vector<TokenId>& tokens) : bpe_(bpe) {
    const auto size = static_cast<uint32_t>(tokens.size());
    nodes_.reserve(size);
    for (uint32_t i = 0; i < size; ++i) {
      nodes_.push_back({tokens[i], i == 0 ? kNone : i - 1, i + 1 == size ? kNone : i + 1});
    }
    for (uint32_t i = 0; i + 1 < size; ++i) Propose(i);
  }

  void Run(std::vector<TokenId>& out) {
    while (!pairs_.empty()) {
      const Pair pair = pairs_.top();
      pairs_.pop();
      if (Holds(pair)) Join(pair);
    }
    // The first node is never merged into one on its left.
    for (uint32_t i = nodes_.empty() ? kNone : 0; i != kNone; i = nodes_[i].next) {
      out.push_back(nodes_[i].token);
    }
  }

 private:
  struct Node {
    TokenId token;
    uint32_t previous;
    uint32_t next;
    bool alive = true;
  };
  struct Pair {
    uint32_t rank;
    uint32_t left;  // The left node; the right one was its next node.
    TokenId token;  // Their merged token.
    // The queue's top is its greatest element.
    bool operator<(const Pair& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };

  const Merge* MergeAt(uint32_t left) const {
    const Node& node = nodes_[left];
    if (node.next == kNone) return nullptr;
    const auto merge = bpe_.merges_.find({node.token, nodes_[node.next].token});
    return merge == bpe_.merges_.end() ? nullptr : &merge->second;
  }

  void Propose(uint32_t left) {
    if (const Merge* merge = MergeAt(left)) pairs_.push({merge->rank, left, merge->token});
  }

  // Whether the pair is still there as it was queued.
  bool Holds(const Pair& pair) const {
    if (!nodes_[pair.left].alive) return false;
    const Merge* merge = MergeAt(pair.left);
    return merge != nullptr && merge->rank == pair.rank;
  }

  void Join(const Pair& pair) {
    Node& left = nodes_[pair.left];
    Node& right = nodes_[left.next];
    right.alive = false;
    left.token = pair.token;
    left.next = right.next;
    if (left.next != kNone) nodes_[left.next].previous = pair.left;
    if (left.previous != kNone) Propose(left.previous);
    Propose(pair.left);
  }

  const Bpe& bpe_;
  std::vector<Node> nodes_;
  std::priority_queue<Pair> pairs_;
};

absl::StatusOr<std::unique_ptr<Bpe>> Bpe::Parse(const nlohmann::json& model) {
  JsonFields fields(model, "model");
  const std::string type = fields.String("type", "BPE");  // Old files lack this field.
  if (fields.status().ok() && type != "BPE") {
    return BadTokenizer(absl::StrCat("the model '", type, "' is not supported, only BPE is"));
  }
  auto bpe = absl::WrapUnique(new Bpe);
  bpe->byte_fallback_ = fields.Bool("byte_fallback", false);
  bpe->fuse_unknown_ = fields.Bool("fuse_unk", false);
  bpe->ignore_merges_ = fields.Bool("ignore_merges", false);
  const std::string unknown = fields.String("unk_token", "");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!fields.String(key, "").empty()) {
      return BadTokenizer(absl::StrCat("model.", key, " is not supported"));
    }
  }
  const nlohmann::json* dropout = fields.Find("dropout");
  if (dropout != nullptr && *dropout != 0.0) {
    return BadTokenizer("model.dropout is not supported");
  }
  const nlohmann::json* vocab = fields.Require("vocab");
  const nlohmann::json* merges = fields.Require("merges");
  if (!fields.status().ok()) return fields.status();
  if (absl::Status status = bpe->ReadVocabulary(*vocab); !status.ok()) return status;
  if (absl::Status status = bpe->ReadMerges(*merges); !status.ok()) return status;
  if (!unknown.empty()) {
    bpe->unknown_ = bpe->Find(unknown);
    if (!bpe->unknown_.has_value()) return BadTokenizer("model.unk_token is not in model.vocab");
  }
  if (bpe->byte_fallback_) {
    for (int byte = 0; byte < 256; ++byte) {
      bpe->bytes_.push_back(bpe->Find(absl::StrFormat("<0x%02X>", byte)));
    }
  }
  return bpe;
}

absl::Status Bpe::ReadVocabulary(const nlohmann::json& vocab) {
  if (!vocab.is_object() || vocab.empty()) {
    return BadTokenizer("model.vocab is not an object with tokens");
  }
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxTokens) {
      return BadTokenizer(absl::StrCat("model.vocab: the id of '", token.substr(0, 80),
                                       "' is not an integer below ", kMaxTokens));
    }
    const auto index = id.get<TokenId>();
    if (index >= tokens_.size()) tokens_.resize(index + 1);
    if (tokens_[index] != nullptr) {
      return BadTokenizer(absl::StrCat("model.vocab: two tokens have the id ", index));
    }
    tokens_[index] = &ids_.emplace(token, index).first->first;
  }
  return absl::OkStatus();
}

absl::Status Bpe::ReadMerges(const nlohmann::json& merges) {
  if (!merges.is_array()) return BadTokenizer("model.merges is not a list");
  merges_.reserve(merges.size());
  uint32_t rank = 0;
  for (const nlohmann::json& merge : merges) {
    absl::string_view left;
    absl::string_view right;
    if (merge.is_string()) {
      const absl::string_view text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != absl::string_view::npos) {
        left = text.substr(0, space);
        right = text.substr(space + 1);
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    }
    if (absl::Status status = AddMerge(left, right, rank); !status.ok()) return status;
    ++rank;
  }
  return absl::OkStatus();
}

absl::Status Bpe::AddMerge(absl::string_view left, absl::string_view right, uint32_t rank) {
  const std::optional<TokenId> left_id = Find(left);
  const std::optional<TokenId> right_id = Find(right);
  const std::optional<TokenId> both = Find(absl::StrCat(left, right));
  if (!left_id.has_value() || !right_id.has_value() || !both.has_value()) {
    return BadTokenizer(
        absl::StrCat("model.merges: number ", rank,
                     ": two tokens, or their merged token, are not in model.vocab"));
  }
  merges_[{*left_id, *right_id}] = {rank, *both};
  return absl::OkStatus();
}

std::optional<TokenId> Bpe::Find(absl::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Bpe::Token(TokenId id) const {
  return id < tokens_.size() ? tokens_[id] : nullptr;
}

bool Bpe::AddBytes(absl::string_view character, std::vector<TokenId>& out) const {
  if (!byte_fallback_) return false;
  const auto token_of = [&](char byte) { return bytes_[static_cast<uint8_t>(byte)]; };
  if (!std::all_of(character.begin(), character.end(),
                   [&](char byte) { return token_of(byte).has_value(); })) {
    return false;
  }
  for (const char byte : character) out.push_back(*token_of(byte));
  return true;
}

std::vector<TokenId> Bpe::Characters(absl::string_view word) const {
  std::vector<TokenId> tokens;
  bool after_unknown = false;
  while (!word.empty()) {
    const absl::string_view character = word.substr(0, ReadUtf8(word).size);
    word.remove_prefix(character.size());
    if (const std::optional<TokenId> id = Find(character)) {
      tokens.push_back(*id);
      after_unknown = false;
    } else if (AddBytes(character, tokens)) {
      after_unknown = false;
    } else if (unknown_.has_value()) {
      if (!after_unknown || !fuse_unknown_) tokens.push_back(*unknown_);
      after_unknown = true;
    }
  }
  return tokens;
}

void Bpe::EncodeAnew(absl::string_view word, std::vector<TokenId>& out) const {
  if (ignore_merges_) {
    if (const std::optional<TokenId> id = Find(word)) {
      out.push_back(*id);
      return;
    }
  }
  Merger(*this, Characters(word)).Run(out);
}

void Bpe::Encode(absl::string_view word, std::vector<TokenId>& out) const {
  if (word.size() > kMaxKnownWordBytes) {
    EncodeAnew(word, out);
    return;
  }
  {
    absl::MutexLock lock(&mutex_);
    if (const auto known = known_words_.find(word); known != known_words_.end()) {
      out.insert(out.end(), known->second.begin(), known->second.end());
      return;
    }
  }
  std::vector<TokenId> tokens;
  EncodeAnew(word, tokens);
  out.insert(out.end(), tokens.begin(), tokens.end());
  absl::MutexLock lock(&mutex_);
  if (known_words_.size() >= kMaxKnownWords) known_words_.clear();
  known_words_.emplace(word, std::move(tokens));
}

}  // namespace pagoda
