#include "tests/sim/record/publish_model.h"

#include <algorithm>

#include "manager/cache_lists.h"
#include "manager/words/prompt_key.h"
#include "tests/sim/words/fail.h"

namespace pagoda::sim {
namespace {

// More than any of these cores has blocks.
constexpr uint32_t kAllBlocks = 1 << 20;

// The content that the prefix names, token by token.
std::vector<TokenKey> KeysOf(const PublishablePrefix& prefix, uint32_t tokens_per_block) {
  std::vector<TokenKey> keys;
  for (const ClientKey& key : prefix.keys) {
    for (const TokenId token : TokensOf(key.block_key(), tokens_per_block)) {
      keys.push_back(KeyOf(token));
    }
  }
  std::vector<TokenExtra> extras;
  const bool any =
      ExtrasOf(prefix.extra_token_ids, prefix.multimodal_items, 0, prefix.tokens.size(), &extras);
  for (size_t i = 0; i < prefix.tokens.size(); ++i) {
    keys.push_back(any ? KeyOf(prefix.tokens[i], extras[i]) : KeyOf(prefix.tokens[i]));
  }
  return keys;
}

}  // namespace

void PublishModel::List(uint32_t id) {
  std::erase_if(listed_, [id](const Listed& one) { return one.id == id; });
  listed_.push_back({id, LifeOf(id).number});
}

void PublishModel::Stored(uint32_t id) {
  Life& life = LifeOf(id);
  ++life.number;
  life.uses = 0;
  if (config_->publish_min_uses == 0) List(id);
}

void PublishModel::Used(uint32_t id) {
  Life& life = LifeOf(id);
  if (life.uses == 3) return;
  ++life.uses;
  if (config_->publish_min_uses == life.uses) List(id);
}

bool PublishModel::IsWorth(const Shadow& shadow, const Listed& listed) const {
  const Node& node = shadow.node(listed.id);
  return HasBytes(node) && node.count == config_->tokens_per_block &&
         lives_[listed.id].number == listed.life;
}

// From the root on; empty if a block of it has no bytes in memory.
std::vector<uint32_t> PublishModel::PathTo(const Shadow& shadow, uint32_t id) const {
  std::vector<uint32_t> path;
  for (; id != kNone; id = shadow.node(id).parent) {
    if (!HasBytes(shadow.node(id))) return {};
    path.insert(path.begin(), id);
  }
  return path;
}

void PublishModel::Compare(const PublishablePrefix& prefix, const Shadow& shadow,
                           const std::vector<uint32_t>& path) const {
  std::vector<TokenKey> keys;
  for (const uint32_t id : path) {
    const Node& node = shadow.node(id);
    keys.insert(keys.end(), node.keys.begin(), node.keys.begin() + node.count);
  }
  const uint32_t name_space = shadow.node(path.back()).name_space;
  SIM_CHECK(prefix.name_space == config_->name_spaces[name_space] &&
                prefix.owner == config_->OwnerOf(name_space),
            "a publishable prefix names another namespace or owner");
  SIM_CHECK(KeysOf(prefix, config_->tokens_per_block) == keys, "the publishable prefix to block ",
            path.back(), " names other content");
}

void PublishModel::Take(BlockManager& core, const Shadow& shadow, uint32_t max_prefixes,
                        Coverage& coverage) {
  std::vector<PublishablePrefix> taken;
  core.lists().TakePublishable(max_prefixes, kAllBlocks, &taken);
  if (!config_->publish_min_uses.has_value()) {
    SIM_CHECK(taken.empty() && core.lists().publishable().queued == 0,
              "blocks are listed although publishing is off");
    return;
  }
  SIM_CHECK(taken.size() <= max_prefixes, "more prefixes than were asked for");
  coverage.Add(Met::kPublishable, taken.size());
  size_t next = 0;
  std::vector<std::vector<uint32_t>> paths;
  while (next < taken.size() || (!listed_.empty() && taken.size() < max_prefixes)) {
    SIM_CHECK(!listed_.empty(), "a prefix is listed again, or was never worth it");
    const Listed last = listed_.back();
    listed_.pop_back();
    if (!IsWorth(shadow, last)) continue;
    const std::vector<uint32_t> path = PathTo(shadow, last.id);
    if (path.empty()) continue;
    SIM_CHECK(next < taken.size(), "block ", last.id, " is worth publishing, and not listed");
    Compare(taken[next++], shadow, path);
    if (path.size() > 1) coverage.Add(Met::kPublishableDeep);
    std::erase_if(listed_, [&](const Listed& one) {
      return std::find(path.begin(), path.end(), one.id) != path.end();
    });
    paths.push_back(path);
  }
  // A path is listed once. A hole above it can be filled later.
  for (size_t i = 0; i < paths.size() && config_->windows.back().full(); ++i) {
    for (size_t j = 0; j < paths.size(); ++j) {
      SIM_CHECK(i == j || paths[j].size() < paths[i].size() ||
                    !std::equal(paths[i].begin(), paths[i].end(), paths[j].begin()),
                "the path to block ", paths[i].back(), " is part of another one that is listed");
    }
  }
}

}  // namespace pagoda::sim
