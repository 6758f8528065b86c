// Each operation at the largest that a client can send: the rows of the table in server/LIMITS.md.
#ifndef PAGODA_TESTS_MANAGER_LARGEST_OPERATIONS_H_
#define PAGODA_TESTS_MANAGER_LARGEST_OPERATIONS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "manager/api/operation.h"
#include "tests/manager/measured_cache.h"

namespace pagoda {

// One row of the table. It prepares the cache and gives the operation, which succeeds unless the
// row's name says that it is refused.
struct Case {
  std::string at;
  std::function<Operation(Cache&)> prepare;
  std::function<BlockManager::Options()> options = TwoTiers;

  Cache::Answer answer() const {
    return absl::EndsWith(at, "refused") ? Cache::Answer::kRefusal : Cache::Answer::kSuccess;
  }
};

struct Row {
  std::string operation;
  Case at;
};

// An operation without a row does not compile.
std::vector<Row> AllRows();

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_LARGEST_OPERATIONS_H_
