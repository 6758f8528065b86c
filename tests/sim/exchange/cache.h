// A cache with real memory whose copies take virtual time and can fail. Knows, without asking the
// core, which bytes each slot must have.
#ifndef PAGODA_TESTS_SIM_EXCHANGE_CACHE_H_
#define PAGODA_TESTS_SIM_EXCHANGE_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "events/event_log.h"
#include "manager/shared_manager.h"
#include "manager/words/slot_journal.h"
#include "pools/carrier.h"
#include "pools/pool.h"
#include "tests/sim/exchange/surroundings.h"
#include "tests/sim/words/random.h"

namespace pagoda::exchange_sim {

class SimCache final : public SlotChangeSink, public Carrier {
 public:
  SimCache(Surroundings* surroundings, size_t index);
  ~SimCache() override;

  SharedManager& manager() { return *manager_; }
  PoolSet& pools() { return *pools_; }
  const CacheConfig& config() const { return config_; }
  SessionRef OpenSession(const std::string& name);

  // The bytes of tokens [first, first + values.size()) of a block in the first tier.
  void Write(SlotIndex slot, uint32_t first, absl::Span<const Value> values);
  bool Holds(SlotRef slot, uint32_t first, absl::Span<const Value> values);

  // Every cached block that no copy is filling has the bytes of its content, in each of its slots.
  // Rule 5 holds.
  void Check();
  // Nothing holds a block.
  void CheckIdle();

 private:
  struct Content {
    Ticket ready;
    std::vector<Value> values;
  };
  struct Known {
    Generation generation;
    Value end = 0;
  };
  struct Copy {
    Order order;
    bool is_due = false;
  };

  // The methods of SlotChangeSink. Under the core's lock.
  void Apply(std::vector<SlotChange> changes) override;
  void CopiesDone(Ticket completed) override { completed_ = completed; }
  // The method of Carrier. Under the core's lock.
  void Submit(absl::Span<const Order> orders) override;

  void Begin(Ticket ticket);
  void CopyBytes(const Order& order);
  void Scribble(SlotRef slot, uint32_t tokens);
  void End(Ticket ticket, bool fails);

  Surroundings& surroundings_;
  const CacheConfig& config_;
  sim::Random random_;
  std::unique_ptr<PoolSet> pools_;
  EventLog log_{EventLog::Limits{.max_events = 1 << 12}};
  std::map<std::pair<Tier, SlotIndex>, Content> contents_;
  std::map<BlockId, Known> known_;  // The cached blocks, and earlier ones of their ids.
  std::map<Ticket, Copy> copies_;   // Not ended.
  Ticket completed_;
  std::unique_ptr<SharedManager> manager_;
};

}  // namespace pagoda::exchange_sim

#endif  // PAGODA_TESTS_SIM_EXCHANGE_CACHE_H_
