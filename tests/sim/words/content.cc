#include "tests/sim/words/content.h"

#include <numeric>
#include <string>
#include <utility>

#include "tests/sim/words/fail.h"

namespace pagoda::sim {

TokenKey KeyOf(TokenId token, const TokenExtra& extra) {
  TokenKey key = KeyOf(token);
  if (extra == TokenExtra{}) return key;
  key = Extend(key, extra.extra_id);
  if (!extra.in_item) return key;
  for (const uint64_t word : extra.digest) key = Extend(key, word);
  return Extend(key, extra.item_offset + 1);
}

std::vector<TokenKey> KeysOf(const Content& content) {
  std::vector<TokenKey> keys(content.tokens.size());
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = content.key(i);
  return keys;
}

SentExtras Send(const Content& content, Random& random) {
  SentExtras sent;
  const std::vector<TokenExtra>& extras = content.extras;
  bool any_id = random.OneIn(8);  // Ids that are all zero mean the same as no ids.
  for (const TokenExtra& extra : extras) any_id |= extra.extra_id != 0;
  if (any_id && !extras.empty()) {
    for (const TokenExtra& extra : extras) sent.extra_token_ids.push_back(extra.extra_id);
  }
  for (size_t i = 0; i < extras.size();) {
    if (!extras[i].in_item) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    // An item can be sent in two parts. Its offsets show that both parts are of one item.
    while (end < extras.size() && extras[end].in_item && extras[end].digest == extras[i].digest &&
           extras[end].item_offset == extras[end - 1].item_offset + 1 && !random.OneIn(10)) {
      ++end;
    }
    sent.items.push_back({.digest = extras[i].digest,
                          .token_start = static_cast<uint32_t>(i),
                          .token_count = static_cast<uint32_t>(end - i),
                          .item_offset = extras[i].item_offset});
    i = end;
  }
  return sent;
}

void CutToBlocks(const SimConfig& config, Content& content) {
  if (!config.keyed(content.name_space)) return;
  content.extras.clear();
  content.Resize(content.tokens.size() / config.tokens_per_block * config.tokens_per_block);
}

namespace {

// One byte for each token, and the whole repeated once or several times. So keys end in zeros,
// begin with other keys, and have all lengths that a block's tokens divide.
std::string KeyBytes(absl::Span<const TokenId> block) {
  const uint32_t sum = std::accumulate(block.begin(), block.end(), 0u);
  const size_t times = 1 + sum % (ClientKey::kMaxBytes / block.size());
  std::string bytes;
  for (size_t i = 0; i < times; ++i) bytes.append(block.begin(), block.end());
  return bytes;
}

}  // namespace

std::vector<ClientKey> ClientKeysOf(absl::Span<const TokenId> tokens, uint32_t tokens_per_block) {
  std::vector<ClientKey> keys;
  for (size_t begin = 0; begin < tokens.size(); begin += tokens_per_block) {
    keys.push_back(*ClientKey::Make(KeyBytes(tokens.subspan(begin, tokens_per_block))));
  }
  return keys;
}

std::vector<TokenId> TokensOf(const BlockKey& key, uint32_t tokens_per_block) {
  if (!key.keyed) return {key.tokens.begin(), key.tokens.end()};
  SIM_CHECK(ClientKey::FromWords(key.tokens).has_value() && !key.has_extras(),
            "a keyed block is told by words that are no key");
  const std::string_view bytes = ClientKeyBytes(key);
  SIM_CHECK(bytes.size() >= tokens_per_block, "a key that no client has");
  const std::vector<TokenId> tokens(bytes.begin(), bytes.begin() + tokens_per_block);
  SIM_CHECK(KeyBytes(tokens) == bytes, "a key that no client has");
  return tokens;
}

SentContent SendAll(const SimConfig& config, const Content& content, Random& random) {
  if (config.keyed(content.name_space)) {
    return {.keys = ClientKeysOf(content.tokens, config.tokens_per_block)};
  }
  SentExtras sent = Send(content, random);
  return {.tokens = content.tokens,
          .extra_token_ids = std::move(sent.extra_token_ids),
          .items = std::move(sent.items),
          .keys = {}};
}

Content Prompts::Draw(Random& random, uint32_t most) const {
  Content content;
  if (!remembered_.empty() && !random.OneIn(6)) {
    content = remembered_[random.Below(static_cast<uint32_t>(remembered_.size()))];
    if (random.OneIn(2)) {
      content.Resize(random.Below(static_cast<uint32_t>(content.tokens.size()) + 1));
    }
  } else {
    const auto name_spaces = static_cast<uint32_t>(config_->name_spaces.size());
    content.name_space = random.OneIn(3) ? random.Below(name_spaces) : 0;
  }
  const size_t begin = content.tokens.size();
  if (!random.OneIn(4)) {
    AppendTokens(content, random, random.Below(2 * config_->tokens_per_block + 2));
  }
  AddExtras(content, begin, random);
  if (content.tokens.size() > most) content.Resize(most);
  return content;
}

void Prompts::AppendTokens(Content& content, Random& random, uint32_t count) const {
  for (uint32_t i = 0; i < count; ++i) {
    content.Append(random.Percent(70) ? 0 : random.Below(config_->alphabet));
  }
}

// Gives extra ids, and places in an item, to some of the tokens from `begin` on.
void Prompts::AddExtras(Content& content, size_t begin, Random& random) const {
  if (begin == content.tokens.size()) return;
  const auto added = static_cast<uint32_t>(content.tokens.size() - begin);
  if (config_->extra_ids && random.OneIn(3)) {
    content.extras.resize(content.tokens.size());
    for (size_t i = begin; i < content.tokens.size(); ++i) {
      if (random.OneIn(2)) content.extras[i].extra_id = random.Below(3);
    }
  }
  if (config_->items && random.OneIn(3)) {
    content.extras.resize(content.tokens.size());
    const size_t first = begin + random.Below(added);
    const uint32_t count = random.Between(1, static_cast<uint32_t>(content.tokens.size() - first));
    const uint32_t offset = random.OneIn(3) ? random.Below(3) : 0;
    const ItemDigest digest = {random.Below(2), 0, 0, random.Below(2)};
    for (uint32_t i = 0; i < count; ++i) {
      TokenExtra& extra = content.extras[first + i];
      extra.digest = digest;
      extra.item_offset = offset + i;
      extra.in_item = true;
    }
  }
}

void Prompts::Remember(const Content& content, Random& random) {
  if (content.tokens.empty()) return;
  if (remembered_.size() < kRemembered) remembered_.emplace_back();
  remembered_[random.Below(static_cast<uint32_t>(remembered_.size()))] = content;
}

}  // namespace pagoda::sim
