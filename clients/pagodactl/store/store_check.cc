#include "clients/pagodactl/store/store_check.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "clients/command_line/terminal/format.h"
#include "clients/pagodactl/store/redis_probe.h"
#include "pools/store/redis_socket.h"
#include "pools/store/redis_store.h"
#include "pools/store/store.h"

namespace pagoda {
namespace {

constexpr size_t kSmallValues = 64;  // So that each server of a usual cluster gets some.
constexpr size_t kSmallBytes = 4 << 10;
constexpr size_t kLargeValues = 16;
constexpr size_t kLargeBytes = 1 << 20;
constexpr int kPings = 9;

// RedisSocket and RedisStore need it.
class SigpipeBlocked {
 public:
  SigpipeBlocked() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~SigpipeBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SigpipeBlocked(const SigpipeBlocked&) = delete;
  SigpipeBlocked& operator=(const SigpipeBlocked&) = delete;

 private:
  sigset_t before_;
};

// Values of random bytes under random names.
struct Values {
  Values(size_t count, size_t bytes) : written(count), read(count), keys(count) {
    std::random_device random;
    std::mt19937_64 bits(uint64_t{random()} << 32 | random());
    const auto fill = [&bits](std::byte* to, size_t size) {
      for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
        const uint64_t word = bits();
        std::memcpy(to + at, &word, std::min(sizeof(word), size - at));
      }
    };
    for (size_t i = 0; i < count; ++i) {
      fill(keys[i].layout.data(), keys[i].layout.size());
      fill(keys[i].digest.data(), keys[i].digest.size());
      written[i].resize(bytes);
      fill(written[i].data(), bytes);
      read[i].resize(bytes);
    }
  }
  std::vector<Store::Write> Writes() const {
    std::vector<Store::Write> writes;
    for (size_t i = 0; i < keys.size(); ++i) writes.push_back({keys[i], {written[i]}});
    return writes;
  }
  std::vector<Store::Read> Reads() {
    std::vector<Store::Read> reads;
    for (size_t i = 0; i < keys.size(); ++i) {
      reads.push_back({keys[i], {absl::MakeSpan(read[i])}});
    }
    return reads;
  }
  size_t bytes() const { return keys.size() * written.front().size(); }

  std::vector<std::vector<std::byte>> written;
  std::vector<std::vector<std::byte>> read;
  std::vector<StoreKey> keys;
};

using Outcomes = std::vector<StoreOutcome>;

// Waits for the report of one batch.
template <class Begin>
Outcomes Await(Begin begin) {
  absl::Notification ended;
  Outcomes outcomes;
  begin([&](const Outcomes& reported) {
    outcomes = reported;
    ended.Notify();
  });
  ended.WaitForNotification();
  return outcomes;
}

std::string FaultsText(const StoreStats& stats) {
  std::string text;
  for (size_t i = 1; i < kValueFaults; ++i) {
    if (stats.faults[i] == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", ValueFaultName(static_cast<ValueFault>(i)));
  }
  return text;
}

// "3 of 64 values: refused (OOM command not allowed ...)".
absl::Status StatusOf(const Outcomes& outcomes, StoreOutcome wanted, const StoreStats& stats) {
  std::map<StoreOutcome, size_t> others;
  for (const StoreOutcome outcome : outcomes) {
    if (outcome != wanted) ++others[outcome];
  }
  if (others.empty()) return absl::OkStatus();
  std::string text;
  for (const auto& [outcome, count] : others) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", count, " of ", outcomes.size(), " values: ",
                    outcome == StoreOutcome::kOk ? "still there" : StoreOutcomeName(outcome));
    const bool is_answer = outcome == StoreOutcome::kRefused ||
                           outcome == StoreOutcome::kUnreachable ||
                           outcome == StoreOutcome::kTimedOut;
    if (is_answer && !stats.last_error.empty()) absl::StrAppend(&text, " (", stats.last_error, ")");
    if (outcome == StoreOutcome::kInvalid) absl::StrAppend(&text, " (", FaultsText(stats), ")");
  }
  return absl::FailedPreconditionError(text);
}

// The value of "name:value" in the text of INFO and CLUSTER INFO.
std::string FieldOf(const std::string& text, const std::string& name) {
  for (const absl::string_view line : absl::StrSplit(text, absl::ByAnyChar("\r\n"))) {
    if (absl::StartsWith(line, absl::StrCat(name, ":"))) {
      return std::string(line.substr(name.size() + 1));
    }
  }
  return "";
}

class Check {
 public:
  Check(const StoreCheckOptions& options, const std::function<void(const StoreCheckStep&)>& on_step)
      : options_(options), redis_(options.redis), on_step_(on_step) {
    redis_.key_prefix += "check:";
  }

