// One run: two machines with engines, a store between them, and what must be true at each moment.
#ifndef PAGODA_TESTS_SIM_EXCHANGE_WORLD_H_
#define PAGODA_TESTS_SIM_EXCHANGE_WORLD_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "tests/sim/exchange/cache.h"
#include "tests/sim/exchange/engine.h"
#include "tests/sim/exchange/exchange.h"
#include "tests/sim/exchange/store.h"
#include "tests/sim/exchange/surroundings.h"
#include "tests/sim/words/random.h"
#include "tests/sim/words/trace.h"

namespace pagoda::exchange_sim {

class World {
 public:
  // `trace` outlives the world.
  World(uint64_t seed, sim::Trace* trace);

  // Operation `index`, after a pause in which planned things happen.
  void Step(uint32_t index);
  // Everything ends, and nothing is held.
  void Finish();

  const Coverage& coverage() const { return surroundings_.coverage; }
  // The digest of all reports of jobs, with their times. Equal runs have equal digests.
  uint64_t digest() const { return surroundings_.digest; }

 private:
  struct Machine {
    std::unique_ptr<SimCache> cache;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<SimExchange> exchange;  // Null while the machine has none.
    bool is_stopping = false;
  };

  void Open(Machine& machine);
  void Do(Kind kind, Machine& machine, sim::Random& random);
  StoredPrompt DrawPrompt(sim::Random& random);
  void Publish(Machine& machine, sim::Random& random);
  void Fetch(Machine& machine, Kind kind, sim::Random& random);
  void Pause(absl::Duration pause, sim::Random& random);
  // Runs all steps that wait, in a random order of the machines.
  void RunSteps(sim::Random& random);
  void RunUntilIdle(sim::Random& random);
  // The next planned thing, or the next deadline of a waiting fetch.
  bool RunNext(absl::Time until);
  void CloseEnded();
  void StopAll(sim::Random& random);
  // A store that has recovered gets whole again.
  void CheckRepair(sim::Random& random);
  void Check();

  Surroundings surroundings_;
  Values values_{&surroundings_, 200};
  Values peer_{&surroundings_, 201};  // What a third machine has cached.
  std::array<Machine, kCaches> machines_;
  static constexpr uint32_t kRemembered = 4;
  std::array<StoredPrompt, kRemembered> published_;
  uint64_t next_stream_ = 1000;
  bool engines_run_ = true;
};

}  // namespace pagoda::exchange_sim

#endif  // PAGODA_TESTS_SIM_EXCHANGE_WORLD_H_
