// A block's content without its parents, as bytes that outlive the process. It is a part of a
// slot's stamp (slot_stamps.h) and of a block's record on a disk (disk/block_record.h).
//
//   content   u8 flags (1: first of its namespace, 2: LoRA, 4: extras, 8: keyed), u8 priority, u32
//             token count; with flag 1 u64 lora_id, salt and tenant, each its length as u32 and
//             its bytes; the tokens as u32; with flag 4 an extra for each (content_digest.h).
//             With flag 8 the count is ClientKey::kWords, and the words of the key stand for
//             tokens.
#ifndef PAGODA_MANAGER_RESTART_CONTENT_CODEC_H_
#define PAGODA_MANAGER_RESTART_CONTENT_CODEC_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/byte_codec.h"
#include "events/block_hash.h"
#include "events/block_key.h"
#include "events/event.h"
#include "pools/types.h"

namespace pagoda {

struct CodedContent {
  std::optional<NamespaceKey> name_space;  // Set if the block is the first of its namespace.
  Priority priority = kDefaultPriority;
  std::vector<TokenId> tokens;
  std::vector<TokenExtra> extras;  // Empty, or as long as tokens.
  bool keyed = false;              // The tokens are the words of a ClientKey.
};

// `name_space` is null unless the block is the first of its namespace.
void PutContent(const NamespaceKey* name_space, Priority priority, const BlockKey& key,
                ByteWriter& out);
// Nothing if the bytes are not a content: no tokens or more than `tokens_per_block`, words that are
// no key, a priority or a name beyond its range, or fewer bytes than the content has.
std::optional<CodedContent> GetContent(ByteReader& in, uint32_t tokens_per_block);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_RESTART_CONTENT_CODEC_H_
