// The content of sequences and cached blocks, and the bytes that stand for it in the model memory.
#ifndef PAGODA_TESTS_SIM_WORDS_CONTENT_H_
#define PAGODA_TESTS_SIM_WORDS_CONTENT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "manager/api/operation.h"
#include "tests/sim/words/config.h"
#include "tests/sim/words/random.h"

namespace pagoda::sim {

// A token with its extras, as one number. Equal numbers mean equal tokens and extras.
using TokenKey = uint64_t;
TokenKey KeyOf(TokenId token, const TokenExtra& extra);
inline TokenKey KeyOf(TokenId token) { return Mix(uint64_t{token} + 0x517CC1B727220A95); }

// The "KV" of a token: a function of the name space and all tokens up to and including it. An
// engine that computes a token writes this.
using Value = uint64_t;
inline Value RootValue(uint32_t name_space) { return Mix(name_space + 0x2545F4914F6CDD1D); }
inline Value Extend(Value before, TokenKey key) { return Mix(before * 0x9E3779B97F4A7C15 + key); }

// A prompt, or all tokens that a sequence has named.
struct Content {
  uint32_t name_space = 0;  // Index in SimConfig::name_spaces.
  std::vector<TokenId> tokens;
  std::vector<TokenExtra> extras;  // One a token, or none at all.

  TokenKey key(size_t i) const {
    return extras.empty() ? KeyOf(tokens[i]) : KeyOf(tokens[i], extras[i]);
  }
  void Resize(size_t count) {
    tokens.resize(count);
    if (!extras.empty()) extras.resize(count);
  }
  void Append(TokenId token) {
    tokens.push_back(token);
    if (!extras.empty()) extras.emplace_back();
  }
};

std::vector<TokenKey> KeysOf(const Content& content);

// In a keyed name space a content stands for a chain of keys, for whole blocks without extras. It
// is cut to that. Clients name a block by a key made from its tokens; keys have 1 to 64 bytes.
void CutToBlocks(const SimConfig& config, Content& content);
// The keys of tokens that fill blocks.
std::vector<ClientKey> ClientKeysOf(absl::Span<const TokenId> tokens, uint32_t tokens_per_block);
// The tokens of a block that the core names by `key`.
std::vector<TokenId> TokensOf(const BlockKey& key, uint32_t tokens_per_block);

// The content in an operation or in a prompt of the core, as tokens or as keys.
struct SentContent {
  std::vector<TokenId> tokens;
  std::vector<uint64_t> extra_token_ids;
  std::vector<MultimodalItem> items;
  std::vector<ClientKey> keys;
};
SentContent SendAll(const SimConfig& config, const Content& content, Random& random);
// The longest match of the content.
inline uint32_t MatchLimit(const SimConfig& config, const Content& content) {
  const auto size = static_cast<uint32_t>(content.tokens.size());
  return size == 0 || config.keyed(content.name_space) ? size : size - 1;
}

// The extras as a client sends them. `random` chooses between forms with the same meaning.
struct SentExtras {
  std::vector<uint64_t> extra_token_ids;
  std::vector<MultimodalItem> items;
};
SentExtras Send(const Content& content, Random& random);

// Draws contents that share beginnings with earlier ones.
class Prompts {
 public:
  explicit Prompts(const SimConfig* config) : config_(config) {}

  // At most `most` tokens; may be empty.
  Content Draw(Random& random, uint32_t most) const;
  void AppendTokens(Content& content, Random& random, uint32_t count) const;
  void Remember(const Content& content, Random& random);

 private:
  void AddExtras(Content& content, size_t begin, Random& random) const;

  static constexpr uint32_t kRemembered = 8;
  const SimConfig* const config_;
  std::vector<Content> remembered_;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_WORDS_CONTENT_H_
