// The facts about a block that eviction policies get.
#ifndef PAGODA_MANAGER_WORDS_BLOCK_FACTS_H_
#define PAGODA_MANAGER_WORDS_BLOCK_FACTS_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "absl/time/time.h"
#include "events/block_hash.h"
#include "events/event.h"
#include "events/tenant_id.h"
#include "pools/types.h"

namespace pagoda {

// The origin of a block's tokens.
enum class ContentOrigin : uint8_t {
  kPrompt,  // All tokens are a prompt's.
  kReply,   // Some tokens were generated.
};

// How the request that published a block used it. Set when the block enters the tree, and again
// when a hole gets bytes. Other requests with the same content do not change it. Takes 10 bits of
// the tree's node.
class ContentFacts {
 public:
  static constexpr uint32_t kBits = 10;
  static constexpr uint32_t kMaxLog2Depth = 15;
  static constexpr uint32_t kMaxLog2RequestTokens = 31;

  ContentFacts() = default;
  // `depth`: the block's place in the request, in blocks, starting at 1. `request_tokens`: the
  // tokens that the request had when it published the block; 0: unknown.
  ContentFacts(uint32_t depth, uint32_t request_tokens, ContentOrigin origin)
      : bits_(static_cast<uint16_t>(std::min(Log2(depth), kMaxLog2Depth) << kDepthShift |
                                    Log2(request_tokens) << kRequestShift |
                                    static_cast<uint32_t>(origin))) {}
  static ContentFacts FromBits(uint32_t bits) {
    ContentFacts facts;
    facts.bits_ = static_cast<uint16_t>(bits);
    return facts;
  }
  uint32_t bits() const { return bits_; }

  // log2, rounded down: 0 is 1 block, 1 is 2 or 3 blocks. At most kMaxLog2Depth.
  uint32_t log2_depth() const { return bits_ >> kDepthShift & kMaxLog2Depth; }
  // log2, rounded down. 0: one token, or unknown (a block of an earlier run of the daemon).
  uint32_t log2_request_tokens() const { return bits_ >> kRequestShift & kMaxLog2RequestTokens; }
  // kPrompt if unknown.
  ContentOrigin origin() const { return static_cast<ContentOrigin>(bits_ & 1); }

  friend bool operator==(ContentFacts, ContentFacts) = default;

 private:
  static constexpr uint32_t kRequestShift = 1;
  static constexpr uint32_t kDepthShift = 6;
  static uint32_t Log2(uint32_t value) {
    return value == 0 ? 0 : static_cast<uint32_t>(std::bit_width(value)) - 1;
  }

  uint16_t bits_ = 0;
};

// A cached block at one moment, in one tier.
struct BlockFacts {
  static constexpr uint8_t kMaxUses = 3;

  SlotIndex slot = kNoSlot;  // In the policy's tier.
  BlockId block = kNoBlock;
  BlockHash hash;   // The hash of its content. BlockHash{}: there is no hash to remember it by.
  absl::Time time;  // The time of the operation; never goes back.
  TenantId tenant = kDefaultTenant;  // The block's owner.
  Priority priority = kDefaultPriority;
  uint8_t uses = 0;  // Prefix matches since it was published, in all tiers; kMaxUses means that
                     // many or more.
  ContentFacts content;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_BLOCK_FACTS_H_
