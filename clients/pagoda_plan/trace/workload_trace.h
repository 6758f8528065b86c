// Generates traces of workloads for which there is no public trace.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_TRACE_WORKLOAD_TRACE_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_TRACE_WORKLOAD_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>

#include "clients/pagoda_plan/trace/trace.h"

namespace pagoda {

enum class WorkloadKind {
  kAgents,  // Long loops of tool calls, with attempts that branch off.
  kChat,    // Conversations of people, who think and come back later.
  kShift,   // kChat in the first half of the requests, then kAgents.
};
std::string_view WorkloadKindName(WorkloadKind kind);

struct WorkloadOptions {
  WorkloadKind kind = WorkloadKind::kAgents;
  size_t requests = 12'000;
  // Tasks and conversations begin during one day, which lasts so long. It starts at 9 o'clock. At 3
  // o'clock there are a tenth as many as at 15 o'clock. A day of 24 hours needs ten times as many
  // requests as one of 2.4 for the same load.
  double hours = 3;
  uint64_t seed = 1;
  uint32_t tokens_per_block = kMooncakeBlockTokens;
};

// The same options give the same trace, on every machine. Ids count from 0 in the order of their
// first use.
//
// Agents. A prompt is one of 40 applications (system prompt and tool descriptions, log-normal,
// median 6,000 tokens), one of its 12 projects (median 2,000) and a task (median 300); applications
// and projects by Zipf's law. Each step adds a reply (exponential, mean 340 tokens) and a tool's
// output (log-normal, median 900, mean 2,100). A task has 30 steps in the median, log-normal. After
// a step the tool runs (log-normal, median 2 s), or in one of twelve steps a person answers (median
// 60 s). In one of 30 steps, two to four attempts start from the same prefix; the task goes on with
// the last one. Beyond 180,000 tokens the task goes on with a summary behind its application and
// project.
//
// Chat. A prompt is one of 60 applications (median 500 tokens, Zipf) and the conversation. A first
// message is short (log-normal, median 150 tokens) or, in three of ten, has a document (median
// 10,000). Further messages have 60 tokens in the median, replies 343 on average, exponential. A
// conversation has 3.5 turns on average, geometric. A person thinks 45 s in the median, log-normal,
// or comes back after an hour or more in one of twenty turns. One of twenty-five replies is
// generated again from the same prompt.
//
// Published, and how close the traces come:
// * Agents: traces of Codex and GPT-5.4 on SWE-bench Pro ("Serving Agentic Workloads at Scale with
//   vLLM x Mooncake", vLLM's blog, 6 May 2026): 33 turns in the median, about 80,000 tokens of
//   context by turn 30, the longest beyond 180,000; some hundred to some thousand new tokens a
//   turn; 131 tokens of input for one of output. Manus has about 100 ("Context Engineering for AI
//   Agents", 18 July 2025); 8,000 generated requests in 1.5 hours have 186. SWE-bench Pro
//   trajectories of four models have 29 to 78 steps in the median (nilenso's analysis).
// * Chat: replies are as long as in the conversation trace of "Mooncake" (FAST'25), 343 tokens on
//   average. Its prompts have 12,035 on average, 30,000 generated requests in 3 hours have 7,400.
//   The exponential form of output lengths, and the log-normal one of input lengths without its
//   Pareto tail, are those of "ServeGen" (NSDI'26). "KVCache Cache in the Wild" (USENIX ATC '25)
//   says of chats that 80 % of the reuses of blocks come within 10 minutes, and that a tenth of the
//   blocks has 77 % of the reuses. Generated: 95 % and 49 %.
// * "BurstGPT" (KDD'25) describes how the load of a service rises and falls over 213 days.
// Not taken from a source, but chosen before any policy was tried: the other medians and
// deviations of lengths, the turns of a chat, all times between turns, the form and the size of the
// swing over the day, the numbers of applications and projects, Zipf's exponent of 1, and the
// shares of attempts and repeated replies.
//
// Cost: O(blocks) time and memory. REQUIRES: requests > 0, hours > 0, a valid tokens_per_block.
Trace GenerateWorkload(const WorkloadOptions& options);

// Writes a trace in Mooncake's format. If a block has not 512 tokens, the first request says so.
void WriteTrace(const Trace& trace, std::ostream& out);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_TRACE_WORKLOAD_TRACE_H_
