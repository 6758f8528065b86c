// What prompts mean: the bytes that each token's KV must have, and what each name in the store
// stands for.
#ifndef PAGODA_TESTS_SIM_EXCHANGE_CONTENT_H_
#define PAGODA_TESTS_SIM_EXCHANGE_CONTENT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "events/block_key.h"
#include "manager/exchange/stored_prefix.h"
#include "manager/words/slot_journal.h"
#include "pools/layout.h"
#include "pools/store/store.h"
#include "tests/sim/exchange/config.h"
#include "tests/sim/words/random.h"

namespace pagoda::exchange_sim {

// The "KV" of a token: a function of the model, the namespace and all tokens up to and with it.
using Value = uint64_t;

// The values of a block's tokens, and the one under which its children continue.
struct BlockValues {
  std::vector<Value> tokens;
  Value end = 0;
};

// Each token takes this many bytes in each row of a slot.
inline constexpr size_t kTokenBytes = 8;

// Writes the tokens [first, first + values.size()) of a slot.
void Write(const PoolLayout& layout, uint32_t pool, absl::Span<std::byte> slot, uint32_t first,
           absl::Span<const Value> values);
// Whether the slot has these tokens.
bool Holds(const PoolLayout& layout, uint32_t pool, absl::Span<const std::byte> slot,
           uint32_t first, absl::Span<const Value> values);

// The layout of a model's cache: two pools a block.
CacheLayout LayoutOf(const SimConfig& config, const std::string& model);

class Library {
 public:
  explicit Library(const SimConfig* config);

  Value Root(const std::string& model, const NamespaceKey& name_space) const;
  BlockValues ValuesOf(Value parent, const BlockKey& key) const;
  // The values of all tokens of the prompt, also of those behind the last whole block.
  std::vector<Value> ValuesOf(const std::string& model, const StoredPrompt& prompt) const;

  // The pools of a block, in any model.
  const std::vector<PoolLayout>& pools() const { return pools_; }

  // Draws a prompt that shares its beginning with others.
  StoredPrompt Draw(sim::Random& random) const;
  // Adds `count` tokens, or as many keys.
  void Append(StoredPrompt& prompt, uint32_t count, sim::Random& random) const;

  // Notes what the names of the prompt's blocks stand for. Fails if a name stands for two contents.
  void Name(const std::string& model, const StoredPrompt& prompt);
  // The names of its whole blocks.
  std::vector<StoreKey> KeysOf(const std::string& model, const StoredPrompt& prompt) const;
  // The values of the block under a key. Fails if no prompt has the name.
  const std::vector<Value>& Named(const StoreKey& key) const;

 private:
  using Digest = std::array<std::byte, 32>;

  ClientKey KeyOf(absl::Span<const TokenId> tokens) const;

  const SimConfig& config_;
  const std::vector<PoolLayout> pools_;
  std::map<std::string, ContentDigest> layouts_;  // By model.
  std::vector<std::vector<TokenId>> stems_;
  std::map<std::pair<Digest, Digest>, std::vector<Value>> named_;  // By layout and content.
};

}  // namespace pagoda::exchange_sim

#endif  // PAGODA_TESTS_SIM_EXCHANGE_CONTENT_H_
