#include "tests/sim/exchange/store.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "tests/sim/words/fail.h"

namespace pagoda::exchange_sim {
namespace {

using sim::Random;

bool Chance(Random& random, uint32_t permille) { return random.Below(1000) < permille; }

}  // namespace

// --- The servers ---

void Values::Put(const StoreKey& key, std::vector<std::byte> bytes, absl::Time expires) {
  values_[{key.layout, key.digest}] = {key, std::move(bytes), expires};
  while (values_.size() > surroundings_.config.store.most_values) {
    surroundings_.coverage.Add(Met::kEvicted);
    values_.erase(std::next(values_.begin(), random_.Below(static_cast<uint32_t>(values_.size()))));
  }
}

const std::vector<std::byte>* Values::Find(const StoreKey& key) {
  const auto found = values_.find({key.layout, key.digest});
  if (found == values_.end()) return nullptr;
  if (found->second.expires > surroundings_.timeline.now()) return &found->second.bytes;
  values_.erase(found);
  return nullptr;
}

void Values::PutAll(const std::string& model, const StoredPrompt& prompt) {
  const Library& library = surroundings_.library;
  for (const StoreKey& key : library.KeysOf(model, prompt)) {
    std::vector<std::byte> bytes(kStoredHeaderBytes);
    for (uint32_t pool = 0; pool < library.pools().size(); ++pool) {
      std::vector<std::byte> slot(library.pools()[pool].slot_stride_bytes());
      Write(library.pools()[pool], pool, absl::MakeSpan(slot), 0, library.Named(key));
      bytes.insert(bytes.end(), slot.begin(), slot.end());
    }
    const absl::Span<const std::byte> body = absl::MakeConstSpan(bytes).subspan(kStoredHeaderBytes);
    const StoredHeader header =
        MakeStoredHeader(key, surroundings_.config.store.secret, {&body, 1});
    std::copy(header.begin(), header.end(), bytes.begin());
    Put(key, std::move(bytes), absl::InfiniteFuture());
  }
}

void Values::Harm() {
  if (values_.empty()) return;
  surroundings_.coverage.Add(Met::kHarmed);
  const auto any = [&] {
    return std::next(values_.begin(), random_.Below(static_cast<uint32_t>(values_.size())));
  };
  const auto victim = any();
  std::vector<std::byte>& bytes = victim->second.bytes;
  const auto size = static_cast<uint32_t>(bytes.size());
  switch (random_.Below(7)) {
    case 0:
      bytes[random_.Below(size)] ^= static_cast<std::byte>(1u << random_.Below(8));
      break;
    case 1:
      std::swap(bytes, any()->second.bytes);
      break;
    case 2:
      bytes.resize(random_.Below(size));
      break;
    case 3:
      bytes.assign(random_.Below(400), std::byte{0x42});
      break;
    case 4: {  // Another block's bytes, with a header that fits and without the secret.
      if (surroundings_.config.store.secret.empty() || size <= kStoredHeaderBytes) break;
      bytes[size - 1] ^= std::byte{1};
      const absl::Span<const std::byte> body =
          absl::MakeConstSpan(bytes).subspan(kStoredHeaderBytes);
      const StoredHeader header = MakeStoredHeader(victim->second.key, "", {&body, 1});
      std::copy(header.begin(), header.end(), bytes.begin());
      break;
    }
    case 5: {  // The value of a machine with another layout.
      if (size <= kStoredHeaderBytes) break;
      StoreKey other = victim->second.key;
      other.layout[0] ^= std::byte{1};
      const absl::Span<const std::byte> body =
          absl::MakeConstSpan(bytes).subspan(kStoredHeaderBytes);
      const StoredHeader header =
          MakeStoredHeader(other, surroundings_.config.store.secret, {&body, 1});
      std::copy(header.begin(), header.end(), bytes.begin());
      break;
    }
    default:
      values_.erase(victim);
  }
}

// --- A machine's way to them ---

SimStore::SimStore(Surroundings* surroundings, Values* values, StoreWatcher* watcher,
                   uint64_t stream)
    : surroundings_(*surroundings),
      config_(surroundings->config.store),
      values_(*values),
      watcher_(*watcher),
      random_(surroundings->config.seed, stream) {}

SimStore::~SimStore() {
  SIM_CHECK(calls_.empty(), "a store is gone before its calls have ended");
  *lives_ = false;
}

absl::Duration SimStore::Latency() {
  const absl::Time now = surroundings_.timeline.now();
  const auto spread =
      static_cast<uint32_t>(absl::ToInt64Microseconds(config_.slowest - config_.quickest));
  absl::Duration latency = config_.quickest + absl::Microseconds(random_.Below(spread + 1));
  if (values_.stalled_until() > now) latency += values_.stalled_until() - now;
  return latency;
}

std::optional<StoreOutcome> SimStore::Failure(bool all_fail) {
  if (!all_fail && (!surroundings_.faults || !Chance(random_, config_.fail))) return std::nullopt;
  constexpr StoreOutcome kFailures[] = {StoreOutcome::kRefused, StoreOutcome::kUnreachable,
                                        StoreOutcome::kOverloaded};
  return kFailures[random_.Below(3)];
}

SimStore::Shared SimStore::Begin(size_t keys, absl::Duration timeout, StoreWatcher::Around around,
                                 Done done) {
  const bool is_overloaded = surroundings_.faults && Chance(random_, config_.overload);
  if (stopped_ || keys == 0 || is_overloaded) {
    const StoreOutcome outcome = stopped_ ? StoreOutcome::kCancelled : StoreOutcome::kOverloaded;
    if (!stopped_) surroundings_.coverage.Add(Met::kOverloaded);
    around(std::vector<StoreOutcome>(keys, outcome), done);
    return nullptr;
  }
  auto call = std::make_shared<Call>();
  call->id = ++last_call_;
  call->deadline = surroundings_.timeline.now() + std::max(timeout, absl::ZeroDuration());
  call->outcomes.resize(keys);
  call->left = keys;
  call->around = std::move(around);
  call->done = std::move(done);
  calls_[call->id] = call;
  const auto lag = static_cast<uint32_t>(absl::ToInt64Microseconds(config_.lag));
  const absl::Time end = call->deadline + absl::Microseconds(random_.Below(lag + 1));
  While(call, end - surroundings_.timeline.now(),
        [this, call] { Report(call, StoreOutcome::kTimedOut); });
  return call;
}

void SimStore::While(const Shared& call, absl::Duration later, std::function<void()> what) {
  surroundings_.timeline.In(later, [this, lives = lives_, id = call->id, what = std::move(what)] {
    if (*lives && calls_.contains(id)) what();
  });
}

void SimStore::EndKey(const Shared& call, size_t key, StoreOutcome outcome) {
  if (call->outcomes[key].has_value()) return;
  call->outcomes[key] = outcome;
  if (--call->left > 0) return;
  const auto lag = static_cast<uint32_t>(absl::ToInt64Microseconds(config_.lag));
  // The report at the deadline can come before.
  While(call, absl::Microseconds(random_.Below(lag + 1)),
        [this, call] { Report(call, StoreOutcome::kTimedOut); });
}

void SimStore::Report(const Shared& call, StoreOutcome rest) {
  std::vector<StoreOutcome> outcomes;
  for (size_t i = 0; i < call->outcomes.size(); ++i) {
    outcomes.push_back(call->outcomes[i].value_or(rest));
    if (call->reads.empty() || outcomes[i] == StoreOutcome::kOk) continue;
    if (call->readers[i] != nullptr) call->readers[i]->Drop();
    if (outcomes[i] == StoreOutcome::kTimedOut) surroundings_.coverage.Add(Met::kTimedOut);
    // To the last moment the memory can be written.
    if (random_.Percent(50)) Scribble(call->reads[i]);
  }
  calls_.erase(call->id);
  call->around(outcomes, call->done);
}

void SimStore::Stop() {
  stopped_ = true;
  while (!calls_.empty()) {
    const Shared call = calls_.begin()->second;
    Report(call, StoreOutcome::kCancelled);
  }
}

// --- Reads ---

void SimStore::Get(std::vector<Read> batch, absl::Duration timeout, Done done) {
  const Shared call = Begin(batch.size(), timeout, watcher_.Got(batch), std::move(done));
  if (call == nullptr) return;
  call->reads = std::move(batch);
  const size_t keys = call->reads.size();
  call->readers.resize(keys);
  call->values.resize(keys);
  const bool all_fail = surroundings_.faults && Chance(random_, config_.fail_all);
  for (size_t i = 0; i < keys; ++i) {
    const absl::Duration latency = Latency();
    While(call, latency * 0.5, [this, call, i] { Scribble(call->reads[i]); });
    if (const std::optional<StoreOutcome> failure = Failure(all_fail)) {
      While(call, latency, [this, call, i, failure] { EndKey(call, i, *failure); });
      continue;
    }
    const bool misses = surroundings_.faults && Chance(random_, config_.miss);
    While(call, latency * 0.6, [this, call, i, misses] {
      const std::vector<std::byte>* value = misses ? nullptr : values_.Find(call->reads[i].key);
      if (value == nullptr) return EndKey(call, i, StoreOutcome::kMissing);
      call->values[i] = *value;
      call->readers[i] = std::make_unique<StoredValueReader>(call->reads[i].key, config_.secret,
                                                             call->reads[i].pieces);
      call->readers[i]->Begin(value->size());
      ReadSome(call, i, false);
    });
    While(call, latency, [this, call, i] {
      if (!call->outcomes[i].has_value()) ReadSome(call, i, true);
    });
  }
}

// The bytes arrive in two parts, and are checked as the real store checks them.
void SimStore::ReadSome(const Shared& call, size_t key, bool is_last) {
  std::vector<std::byte>& value = call->values[key];
  StoredValueReader& reader = *call->readers[key];
  size_t left = is_last ? value.size() : value.size() / 2 + 1;
  left = std::min(left, value.size());
  size_t used = 0;
  iovec places[4];
  while (left > 0) {
    const size_t count = reader.Places(places);
    if (count == 0) break;
    const size_t bytes = std::min(left, places[0].iov_len);
    std::memcpy(places[0].iov_base, value.data() + used, bytes);
    reader.Advance(bytes);
    used += bytes;
    left -= bytes;
  }
  value.erase(value.begin(), value.begin() + static_cast<ptrdiff_t>(used));
  if (!is_last) return;
  const bool is_good = reader.Finish() == ValueFault::kNone;
  EndKey(call, key, is_good ? StoreOutcome::kOk : StoreOutcome::kInvalid);
}

void SimStore::Scribble(const Read& read) {
  for (const absl::Span<std::byte> piece : read.pieces) {
    for (std::byte& byte : piece) byte = static_cast<std::byte>(random_.Next());
  }
}

// --- Writes ---

void SimStore::Put(std::vector<Write> batch, absl::Duration time_to_live, absl::Duration timeout,
                   Done done) {
  const Shared call =
      Begin(batch.size(), timeout, watcher_.Put(batch, time_to_live), std::move(done));
  if (call == nullptr) return;
  call->writes = std::move(batch);
  const size_t keys = call->writes.size();
  call->values.resize(keys);
  const bool all_fail = surroundings_.faults && Chance(random_, config_.fail_all);
  for (size_t i = 0; i < keys; ++i) {
    const absl::Duration latency = Latency();
    if (const std::optional<StoreOutcome> failure = Failure(all_fail)) {
      While(call, latency, [this, call, i, failure] { EndKey(call, i, *failure); });
      continue;
    }
    const StoredHeader header =
        MakeStoredHeader(call->writes[i].key, config_.secret, call->writes[i].pieces);
    call->values[i].assign(header.begin(), header.end());
    While(call, latency * 0.3, [this, call, i] { WriteSome(call, i, false); });
    While(call, latency * 0.6, [this, call, i, latency, time_to_live] {
      WriteSome(call, i, true);
      // All bytes are sent. The value is there soon, even if the answer comes too late.
      std::vector<std::byte> value = call->values[i];
      const bool is_lost = surroundings_.faults && Chance(random_, config_.lost);
      if (surroundings_.faults && Chance(random_, config_.damaged)) {
        value[random_.Below(static_cast<uint32_t>(value.size()))] ^= std::byte{4};
      }
      surroundings_.timeline.In(
          latency * 0.2,
          [this, lives = lives_, id = call->id, &surroundings = surroundings_, &values = values_,
           key = call->writes[i].key, value, is_lost, time_to_live] {
            if (!is_lost) values.Put(key, value, surroundings.timeline.now() + time_to_live);
            if (!*lives || !calls_.contains(id)) surroundings.coverage.Add(Met::kLateWrite);
          });
    });
    While(call, latency, [this, call, i] { EndKey(call, i, StoreOutcome::kOk); });
  }
}

// The memory is read in two parts.
void SimStore::WriteSome(const Shared& call, size_t key, bool is_last) {
  std::vector<std::byte> body;
  for (const absl::Span<const std::byte> piece : call->writes[key].pieces) {
    body.insert(body.end(), piece.begin(), piece.end());
  }
  std::vector<std::byte>& value = call->values[key];
  const size_t done = value.size() - kStoredHeaderBytes;
  const size_t end = is_last ? body.size() : body.size() / 2;
  value.insert(value.end(), body.begin() + static_cast<ptrdiff_t>(done),
               body.begin() + static_cast<ptrdiff_t>(end));
  if (!is_last || body.empty()) return;
  const std::vector<exchange_sim::Value>& expected =
      surroundings_.library.Named(call->writes[key].key);
  for (uint32_t pool = 0; pool < call->writes[key].pieces.size(); ++pool) {
    SIM_CHECK(Holds(surroundings_.library.pools()[pool], pool, call->writes[key].pieces[pool], 0,
                    expected),
              "a block is published with other bytes than those of its name");
  }
  SIM_CHECK(std::equal(body.begin(), body.end(), value.begin() + kStoredHeaderBytes),
            "the bytes of a block change while it is published");
}

// --- Questions ---

void SimStore::Exists(std::vector<StoreKey> batch, absl::Duration timeout, Done done) {
  const Shared call = Begin(batch.size(), timeout, watcher_.Asked(batch), std::move(done));
  if (call == nullptr) return;
  const bool all_fail = surroundings_.faults && Chance(random_, config_.fail_all);
  for (size_t i = 0; i < batch.size(); ++i) {
    const std::optional<StoreOutcome> failure = Failure(all_fail);
    const bool misses = surroundings_.faults && Chance(random_, config_.miss);
    While(call, Latency(), [this, call, i, failure, misses, key = batch[i]] {
      if (failure.has_value()) return EndKey(call, i, *failure);
      const bool is_there = !misses && values_.Find(key) != nullptr;
      EndKey(call, i, is_there ? StoreOutcome::kOk : StoreOutcome::kMissing);
    });
  }
}

}  // namespace pagoda::exchange_sim
