// What the eviction policies of a cache have learned, over a warm restart (cache.warm_restart).
#ifndef PAGODA_SERVER_CACHE_KEPT_LEARNING_H_
#define PAGODA_SERVER_CACHE_KEPT_LEARNING_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "manager/block_manager.h"
#include "manager/restart/kept_table.h"
#include "manager/shared_manager.h"
#include "pools/layout.h"

namespace pagoda::server {

// Removes the tables that dead daemons left under the names of the cache. Errors: INVALID_ARGUMENT
// (a running daemon uses one).
absl::Status RemoveLeftLearning(const CacheLayout& layout, const std::string& instance);

// Keeps a table for each window whose policy learns. It stays if the number of blocks changes,
// unlike the blocks. Thread-compatible.
class KeptLearning {
 public:
  // A daemon that dies forgets what was learned since.
  static constexpr absl::Duration kInterval = absl::Seconds(5);

  // Gives the core what the last run learned. A table that it cannot use is ignored. Logs the
  // result. Until Keep is called, tables that this daemon made end with it; found ones stay.
  // REQUIRES: nothing has happened in the core. Errors: those of KeptTable::Create.
  static absl::StatusOr<std::unique_ptr<KeptLearning>> Open(const CacheLayout& layout,
                                                            std::string instance,
                                                            BlockManager* core);

  // The daemon serves now. Tables of policies that learned something in an earlier run, and that
  // are not used any more, are removed.
  void Keep();
  // Writes the tables. Tick does so if kInterval has passed. Cost: some 10 us a window, a part of
  // them under the core's lock.
  void Save(const SharedManager& manager);
  void Tick(const SharedManager& manager, absl::Time now);

 private:
  KeptLearning(const CacheLayout& layout, std::string instance)
      : layout_(layout), instance_(std::move(instance)) {}

  const CacheLayout& layout_;
  const std::string instance_;
  std::vector<std::optional<KeptTable>> tables_;  // By window. None: its policy does not learn.
  absl::Time next_save_ = absl::InfinitePast();
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_KEPT_LEARNING_H_
