// Finds the replies of a trace's requests in later prompts.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_TRACE_TRACE_REPLIES_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_TRACE_TRACE_REPLIES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "clients/pagoda_plan/trace/trace.h"

namespace pagoda {

// A request, divided into the blocks that its prompt fills and those that its reply fills. A block
// with the end of the prompt and the beginning of the reply is the reply's.
struct TraceTurn {
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  std::vector<uint32_t> prompt_nodes;  // The full prompt blocks, as numbers of PrefixNodes.
  uint32_t reply_blocks = 0;           // The blocks that the reply fills.
  std::optional<size_t> next;          // The request whose prompt has the reply.
  uint64_t first_fresh_id = 0;         // Without such a request: the id of the first reply block.
};

// The turns of the requests, in the same order.
//
// A trace has no ids for replies. A reply's ids are therefore those of the next turn: the request
// whose prompt is this prompt, this reply and more. Without a next turn, a reply has ids that
// nothing else has (repeated after 2^32 blocks). Request B is the next turn of request A if all of
// this holds:
// 1. B comes after A in the trace, and no request between them is A's next turn.
// 2. B's prompt begins with all full prompt blocks of A.
// 3. B's prompt is at least as long as A's prompt and reply together.
// 4. In a trace with chat ids: A's chat_id is B's parent_chat_id. In other traces: A's last full
//    block belongs to A's conversation alone. That is, A or an earlier turn of A was the first
//    request with it. If several requests are such an A, it is the latest of those with the longest
//    prompt.
//
// Approximations:
// * The trace does not show whether the reply is in B's prompt. If a client removes a part of the
//   reply (for example its reasoning) and the prompt is long enough nevertheless, B counts as the
//   next turn.
// * Without chat ids, the first request with a shared system prompt can take the second one for its
//   next turn, if its own part of the prompt fills no block.
// * Without chat ids, a reply is not found again if the conversation's own part of the prompt fills
//   no block.
// * A prompt with several next turns (attempts from one prefix) has its reply in one of them.
//
// Cost: O(prompt blocks) time and memory.
std::vector<TraceTurn> FindReplies(absl::Span<const TraceRequest> requests,
                                   uint32_t tokens_per_block);

// The id of the block number `k` that the reply of `turn` fills. REQUIRES: k < turn.reply_blocks,
// and `requests` are those that were given to FindReplies().
uint64_t ReplyBlockId(absl::Span<const TraceRequest> requests, const TraceTurn& turn, uint32_t k);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_TRACE_TRACE_REPLIES_H_
