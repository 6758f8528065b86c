// A cached prefix that has become worth publishing to a store.
#ifndef PAGODA_MANAGER_WORDS_PUBLISHABLE_PREFIX_H_
#define PAGODA_MANAGER_WORDS_PUBLISHABLE_PREFIX_H_

#include <cstdint>
#include <vector>

#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "events/tenant_id.h"
#include "pools/types.h"

namespace pagoda {

// The whole blocks from a namespace's root to a block, as a prompt that names them. Owns its
// arrays.
struct PublishablePrefix {
  NamespaceKey name_space;
  TenantId owner = kDefaultTenant;  // The tenant that owns the blocks.
  std::vector<TokenId> tokens = {};
  std::vector<uint64_t> extra_token_ids = {};  // One for each token, or none.
  std::vector<MultimodalItem> multimodal_items = {};
  std::vector<ClientKey> keys = {};  // One for each block, instead of tokens.
};

// The blocks that wait to be taken as publishable prefixes.
struct PublishableBlocks {
  uint32_t queued = 0;
  uint64_t forgotten = 0;  // Since the start: more waited than PublishQueue::kMaxBlocks.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_PUBLISHABLE_PREFIX_H_
