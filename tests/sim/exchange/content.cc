#include "tests/sim/exchange/content.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "tests/sim/words/fail.h"

namespace pagoda::exchange_sim {
namespace {

using sim::Mix;
using sim::Random;

constexpr uint64_t kSpread = 0x9E3779B97F4A7C15;

Value Extend(Value before, uint64_t key) { return Mix(before * kSpread + key); }

uint64_t NumberOf(TokenId token, const TokenExtra& extra) {
  uint64_t key = Mix(token + 1);
  if (extra == TokenExtra{}) return key;
  key = Extend(key, extra.extra_id);
  for (const uint64_t word : extra.digest) key = Extend(key, word);
  return Extend(key, extra.in_item ? extra.item_offset + 1 : 0);
}

uint64_t NumberOf(const std::string& text) {
  uint64_t key = text.size();
  for (const char c : text) key = Extend(key, static_cast<unsigned char>(c));
  return key;
}

// The 8 bytes of a token in one row of a pool.
uint64_t BytesAt(Value value, uint32_t pool, size_t row) {
  return Mix(value ^ ((pool * 64 + row + 1) * kSpread));
}

template <class Byte, class Visit>
bool ForRows(const PoolLayout& layout, absl::Span<Byte> slot, uint32_t first, size_t count,
             const Visit& visit) {
  const size_t row_bytes = layout.head_stride_bytes();
  for (size_t row = 0; row * row_bytes < slot.size(); ++row) {
    for (size_t i = 0; i < count; ++i) {
      if (!visit(row, i, slot.data() + row * row_bytes + (first + i) * kTokenBytes)) return false;
    }
  }
  return true;
}

}  // namespace

void Write(const PoolLayout& layout, uint32_t pool, absl::Span<std::byte> slot, uint32_t first,
           absl::Span<const Value> values) {
  ForRows(layout, slot, first, values.size(), [&](size_t row, size_t i, std::byte* at) {
    const uint64_t bytes = BytesAt(values[i], pool, row);
    std::memcpy(at, &bytes, kTokenBytes);
    return true;
  });
}

bool Holds(const PoolLayout& layout, uint32_t pool, absl::Span<const std::byte> slot,
           uint32_t first, absl::Span<const Value> values) {
  return ForRows(layout, slot, first, values.size(), [&](size_t row, size_t i, auto* at) {
    const uint64_t bytes = BytesAt(values[i], pool, row);
    return std::memcmp(at, &bytes, kTokenBytes) == 0;
  });
}

CacheLayout LayoutOf(const SimConfig& config, const std::string& model) {
  CacheSpec spec = {.name = "cache",
                    .model_fingerprint = model,
                    .tokens_per_block = config.tokens_per_block,
                    .layers = {}};
  // Two shapes, so two pools. A token of a head has 8 bytes.
  for (const uint32_t heads : {1, 2}) spec.layers.push_back({.num_kv_heads = heads, .head_dim = 2});
  return *CacheLayout::Create(std::move(spec));
}

Library::Library(const SimConfig* config)
    : config_(*config), pools_(LayoutOf(*config, "any").windows()[0].pools) {
  for (const CacheConfig& cache : config->caches) {
    layouts_[cache.model] = StoredLayout(LayoutOf(*config, cache.model), 0);
  }
  Random random(config->seed, 1);
  stems_.resize(random.Between(2, 4));
  for (std::vector<TokenId>& stem : stems_) {
    stem.resize(config->longest_prompt * config->tokens_per_block);
    for (TokenId& token : stem) token = random.Below(config->alphabet);
  }
}

Value Library::Root(const std::string& model, const NamespaceKey& name_space) const {
  const auto& all = config_.name_spaces;
  const auto found = std::find(all.begin(), all.end(), name_space);
  SIM_CHECK(found != all.end(), "a block of a namespace that nobody has used");
  return Extend(NumberOf(model), static_cast<uint64_t>(found - all.begin()));
}

BlockValues Library::ValuesOf(Value parent, const BlockKey& key) const {
  BlockValues values;
  values.end = parent;
  if (key.keyed) {
    for (const TokenId word : key.tokens) values.end = Extend(values.end, word);
    for (uint32_t i = 0; i < config_.tokens_per_block; ++i) {
      values.tokens.push_back(Mix(values.end + i + 1));
    }
    return values;
  }
  for (size_t i = 0; i < key.tokens.size(); ++i) {
    values.end = Extend(values.end,
                        NumberOf(key.tokens[i], key.has_extras() ? key.extras[i] : TokenExtra{}));
    values.tokens.push_back(values.end);
  }
  return values;
}

std::vector<Value> Library::ValuesOf(const std::string& model, const StoredPrompt& prompt) const {
  const TokensPerBlock per_block(config_.tokens_per_block);
  const PromptKey key = prompt.key(per_block);
  std::vector<Value> values;
  std::vector<TokenExtra> scratch;
  Value end = Root(model, prompt.name_space);
  for (size_t begin = 0; begin < key.size(); begin += config_.tokens_per_block) {
    const size_t count = std::min<size_t>(config_.tokens_per_block, key.size() - begin);
    const BlockValues block = ValuesOf(end, key.Block(begin, count, &scratch));
    values.insert(values.end(), block.tokens.begin(), block.tokens.end());
    end = block.end;
  }
  return values;
}

ClientKey Library::KeyOf(absl::Span<const TokenId> tokens) const {
  std::string text = "key";
  for (const TokenId token : tokens) text += static_cast<char>('a' + token);
  return *ClientKey::Make(text);
}

StoredPrompt Library::Draw(Random& random) const {
  StoredPrompt prompt;
  const auto spaces = static_cast<uint32_t>(config_.name_spaces.size());
  prompt.name_space = config_.name_spaces[random.Percent(40) ? 0 : random.Below(spaces)];
  const std::vector<TokenId>& stem = stems_[random.Below(static_cast<uint32_t>(stems_.size()))];
  const auto longest = static_cast<uint32_t>(stem.size());
  std::vector<TokenId> tokens(stem.begin(), stem.begin() + random.Between(1, longest));
  if (random.OneIn(3)) {  // Goes on with other tokens.
    tokens.resize(random.Between(1, static_cast<uint32_t>(tokens.size())));
    for (uint32_t i = random.Below(3 * config_.tokens_per_block); i > 0; --i) {
      tokens.push_back(random.Below(config_.alphabet));
    }
  }
  if (prompt.name_space.keyed) {
    const uint32_t size = config_.tokens_per_block;
    for (size_t begin = 0; begin == 0 || begin + size <= tokens.size(); begin += size) {
      tokens.resize(std::max<size_t>(tokens.size(), size));
      prompt.keys.push_back(KeyOf(absl::MakeSpan(tokens).subspan(begin, size)));
    }
    return prompt;
  }
  prompt.tokens = std::move(tokens);
  const auto size = static_cast<uint32_t>(prompt.tokens.size());
  if (config_.extras && random.OneIn(4)) {
    prompt.extra_token_ids.resize(size);
    prompt.extra_token_ids[random.Below(size)] = random.Between(1, 2);
  }
  if (config_.extras && random.OneIn(4)) {
    const uint32_t start = random.Below(size);
    prompt.multimodal_items = {{.digest = {random.Between(1, 2)},
                                .token_start = start,
                                .token_count = random.Between(1, size - start)}};
  }
  if (prompt.name_space.tenant.empty() && random.OneIn(3)) {
    for (const TenantOptions& tenant : config_.tenants) {
      if (tenant.shares) prompt.tenant = tenant.name;
    }
  }
  return prompt;
}

void Library::Append(StoredPrompt& prompt, uint32_t count, Random& random) const {
  for (uint32_t i = 0; i < count; ++i) {
    if (prompt.name_space.keyed) {
      std::vector<TokenId> tokens(config_.tokens_per_block);
      for (TokenId& token : tokens) token = random.Below(config_.alphabet);
      prompt.keys.push_back(KeyOf(tokens));
    } else {
      prompt.tokens.push_back(random.Below(config_.alphabet));
      if (!prompt.extra_token_ids.empty()) prompt.extra_token_ids.push_back(0);
    }
  }
}

std::vector<StoreKey> Library::KeysOf(const std::string& model, const StoredPrompt& prompt) const {
  const TokensPerBlock per_block(config_.tokens_per_block);
  std::vector<StoreKey> keys;
  for (const ContentDigest& digest : DigestsOf(prompt, per_block, prompt.whole_blocks(per_block))) {
    keys.push_back({.layout = layouts_.at(model).bytes, .digest = digest.bytes});
  }
  return keys;
}

void Library::Name(const std::string& model, const StoredPrompt& prompt) {
  const std::vector<StoreKey> keys = KeysOf(model, prompt);
  const std::vector<Value> values = ValuesOf(model, prompt);
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto begin = values.begin() + static_cast<ptrdiff_t>(i * config_.tokens_per_block);
    std::vector<Value> block(begin, begin + config_.tokens_per_block);
    const auto [known, is_new] =
        named_.try_emplace({keys[i].layout, keys[i].digest}, std::move(block));
    SIM_CHECK(is_new || std::equal(known->second.begin(), known->second.end(), begin),
              "two contents have one name in the store");
  }
}

const std::vector<Value>& Library::Named(const StoreKey& key) const {
  const auto found = named_.find({key.layout, key.digest});
  SIM_CHECK(found != named_.end(), "a name in the store that is the name of no prompt");
  return found->second;
}

}  // namespace pagoda::exchange_sim
