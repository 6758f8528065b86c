// Presents the reports of replays.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_TEXT_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "clients/pagoda_plan/replay/replay.h"
#include "clients/pagoda_plan/size/ladder.h"
#include "clients/pagoda_plan/trace/trace.h"
#include "nlohmann/json_fwd.hpp"

namespace pagoda {

// One replay of a trace.
struct ReplayRun {
  std::string policy;                 // kOptPolicy too: that run has no figures of tiers.
  std::vector<uint32_t> tier_blocks;  // None: unlimited.
  ReplayReport report;

  uint32_t host_blocks() const { return tier_blocks.size() > 1 ? tier_blocks[1] : 0; }
  // "100 + 300 blocks".
  std::string TiersText() const;
};

// The replays of one trace. REQUIRES: there is at least one run.
struct ReplayResults {
  TraceFormat format = TraceFormat::kMooncake;
  std::optional<ServiceModel> service;  // nullopt: one by one.
  std::vector<LadderTier> ladder;       // Empty: the tiers have the default names.
  uint64_t block_bytes = 0;             // 0: unknown.
  std::vector<ReplayRun> runs;
};

// For people. With a ladder, each tier has its own row.
std::string ReplayText(const ReplayResults& results);
// For programs.
nlohmann::ordered_json ReplayJson(const ReplayResults& results);
// A picture of the hit rates by the blocks of the first tier, with a line for each policy and each
// size of the other tiers.
std::string ReplaySvg(const ReplayResults& results);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_REPLAY_REPLAY_TEXT_H_
