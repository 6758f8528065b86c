// A store that keeps the promises of pools/store/store.h and no others: it misses, lies, delays,
// fails, refuses, loses and forgets. Several machines share its values.
#ifndef PAGODA_TESTS_SIM_EXCHANGE_STORE_H_
#define PAGODA_TESTS_SIM_EXCHANGE_STORE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "pools/store/store.h"
#include "pools/store/stored_value.h"
#include "tests/sim/exchange/surroundings.h"
#include "tests/sim/words/random.h"

namespace pagoda::exchange_sim {

// What the servers have. Values are as the real store writes them.
class Values {
 public:
  Values(Surroundings* surroundings, uint64_t stream)
      : surroundings_(*surroundings), random_(surroundings->config.seed, stream) {}

  void Put(const StoreKey& key, std::vector<std::byte> bytes, absl::Time expires);
  // Null: there is none, or it has expired. Valid until the next call.
  const std::vector<std::byte>* Find(const StoreKey& key);
  // Puts all blocks of a prompt, as another machine writes them. REQUIRES: it has been named.
  void PutAll(const std::string& model, const StoredPrompt& prompt);
  // Damages, swaps, truncates, forges or drops a value, or writes nonsense.
  void Harm();
  // From now on no value expires that is there.
  void KeepAll() {
    for (auto& [name, value] : values_) value.expires = absl::InfiniteFuture();
  }
  // From now on nothing is answered until then.
  void Stall(absl::Time until) { stalled_until_ = until; }
  absl::Time stalled_until() const { return stalled_until_; }

 private:
  using Name = std::pair<std::array<std::byte, 32>, std::array<std::byte, 32>>;
  struct Value {
    StoreKey key;
    std::vector<std::byte> bytes;
    absl::Time expires;
  };

  Surroundings& surroundings_;
  sim::Random random_;
  std::map<Name, Value> values_;
  absl::Time stalled_until_ = absl::InfinitePast();
};

// Learns of each call, within it, and of each report, before it.
class StoreWatcher {
 public:
  virtual ~StoreWatcher() = default;
  // Each returns what is called around the report.
  using Around = std::function<void(const std::vector<StoreOutcome>&, const Store::Done&)>;
  virtual Around Got(const std::vector<Store::Read>& batch) = 0;
  virtual Around Put(const std::vector<Store::Write>& batch, absl::Duration time_to_live) = 0;
  virtual Around Asked(const std::vector<StoreKey>& batch) = 0;
};

// A machine's way to the values.
class SimStore final : public Store {
 public:
  SimStore(Surroundings* surroundings, Values* values, StoreWatcher* watcher, uint64_t stream);
  ~SimStore() override;

  void Get(std::vector<Read> batch, absl::Duration timeout, Done done) override;
  void Put(std::vector<Write> batch, absl::Duration time_to_live, absl::Duration timeout,
           Done done) override;
  void Exists(std::vector<StoreKey> batch, absl::Duration timeout, Done done) override;
  void Stop() override;
  StoreStats stats() const override { return {}; }
  bool has_calls() const { return !calls_.empty(); }

 private:
  // One batch. Its memory is touched until it is reported, and no longer.
  struct Call {
    uint64_t id = 0;
    absl::Time deadline;
    std::vector<std::optional<StoreOutcome>> outcomes;
    size_t left = 0;
    std::vector<Read> reads;
    std::vector<Write> writes;
    std::vector<std::unique_ptr<StoredValueReader>> readers;
    std::vector<std::vector<std::byte>> values;  // The values as they arrive, or as they are sent.
    StoreWatcher::Around around;
    Done done;
  };
  using Shared = std::shared_ptr<Call>;

  // Null: it is reported already.
  Shared Begin(size_t keys, absl::Duration timeout, StoreWatcher::Around around, Done done);
  // Runs `what` while the call lasts.
  void While(const Shared& call, absl::Duration later, std::function<void()> what);
  // When a key's answer is there, and how it fails, if it does.
  absl::Duration Latency();
  std::optional<StoreOutcome> Failure(bool all_fail);
  void EndKey(const Shared& call, size_t key, StoreOutcome outcome);
  void Report(const Shared& call, StoreOutcome rest);
  void ReadSome(const Shared& call, size_t key, bool is_last);
  void WriteSome(const Shared& call, size_t key, bool is_last);
  void Scribble(const Read& read);

  Surroundings& surroundings_;
  const StoreConfig& config_;
  Values& values_;
  StoreWatcher& watcher_;
  sim::Random random_;
  uint64_t last_call_ = 0;
  std::map<uint64_t, Shared> calls_;  // Not reported.
  bool stopped_ = false;
  // Events that outlive the store do nothing.
  const std::shared_ptr<bool> lives_ = std::make_shared<bool>(true);
};

}  // namespace pagoda::exchange_sim

#endif  // PAGODA_TESTS_SIM_EXCHANGE_STORE_H_
