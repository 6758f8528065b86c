#include "engine/text/vocabulary/score_bpe.h"

#include <cstdint>
#include <queue>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/encoding/visible_spaces.h"
#include "engine/text/split/pattern.h"

namespace pagoda {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr uint32_t kStepsBetweenLooks = 4096;  // At the clock. Short words have fewer.

}  // namespace

// Merges the symbols of one word. Each symbol is a part of the word's text.
class ScoreBpe::Merger {
 public:
  Merger(const ScoreBpe& bpe, absl::string_view word, absl::Time deadline)
      : bpe_(bpe), word_(word), deadline_(deadline) {
    for (size_t at = 0; at < word.size();) {
      const size_t size = ReadUtf8(word.substr(at)).size;
      const auto index = static_cast<uint32_t>(symbols_.size());
      symbols_.push_back({at, size, index == 0 ? kNone : index - 1, index + 1});
      at += size;
    }
    if (!symbols_.empty()) symbols_.back().next = kNone;
    for (uint32_t i = 0; i + 1 < symbols_.size() && !IsLate(); ++i) Propose(i);
  }

  template <class Visit>
  absl::Status Run(Visit visit) {
    while (!pairs_.empty() && !IsLate()) {
      const Pair pair = pairs_.top();
      pairs_.pop();
      Symbol& left = symbols_[pair.left];
      // A symbol that was merged into its left neighbour has no bytes.
      if (left.size == 0 || left.next != pair.right ||
          left.size + symbols_[pair.right].size != pair.size) {
        continue;
      }
      Join(pair);
    }
    if (is_late_) return TooLongToSplit();
    for (uint32_t i = symbols_.empty() ? kNone : 0; i != kNone; i = symbols_[i].next) {
      visit(word_.substr(symbols_[i].begin, symbols_[i].size));
    }
    return absl::OkStatus();
  }

 private:
  struct Symbol {
    size_t begin;
    size_t size;
    uint32_t previous;
    uint32_t next;
  };
  struct Pair {
    float score;
    uint32_t left;
    uint32_t right;
    size_t size;  // The bytes of both texts. If they have changed, the pair is another one.
    // The queue's top is its greatest element.
    bool operator<(const Pair& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };

  // Reads the clock now and then.
  bool IsLate() {
    if (++steps_ % kStepsBetweenLooks == 0 && absl::Now() > deadline_) is_late_ = true;
    return is_late_;
  }

  void Propose(uint32_t left) {
    const Symbol& first = symbols_[left];
    if (first.next == kNone) return;
    const size_t size = first.size + symbols_[first.next].size;
    const std::optional<TokenId> token = bpe_.tokens_.Find(word_.substr(first.begin, size));
    if (token.has_value()) pairs_.push({bpe_.scores_[*token], left, first.next, size});
  }

  void Join(const Pair& pair) {
    Symbol& left = symbols_[pair.left];
    Symbol& right = symbols_[pair.right];
    left.size = pair.size;
    left.next = right.next;
    right.size = 0;
    if (left.next != kNone) symbols_[left.next].previous = pair.left;
    if (left.previous != kNone) Propose(left.previous);
    Propose(pair.left);
  }

  const ScoreBpe& bpe_;
  const absl::string_view word_;
  const absl::Time deadline_;
  uint32_t steps_ = 0;
  bool is_late_ = false;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair> pairs_;
};

ScoreBpe::ScoreBpe(TokenTable tokens, std::vector<float> scores, std::optional<TokenId> unknown)
    : tokens_(std::move(tokens)), scores_(std::move(scores)) {
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    std::optional<TokenId> token = tokens_.Find(absl::StrFormat("<0x%02X>", byte));
    if (!token.has_value()) token = tokens_.Find(absl::string_view(&character, 1));
    bytes_.push_back(token.has_value() ? token : unknown);
  }
  for (size_t id = 0; id < tokens_.size() && !merges_across_words_; ++id) {
    const std::string* const token = tokens_.Token(static_cast<TokenId>(id));
    merges_across_words_ = token != nullptr && HasInnerSpace(*token);
  }
}

absl::Status ScoreBpe::EncodeWord(absl::string_view word, absl::Time deadline,
                                  std::vector<TokenId>& out) const {
  return Merger(*this, word, deadline).Run([&](absl::string_view symbol) {
    if (const std::optional<TokenId> token = tokens_.Find(symbol)) {
      out.push_back(*token);
      return;
    }
    for (const char byte : symbol) {
      const std::optional<TokenId>& token = bytes_[static_cast<uint8_t>(byte)];
      if (token.has_value()) out.push_back(*token);
    }
  });
}

absl::Status ScoreBpe::Encode(absl::string_view text, absl::Time deadline,
                              std::vector<TokenId>& out) const {
  if (merges_across_words_) return EncodeWord(text, deadline, out);
  // A word that the cache keeps is too short to be late.
  static_assert(WordCache::kMaxWordBytes * 4 < kStepsBetweenLooks);
  absl::Status status;
  for (uint32_t words = 1; !text.empty() && status.ok(); ++words) {
    const absl::string_view word = FirstSpacedWord(text);
    cache_.Encode(
        word,
        [&](absl::string_view anew, std::vector<TokenId>& to) {
          status = EncodeWord(anew, deadline, to);
        },
        out);
    text.remove_prefix(word.size());
    if (words % kStepsBetweenLooks == 0 && absl::Now() > deadline) return TooLongToSplit();
  }
  return status;
}

}  // namespace pagoda
