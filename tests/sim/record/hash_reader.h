// A router that reads the projection of the events onto hashes (events/hash_projection.h).
#ifndef PAGODA_TESTS_SIM_RECORD_HASH_READER_H_
#define PAGODA_TESTS_SIM_RECORD_HASH_READER_H_

#include <cstdint>

#include "events/event.h"
#include "events/event_filter.h"
#include "tests/events/hash_mirror.h"
#include "tests/sim/record/shadow.h"
#include "tests/sim/words/config.h"

namespace pagoda::sim {

// Checks that its mirror always has exactly the blocks that end a chunk.
class HashReader {
 public:
  // Its chunks have 1 to kMostChunkBlocks blocks.
  static constexpr uint32_t kMostChunkBlocks = 4;
  HashReader(const SimConfig& config, uint32_t chunk_blocks)
      : filter_{.chunk_tokens = chunk_blocks * config.tokens_per_block} {}

  // Stops the run if the event's projection does not fit.
  void See(const Event& event);
  // Stops the run if the mirror's hashes and tiers of a window are not those of the tree.
  void Compare(const SimConfig& config, uint32_t window, const Shadow& tree) const;

 private:
  EventFilter filter_;
  HashMirror mirror_;
};

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_RECORD_HASH_READER_H_
