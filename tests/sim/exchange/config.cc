#include "tests/sim/exchange/config.h"

#include "absl/strings/str_cat.h"
#include "tests/sim/words/random.h"

namespace pagoda::exchange_sim {
namespace {

using sim::Random;

constexpr std::array<uint32_t, kKinds> kOrdinary = {
    12,  // kAdd
    26,  // kProgress
    4,   // kAppend
    2,   // kFork
    12,  // kFree
    2,   // kPin
    2,   // kUnpin
    2,   // kOffload
    2,   // kPrefetch
    3,   // kInvalidate
    3,   // kReset
    24,  // kFetch
    6,   // kFetchTwice
    24,  // kPublish
    4,   // kHarm
    1,   // kStall
    1,   // kStop
};

template <class T, size_t n>
const T& OneOf(Random& random, const T (&choices)[n]) {
  return choices[random.Below(n)];
}

CacheConfig DrawCache(Random& random) {
  CacheConfig cache;
  cache.blocks = random.Between(6, 40);
  cache.host_blocks = random.Percent(50) ? random.Between(3, 20) : 0;
  cache.model = "org/model";
  cache.copy_failure_percent = random.OneIn(3) ? random.Between(1, 25) : 0;
  cache.longest_copy = absl::Microseconds(OneOf(random, {20, 500, 5'000, 60'000}));

  BlockExchange::Options& options = cache.exchange;
  options.fetch_base = absl::Milliseconds(OneOf(random, {3, 20, 80, 300}));
  options.fetch_per_1k_tokens = absl::Milliseconds(OneOf(random, {0, 100, 1000}));
  // A block has some hundred bytes, and takes a millisecond or so.
  if (random.Percent(60)) {
    options.recompute_tokens_per_second = OneOf(random, {300.0, 3'000.0, 30'000.0});
  }
  options.assumed_bytes_per_second = OneOf(random, {1e3, 1e5, 500e6});
  options.probe_interval = absl::Milliseconds(OneOf(random, {50, 300, 5'000}));
  options.publish_timeout = absl::Milliseconds(OneOf(random, {5, 50, 300}));
  options.time_to_live = absl::Milliseconds(OneOf(random, {100, 5'000, 10'000'000}));
  if (random.Percent(40)) {
    options.publish_bytes_per_second = OneOf(random, {100.0, 2'000.0, 20'000.0});
  }
  if (random.OneIn(4)) options.max_waiting = random.Between(1, 6);
  if (random.OneIn(8)) options.max_waiting_bytes = random.Between(400, 4'000);
  return cache;
}

StoreConfig DrawStore(Random& random) {
  StoreConfig store;
  store.quickest = absl::Microseconds(random.Between(10, 500));
  store.slowest = store.quickest + absl::Microseconds(OneOf(random, {100, 3'000, 30'000}));
  store.lag = absl::Microseconds(OneOf(random, {0, 100, 2'000}));
  if (random.Percent(70)) {  // The others are faithful.
    store.miss = random.Below(40);
    store.fail = random.Below(40);
    store.fail_all = random.Below(60);
    store.overload = random.Below(40);
    store.lost = random.Below(60);
    store.damaged = random.Below(60);
  }
  store.most_values = OneOf(random, {20u, 100u, 1'000u});
  if (random.Percent(40)) store.secret = "a secret of the operator";
  return store;
}

}  // namespace

SimConfig DrawConfig(uint64_t seed) {
  Random random(seed, 0);
  SimConfig config;
  config.seed = seed;
  config.tokens_per_block = OneOf(random, {1u, 2u, 4u, 8u, 16u});
  config.alphabet = random.Between(2, 4);
  config.longest_prompt = random.Between(2, 9);
  config.extras = random.Percent(50);
  config.longest_pause = absl::Microseconds(OneOf(random, {500, 4'000, 30'000}));

  if (random.Percent(60)) {
    TenantOptions red{.name = "red"};
    red.quota_blocks[0] = random.Between(2, 12);
    red.quota_blocks[1] = random.Between(2, 12);
    config.tenants.push_back(red);
    TenantOptions blue{.name = "blue", .shares = random.Percent(50)};
    if (random.Percent(50)) blue.quota_blocks[0] = random.Between(2, 12);
    config.tenants.push_back(blue);
  }
  config.name_spaces.emplace_back();
  if (random.Percent(60)) config.name_spaces.push_back({.cache_salt = "salt"});
  if (random.Percent(30)) config.name_spaces.push_back({.lora_id = 1});
  if (random.Percent(50)) config.name_spaces.push_back({.keyed = true});
  for (const TenantOptions& tenant : config.tenants) {
    if (tenant.shares) continue;
    config.name_spaces.push_back({.tenant = tenant.name});
    if (random.Percent(40)) config.name_spaces.push_back({.tenant = tenant.name, .keyed = true});
    if (random.Percent(40)) {
      config.name_spaces.push_back({.cache_salt = "salt", .tenant = tenant.name});
    }
  }
  for (CacheConfig& cache : config.caches) cache = DrawCache(random);
  // A machine with another model on the same store.
  if (random.OneIn(8)) config.caches[1].model = "org/other";
  config.store = DrawStore(random);
  for (size_t i = 0; i < kKinds; ++i) {
    // Swarm testing: each seed leaves out some kinds, and uses others more often.
    config.weights[i] = kOrdinary[i] * (random.OneIn(6) ? 0 : random.Between(1, 3));
  }
  // Without these nothing happens.
  config.weights[static_cast<size_t>(Kind::kAdd)] += 6;
  config.weights[static_cast<size_t>(Kind::kProgress)] += 12;
  config.weights[static_cast<size_t>(Kind::kFree)] += 6;
  config.weights[static_cast<size_t>(Kind::kFetch)] += 8;
  config.weights[static_cast<size_t>(Kind::kPublish)] += 8;
  return config;
}

std::string SimConfig::ToString() const {
  std::string text = absl::StrCat("seed ", seed, ": ", tokens_per_block, " tokens a block, ",
                                  name_spaces.size(), " namespaces, ", tenants.size(), " tenants");
  for (const CacheConfig& cache : caches) {
    absl::StrAppend(&text, "; ", cache.blocks, "+", cache.host_blocks, " blocks of ", cache.model,
                    ", copies up to ", absl::FormatDuration(cache.longest_copy), ", recompute ",
                    cache.exchange.recompute_tokens_per_second, "/s, budget ",
                    cache.exchange.publish_bytes_per_second, " B/s");
  }
  return absl::StrCat(text, "; the store takes up to ", absl::FormatDuration(store.slowest));
}

}  // namespace pagoda::exchange_sim
