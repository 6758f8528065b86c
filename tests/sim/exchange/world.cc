#include "tests/sim/exchange/world.h"

#include <algorithm>
#include <utility>

#include "tests/sim/words/fail.h"

namespace pagoda::exchange_sim {
namespace {

using sim::Random;
using sim::Text;

constexpr std::array<const char*, kKinds> kKindNames = {
    "add",         "progress", "append",   "fork",       "free",  "pin",
    "unpin",       "offload",  "prefetch", "invalidate", "reset", "fetch",
    "fetch_twice", "publish",  "harm",     "stall",      "stop"};

bool IsEmpty(const StoredPrompt& prompt) { return prompt.tokens.empty() && prompt.keys.empty(); }

}  // namespace

World::World(uint64_t seed, sim::Trace* trace) : surroundings_{.config = DrawConfig(seed)} {
  surroundings_.trace = trace;
  if (trace->on()) trace->Add(surroundings_.config.ToString());
  for (size_t i = 0; i < kCaches; ++i) {
    machines_[i].cache = std::make_unique<SimCache>(&surroundings_, i);
    machines_[i].engine = std::make_unique<Engine>(&surroundings_, machines_[i].cache.get());
    Open(machines_[i]);
  }
}

void World::Open(Machine& machine) {
  machine.exchange = std::make_unique<SimExchange>(&surroundings_, machine.cache.get(),
                                                   std::array{&values_, &peer_}, ++next_stream_);
  machine.is_stopping = false;
}

void World::Step(uint32_t index) {
  Random random(surroundings_.config.seed, 10'000 + index);
  Pause(surroundings_.config.longest_pause, random);
  uint32_t sum = 0;
  for (const uint32_t weight : surroundings_.config.weights) sum += weight;
  uint32_t roll = random.Below(sum);
  size_t kind = 0;
  while (roll >= surroundings_.config.weights[kind]) roll -= surroundings_.config.weights[kind++];
  const uint32_t which = random.Below(kCaches);
  if (surroundings_.trace->on()) {
    surroundings_.trace->Add(Text("operation ", index, ": ", kKindNames[kind], " on machine ",
                                  which, " at ", absl::FormatTime(surroundings_.timeline.now())));
  }
  Do(static_cast<Kind>(kind), machines_[which], random);
  Check();
}

void World::Do(Kind kind, Machine& machine, Random& random) {
  switch (kind) {
    case Kind::kFetch:
    case Kind::kFetchTwice:
      return Fetch(machine, kind, random);
    case Kind::kPublish:
      return Publish(machine, random);
    case Kind::kHarm:
      return (random.OneIn(3) ? peer_ : values_).Harm();
    case Kind::kStall:
      surroundings_.coverage.Add(Met::kStalled);
      return (random.OneIn(3) ? peer_ : values_)
          .Stall(surroundings_.timeline.now() + 10 * surroundings_.config.longest_pause);
    case Kind::kStop:
      if (machine.exchange == nullptr) return Open(machine);
      if (std::exchange(machine.is_stopping, true)) return;
      if (machine.exchange->has_jobs()) surroundings_.coverage.Add(Met::kStopped);
      machine.exchange->BeginStop();
      if (random.Percent(50)) return;
      surroundings_.coverage.Add(Met::kStoreStopped);
      return machine.exchange->StopStores();
    default:
      return machine.engine->Do(kind, random);
  }
}

// A prompt, which is bad now and then.
StoredPrompt World::DrawPrompt(Random& random) {
  StoredPrompt prompt = surroundings_.library.Draw(random);
  if (!random.OneIn(25) || prompt.name_space.keyed) return prompt;
  switch (random.Below(3)) {
    case 0:
      prompt.tokens.clear();
      prompt.extra_token_ids.clear();
      prompt.multimodal_items.clear();
      break;
    case 1:
      prompt.tenant = "nobody";
      break;
    default:
      prompt.extra_token_ids.assign(prompt.tokens.size() + 1, 1);
  }
  return prompt;
}

void World::Publish(Machine& machine, Random& random) {
  if (machine.exchange == nullptr) return;
  StoredPrompt prompt = DrawPrompt(random);
  const StoredPrompt& computed = machine.engine->computed();
  if (random.Percent(70) && !IsEmpty(computed)) prompt = computed;
  machine.exchange->Publish(prompt);
  published_[random.Below(kRemembered)] = prompt;
}

void World::Fetch(Machine& machine, Kind kind, Random& random) {
  if (machine.exchange == nullptr) return;
  const auto most = [&random] {
    return random.OneIn(4) ? absl::Milliseconds(random.Below(20)) : absl::Seconds(60);
  };
  StoredPrompt prompt = DrawPrompt(random);
  // Mostly what a machine has published, or the beginning of it.
  const StoredPrompt& published = published_[random.Below(kRemembered)];
  if (random.Percent(60) && !IsEmpty(published)) {
    prompt = published;
  }
  const auto source = [&random] {
    return random.OneIn(4) ? SimExchange::kPeer : SimExchange::kOwnStore;
  };
  machine.exchange->Fetch(prompt, most(), source());
  if (random.OneIn(4)) peer_.PutAll(machine.cache->config().model, prompt);
  if (kind != Kind::kFetchTwice) return;
  for (uint32_t i = random.Between(1, 3); i > 0; --i) {
    StoredPrompt other = prompt;
    if (random.OneIn(3)) surroundings_.library.Append(other, random.Between(1, 9), random);
    machine.exchange->Fetch(other, most(), source());
  }
}

// --- Time ---

bool World::RunNext(absl::Time until) {
  SimExchange* expiring = nullptr;
  absl::Time next = surroundings_.timeline.next();
  for (Machine& machine : machines_) {
    if (machine.exchange == nullptr || machine.exchange->next_expiry() >= next) continue;
    next = machine.exchange->next_expiry();
    expiring = machine.exchange.get();
  }
  if (next > until || next == absl::InfiniteFuture()) return false;
  if (expiring != nullptr) {
    surroundings_.timeline.AdvanceTo(next);
    expiring->Expire();
  } else {
    surroundings_.timeline.RunNext();
  }
  return true;
}

void World::RunSteps(Random& random) {
  while (true) {
    std::array<SimExchange*, kCaches> ready = {};
    uint32_t count = 0;
    for (Machine& machine : machines_) {
      if (machine.exchange != nullptr && machine.exchange->has_steps()) {
        ready[count++] = machine.exchange.get();
      }
    }
    if (count == 0) break;
    ready[random.Below(count)]->RunStep();
    Check();
    // Other threads come in between.
    if (engines_run_ && random.OneIn(8)) {
      Machine& machine = machines_[random.Below(kCaches)];
      machine.engine->Do(random.Percent(50) ? Kind::kAdd : Kind::kFree, random);
    }
  }
  CloseEnded();
}

void World::Pause(absl::Duration pause, Random& random) {
  const absl::Time end =
      surroundings_.timeline.now() +
      absl::Microseconds(random.Below(static_cast<uint32_t>(absl::ToInt64Microseconds(pause)) + 1));
  // An operation can come before the steps of the one before it.
  if (random.OneIn(3)) return;
  RunSteps(random);
  while (RunNext(end)) {
    Check();
    RunSteps(random);
  }
  surroundings_.timeline.AdvanceTo(end);
}

void World::RunUntilIdle(Random& random) {
  do {
    RunSteps(random);
    Check();
  } while (RunNext(absl::InfiniteFuture()));
}

void World::CloseEnded() {
  for (Machine& machine : machines_) {
    if (!machine.is_stopping || machine.exchange == nullptr || !machine.exchange->has_ended()) {
      continue;
    }
    machine.exchange->Close();
    machine.exchange = nullptr;
  }
}

void World::Check() {
  for (Machine& machine : machines_) {
    machine.cache->Check();
    if (machine.exchange != nullptr) machine.exchange->Check();
  }
}

void World::Finish() {
  Random random(surroundings_.config.seed, 2);
  RunUntilIdle(random);
  for (Machine& machine : machines_) {
    SIM_CHECK(machine.exchange == nullptr || !machine.exchange->has_jobs(),
              "nothing happens any more, and a job has not ended");
  }
  surroundings_.faults = false;
  engines_run_ = false;
  for (Machine& machine : machines_) machine.engine->Leave(random);
  RunUntilIdle(random);
  StopAll(random);
  if (surroundings_.config.caches[1].model == surroundings_.config.caches[0].model) {
    CheckRepair(random);
  }
}

void World::StopAll(Random& random) {
  RunUntilIdle(random);
  for (Machine& machine : machines_) {
    machine.cache->CheckIdle();
    if (machine.exchange == nullptr) continue;
    machine.is_stopping = true;
    machine.exchange->BeginStop();
  }
  CloseEnded();
  for (Machine& machine : machines_) {
    SIM_CHECK(machine.exchange == nullptr, "an exchange without jobs does not end");
    machine.cache->CheckIdle();
  }
}

// Whatever is wrong in the store, a publish and a fetch find and withdraw it. The second publish
// writes it again, and then the other machine gets all that is cached here.
void World::CheckRepair(Random& random) {
  for (size_t i = 0; i < kCaches; ++i) {
    surroundings_.config.caches[i].exchange = {.fetch_base = absl::Hours(1),
                                               .publish_timeout = absl::Hours(1),
                                               .time_to_live = absl::Hours(1'000)};
    Open(machines_[i]);
  }
  surroundings_.config.store.most_values = 10'000;
  values_.KeepAll();
  const StoredPrompt prompt = machines_[0].engine->computed();
  const uint32_t blocks =
      prompt.whole_blocks(TokensPerBlock(surroundings_.config.tokens_per_block));
  uint32_t there = 0;
  for (int round = 0; round < 2 && !IsEmpty(prompt); ++round) {
    machines_[0].exchange->Publish(prompt);
    RunUntilIdle(random);
    const PublishedPrefix& published = machines_[0].exchange->last_publish();
    there = published.blocks;
    // A prefix that fills the first tier or a quota cannot be held with a token behind it.
    if (published.failed > 0) {
      SIM_CHECK(
          blocks >= surroundings_.config.caches[0].blocks || !surroundings_.config.tenants.empty(),
          "a store without faults does not take a block");
      return StopAll(random);
    }
    machines_[1].exchange->Fetch(prompt, absl::Hours(1), SimExchange::kOwnStore);
    RunUntilIdle(random);
  }
  const FetchedPrefix& fetched = machines_[1].exchange->last_fetch();
  if (there > 0 && fetched.outcome != FetchOutcome::kNoRoom) {
    there = std::min(there, surroundings_.config.caches[1].blocks);
    SIM_CHECK(fetched.cached_tokens + fetched.fetched_tokens >=
                  there * surroundings_.config.tokens_per_block,
              "a published prefix of ", blocks,
              " blocks cannot be fetched: ", FetchOutcomeName(fetched.outcome));
    surroundings_.coverage.Add(Met::kRepaired);
  }
  StopAll(random);
}

}  // namespace pagoda::exchange_sim