  StoreCheckResult Run() {
    absl::StatusOr<ServerNetworks> networks = ServerNetworks::Parse(redis_.allowed_networks);
    if (!networks.ok()) return End("networks", networks.status()), std::move(result_);
    networks_ = *std::move(networks);
    if (redis_.tls.is_on) {
      absl::StatusOr<std::unique_ptr<TlsContext>> tls = TlsContext::Load(redis_.tls);
      End("certificates", tls.status());
      if (!tls.ok()) return std::move(result_);
      tls_ = *std::move(tls);
    }
    std::unique_ptr<RedisProbe> first;
    for (const RedisAddress& seed : redis_.seeds) {
      std::unique_ptr<RedisProbe> probe = ConnectTo(seed);
      if (first == nullptr && probe != nullptr) {
        first = std::move(probe);
        first_address_ = seed;
      }
    }
    if (first == nullptr) return std::move(result_);
    FindNodes(*first);
    first.reset();
    TryNodes();
    TryValues();
    return std::move(result_);
  }

 private:
  void End(std::string name, absl::Status status, std::string detail = "") {
    result_.steps.push_back({std::move(name), std::move(status), std::move(detail)});
    on_step_(result_.steps.back());
  }

  // Null if it failed.
  std::unique_ptr<RedisProbe> ConnectTo(const RedisAddress& address) {
    const std::string name = absl::StrCat("connect ", ToString(address));
    absl::StatusOr<std::unique_ptr<RedisProbe>> probe =
        RedisProbe::Connect(address, redis_, tls_.get(), options_.timeout, networks_);
    if (!probe.ok()) return End(name, probe.status()), nullptr;
    const absl::StatusOr<resp::Value> reply = (*probe)->Call({"PING"}, options_.timeout);
    if (!reply.ok()) return End(name, reply.status()), nullptr;
    // RedisStore, too, lets a user in that has no right to PING.
    if (reply->kind == resp::Kind::kError && !absl::StartsWith(reply->text, "NOPERM")) {
      return End(name, absl::PermissionDeniedError(reply->text)), nullptr;
    }
    std::string detail;
    const absl::StatusOr<resp::Value> info = (*probe)->Call({"INFO", "server"}, options_.timeout);
    if (info.ok() && info->kind == resp::Kind::kBulk) {
      const std::string valkey = FieldOf(info->text, "valkey_version");
      const std::string redis = FieldOf(info->text, "redis_version");
      detail = valkey.empty() ? absl::StrCat("Redis ", redis) : absl::StrCat("Valkey ", valkey);
    }
    End(name, absl::OkStatus(), detail);
    return *std::move(probe);
  }

  // Fills the nodes: those of the cluster, or the plain server.
  void FindNodes(RedisProbe& probe) {
    const absl::StatusOr<resp::Value> slots = probe.Call({"CLUSTER", "SLOTS"}, options_.timeout);
    if (!slots.ok()) return End("servers", slots.status());
    if (slots->kind == resp::Kind::kError) {
      const bool is_plain = absl::StrContains(slots->text, "cluster support disabled") ||
                            absl::StrContains(slots->text, "unknown command");
      if (!is_plain) return End("servers", absl::FailedPreconditionError(slots->text));
      if (options_.cluster == ClusterCheck::kMustBeCluster) {
        return End("servers", absl::FailedPreconditionError("the server is not a cluster's"));
      }
      result_.nodes.push_back({.address = first_address_});
      return End("servers", absl::OkStatus(), "one plain server");
    }
    const absl::StatusOr<ClusterMap> map = ParseClusterSlots(*slots, first_address_);
    if (!map.ok()) return End("servers", map.status());
    std::vector<uint32_t> slots_of_shard(map->shards.size(), 0);
    size_t unserved = 0, first_unserved = 0;
    for (size_t slot = kHashSlots; slot-- > 0;) {
      const uint16_t shard = map->shard_of_slot[slot];
      if (shard != ClusterMap::kNoShard) {
        ++slots_of_shard[shard];
      } else {
        ++unserved;
        first_unserved = slot;
      }
    }
    size_t replicas = 0;
    for (size_t i = 0; i < map->shards.size(); ++i) {
      result_.nodes.push_back({.address = map->shards[i].primary, .slots = slots_of_shard[i]});
      for (const RedisAddress& replica : map->shards[i].replicas) {
        result_.nodes.push_back({.address = replica, .is_replica = true});
        ++replicas;
      }
    }
    if (unserved > 0) {
      return End("servers", absl::FailedPreconditionError(absl::StrCat(
                                unserved, " of ", kHashSlots,
                                " slots have no server, the first is ", first_unserved)));
    }
    const absl::StatusOr<resp::Value> info = probe.Call({"CLUSTER", "INFO"}, options_.timeout);
    if (info.ok() && FieldOf(info->text, "cluster_state") == "fail") {
      return End("servers", absl::FailedPreconditionError("the cluster says that it is down"));
    }
    End("servers", absl::OkStatus(),
        absl::StrCat("a cluster of ", FormatCounted(map->shards.size(), "primary server"), " and ",
                     FormatCounted(replicas, "replica")));
  }

