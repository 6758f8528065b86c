// The manager's work in chunks, on a full cache: the rows of the table in server/LIMITS.md that are
// not operations.
#ifndef PAGODA_TESTS_MANAGER_LARGEST_CHUNKS_H_
#define PAGODA_TESTS_MANAGER_LARGEST_CHUNKS_H_

#include <functional>
#include <string>
#include <vector>

#include "manager/block_manager.h"
#include "tests/manager/measured_cache.h"

namespace pagoda {

struct ChunkedWork {
  std::string operation;
  std::string at;
  std::function<void(BlockManager&)> prepare;
  // Runs one chunk, of as many blocks as SharedManager gives it. Returns whether any work is left.
  std::function<bool(BlockManager&)> chunk;
};

std::vector<ChunkedWork> AllChunkedWork();

// The cost of the longest chunk, including the cost of taking its events.
Cost MeasureLongestChunk(const ChunkedWork& work);

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_LARGEST_CHUNKS_H_
