#include "tests/sim/operations.h"

#include <array>

namespace pagoda::sim {
namespace {

struct Kind {
  std::string_view name;
  uint32_t weight;
  void (*run)(World&);
};

constexpr std::array kKinds = {
    Kind{"AddSequence", 140, AddSequenceOp},
    Kind{"AppendTokens", 220, AppendOp},
    Kind{"ReserveTokens", 40, ReserveOp},
    Kind{"CommitTokens", 110, CommitOp},
    Kind{"ForkSequence", 30, ForkOp},
    Kind{"TruncateSequence", 40, TruncateOp},
    Kind{"FreeSequence", 70, FreeSequenceOp},
    Kind{"DescribeSequence", 5, DescribeOp},
    Kind{"AllocateBlocks", 20, AllocateOp},
    Kind{"FreeBlocks", 25, FreeBlocksOp},
    Kind{"FillBlocks", 15, FillBlocksOp},
    Kind{"DescribeBlocks", 15, DescribeBlocksOp},
    Kind{"MatchPrefix", 15, MatchOp},
    Kind{"QueryCapacity", 10, CapacityOp},
    Kind{"OffloadPrefix", 20, OffloadOp},
    Kind{"PrefetchPrefix", 20, PrefetchOp},
    Kind{"PinPrefix", 15, PinOp},
    Kind{"UnpinPrefix", 15, UnpinOp},
    Kind{"InvalidatePrefix", 8, InvalidateOp},
    Kind{"SetRetention", 15, RetentionOp},
    Kind{"OpenSession", 8, OpenSessionOp},
    Kind{"CloseSession", 5, CloseSessionOp},
    Kind{"Lease", 10, LeaseOp},
    Kind{"ExpireSessions", 5, ExpireSessionsOp},
    Kind{"ReleaseQuarantine", 5, QuarantineOp},
    Kind{"ContinueEndings", 60, ContinueEnding},
    Kind{"Copies", 120, CopiesOp},
    Kind{"WaitForTicket", 5, WaitOp},
    Kind{"ClockJump", 10, ClockJumpOp},
    Kind{"Maintain", 20, MaintainOp},
    Kind{"ResetPrefixCache", 1, ResetOp},
    Kind{"Restart", 1, RestartOp},
};

}  // namespace

std::vector<uint32_t> OperationWeights() {
  std::vector<uint32_t> weights;
  for (const Kind& kind : kKinds) weights.push_back(kind.weight);
  return weights;
}

void RunOperation(World& world) {
  // After a refusal for lack of blocks, the client mostly ends something soon.
  if (world.exhausted && world.random.OneIn(3)) {
    world.exhausted = false;
    return FreeSequenceOp(world);
  }
  uint32_t sum = 0;
  for (const uint32_t weight : world.config.weights) sum += weight;
  uint32_t dice = world.random.Below(sum);
  size_t kind = 0;
  while (dice >= world.config.weights[kind]) dice -= world.config.weights[kind++];
  if (world.Note()) world.Note(std::string(kKinds[kind].name));
  kKinds[kind].run(world);
}

}  // namespace pagoda::sim