  void TryNodes() {
    for (StoreCheckNode& node : result_.nodes) {
      const absl::StatusOr<absl::Duration> round_trip = RoundTripTo(node.address);
      node.status = round_trip.status();
      if (round_trip.ok()) node.round_trip = *round_trip;
      std::string detail = node.status.ok() ? FormatElapsed(node.round_trip) : "";
      if (node.slots > 0) absl::StrAppend(&detail, ", ", FormatCounted(node.slots, "slot"));
      End(absl::StrCat(node.is_replica ? "replica " : "server ", ToString(node.address)),
          node.status, detail);
    }
  }

  absl::StatusOr<absl::Duration> RoundTripTo(const RedisAddress& address) {
    const absl::StatusOr<std::unique_ptr<RedisProbe>> probe =
        RedisProbe::Connect(address, redis_, tls_.get(), options_.timeout, networks_);
    if (!probe.ok()) return probe.status();
    std::array<absl::Duration, kPings> times;
    for (absl::Duration& time : times) {
      const absl::Time begun = absl::Now();
      const absl::StatusOr<resp::Value> reply = (*probe)->Call({"PING"}, options_.timeout);
      if (!reply.ok()) return reply.status();
      time = absl::Now() - begun;
    }
    std::sort(times.begin(), times.end());
    return times[kPings / 2];
  }

  // Writes, reads and compares values, small ones and then large ones.
  void TryValues() {
    absl::StatusOr<std::unique_ptr<RedisStore>> store = RedisStore::Create(redis_);
    if (!store.ok()) return End("write", store.status());
    Values small(kSmallValues, kSmallBytes);
    if (!TryWrite(**store, small, options_.time_to_live, "write").has_value()) return;
    const absl::Time written = absl::Now();  // The last value is not older.
    if (!TryRead(**store, small, "read").has_value()) return;
    Values large(kLargeValues, kLargeBytes);
    // They live long enough to be read on a slow network.
    const std::optional<double> write_rate =
        TryWrite(**store, large, 10 * options_.time_to_live, "write 1 MiB values");
    if (write_rate.has_value()) {
      result_.write_bytes_per_second = *write_rate;
      result_.read_bytes_per_second = TryRead(**store, large, "read 1 MiB values").value_or(0);
    }
    absl::SleepFor(written + options_.time_to_live + absl::Milliseconds(100) - absl::Now());
    const Outcomes outcomes = Await(
        [&](Store::Done done) { (*store)->Exists(small.keys, options_.timeout, std::move(done)); });
    End("expire", StatusOf(outcomes, StoreOutcome::kMissing, (*store)->stats()),
        absl::StrCat("after ", FormatElapsed(options_.time_to_live)));
  }

  // Return the bytes per second; nullopt: it failed.
  std::optional<double> TryWrite(RedisStore& store, const Values& values,
                                 absl::Duration time_to_live, const char* name) {
    const absl::Time begun = absl::Now();
    const Outcomes outcomes = Await([&](Store::Done done) {
      store.Put(values.Writes(), time_to_live, options_.timeout, std::move(done));
    });
    const absl::Duration took = absl::Now() - begun;
    return EndValues(name, StatusOf(outcomes, StoreOutcome::kOk, store.stats()), values, took);
  }
  std::optional<double> TryRead(RedisStore& store, Values& values, const char* name) {
    const absl::Time begun = absl::Now();
    const Outcomes outcomes = Await(
        [&](Store::Done done) { store.Get(values.Reads(), options_.timeout, std::move(done)); });
    const absl::Duration took = absl::Now() - begun;
    absl::Status status = StatusOf(outcomes, StoreOutcome::kOk, store.stats());
    if (status.ok() && values.read != values.written) {
      status = absl::DataLossError("the bytes read are not the bytes written");
    }
    return EndValues(name, std::move(status), values, took);
  }
  std::optional<double> EndValues(const char* name, absl::Status status, const Values& values,
                                  absl::Duration took) {
    const double rate = static_cast<double>(values.bytes()) / absl::ToDoubleSeconds(took);
    const bool is_good = status.ok();
    End(name, std::move(status),
        absl::StrCat(FormatCounted(values.keys.size(), "value"), " of ",
                     FormatBytes(values.written.front().size()), ", ",
                     FormatBytes(static_cast<uint64_t>(rate)), "/s"));
    return is_good ? std::optional(rate) : std::nullopt;
  }

  const StoreCheckOptions& options_;
  RedisOptions redis_;
  const std::function<void(const StoreCheckStep&)>& on_step_;
  std::unique_ptr<TlsContext> tls_;  // Null: without TLS.
  RedisAddress first_address_;       // The server that was asked for the others.
  ServerNetworks networks_;
  StoreCheckResult result_;
};

}  // namespace

size_t StoreCheckResult::failed_steps() const {
  return static_cast<size_t>(std::count_if(
      steps.begin(), steps.end(), [](const StoreCheckStep& step) { return !step.status.ok(); }));
}

StoreCheckResult CheckStore(const StoreCheckOptions& options,
                            const std::function<void(const StoreCheckStep&)>& on_step) {
  const SigpipeBlocked blocked;
  return Check(options, on_step).Run();
}

}  // namespace pagoda
