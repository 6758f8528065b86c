// Random batches of a client, and their results as text.
#ifndef PAGODA_TESTS_CLIENTS_RANDOM_BATCHES_H_
#define PAGODA_TESTS_CLIENTS_RANDOM_BATCHES_H_

#include <cstdint>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "manager/api/cache_client.h"
#include "manager/api/operation.h"

namespace pagoda {

// Random operations on a few sequences. Many fail, because only the daemon knows which sequences
// and reserved tokens exist.
class RandomBatches {
 public:
  std::vector<Operation> Next() {
    std::vector<Operation> batch(1 + random_() % 4);
    for (Operation& operation : batch) operation = NextOperation();
    return batch;
  }

 private:
  static constexpr uint64_t kSequences = 12;

  Operation NextOperation() {
    const SequenceId sequence(1 + random_() % kSequences);
    switch (random_() % 10) {
      case 0:
      case 1:
        return AddSequence{.sequence = sequence, .tokens = Prompt()};
      case 2:
      case 3:
        return FreeSequence{sequence};
      case 4:
        return ForkSequence{sequence, SequenceId(1 + random_() % kSequences)};
      case 5:
        return TruncateSequence{sequence, 1 + static_cast<uint32_t>(random_() % 6)};
      case 6:
        return MatchPrefix{.tokens = Prompt()};
      case 7:
        return CommitTokens{.sequence = sequence, .computed_tokens = 8};
      default:
        return AppendTokens{.sequence = sequence,
                            .tokens = {static_cast<TokenId>(random_() % 3)},
                            .computed_tokens = random_() % 2 == 0 ? 0u : 8u};
    }
  }

  std::vector<TokenId> Prompt() {
    std::vector<TokenId> tokens(8 + random_() % 12);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_() % 2);
    return tokens;
  }

  std::mt19937_64 random_{11};
};

inline std::string TextOf(const std::vector<BlockTable>& tables) {
  std::string text;
  for (const BlockTable& table : tables) {
    absl::StrAppend(&text, " from ", table.first_block, ":");
    for (const BlockHandle& block : table.blocks) {
      absl::StrAppend(&text, " ", block.id.value(), "/", block.generation.value(), "@",
                      block.slot.value());
    }
  }
  return text;
}

// Tickets are left out, because the time of a copy varies.
struct ResultText {
  std::string operator()(const AddedSequence& result) const {
    return absl::StrCat("added ", result.matched_tokens, TextOf(result.tables));
  }
  std::string operator()(const AppendedTokens& result) const {
    return absl::StrCat("appended ", result.token_count, TextOf(result.added));
  }
  std::string operator()(const ForkedSequence& result) const {
    return absl::StrCat("forked ", result.computed_tokens, TextOf(result.tables));
  }
  std::string operator()(const TruncatedSequence& result) const {
    return absl::StrCat("truncated ", result.computed_tokens, TextOf(result.tables));
  }
  std::string operator()(const MatchedPrefix& result) const {
    return absl::StrCat("matched ", result.matched_tokens);
  }
  std::string operator()(const CommittedTokens& result) const {
    return absl::StrCat("committed ", result.token_count);
  }
  template <class Other>
  std::string operator()(const Other&) const {
    return "done";
  }
};

inline std::string TextOf(const absl::StatusOr<BatchResult>& batch) {
  if (!batch.ok()) return batch.status().ToString();
  std::string text = absl::StrCat("revision ", batch->revision.value());
  for (const auto& result : batch->results) {
    absl::StrAppend(&text, "; ",
                    result.ok() ? std::visit(ResultText{}, *result) : result.status().ToString());
  }
  return text;
}

}  // namespace pagoda

#endif  // PAGODA_TESTS_CLIENTS_RANDOM_BATCHES_H_
