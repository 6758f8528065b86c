// The speed of the service: a daemon and its clients in separate processes, over loopback TCP and
// over the Unix socket. The yardstick is a service that does nothing, in the same daemon.
// deploy/bench.sh service runs it.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "tests/bench/figure.h"
#include "tests/bench/service/bench_server.h"
#include "tests/bench/service/busy_tenants.h"
#include "tests/bench/service/idle_sessions.h"
#include "tests/bench/service/process_use.h"
#include "tests/bench/service/rounds.h"
#include "tests/bench/service/service_loads.h"

namespace pagoda::bench {
namespace {

struct Options {
  std::string figure;  // Measures the figures whose ids begin with this.
  int rounds = 21;
  int slice_ms = 100;
  int decode_steps = 400;  // For one slice of the decode figures.
  int idle_sessions = 1000;
};

// Messages of a SessionLoad. With 128 new blocks each, they take more blocks than there are.
constexpr int kMessagesToUseAll = 2'500;

constexpr char kNoop[] = "no-op handler, same messages";

// The seconds to create memory of this size and to map it.
double MapSeconds(uint64_t bytes) {
  int fd = -1;
  void* address = MAP_FAILED;
  const double seconds = Seconds([&] {
    fd = memfd_create("service_bench", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
      address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    }
  });
  PAGODA_CHECK(address != MAP_FAILED, "the memory is mapped");
  munmap(address, bytes);
  close(fd);
  return seconds;
}

// Figures of one server, each with its own clients.
class ServiceBench {
 public:
  explicit ServiceBench(const Options& options)
      : options_(options), slice_seconds_(options.slice_ms / 1e3) {}

  void Run() {
    if (Wanted("session_256_tcp")) SessionFigure("session_256_tcp", server().tcp_endpoint());
    if (Wanted("session_256_unix")) SessionFigure("session_256_unix", server().unix_endpoint());
    if (Wanted("session_256_retry")) RetryFigure();
    if (Wanted("unary_p50")) UnaryMedianFigure();
    if (Wanted("unary_64")) UnaryRateFigure();
    if (Wanted("decode_step_256_p50") || Wanted("decode_step_256_p99")) DecodeFigures();
    if (Wanted("decode_step_256_packed")) PackedDecodeFigures();
    if (Wanted("ring_round_trip_p50")) RingRoundTripFigure();
    // Packed: so engines send their steps.
    if (Wanted("decode_step_256_ring")) {
      RingDecodeFigures("decode_step_256_ring", StepForm::kPacked);
    }
    if (Wanted("decode_step_256_each_ring")) {
      RingDecodeFigures("decode_step_256_each_ring", StepForm::kEach);
    }
    if (Wanted("decode_step_256_paced_ring")) PacedDecodeFigures();
    if (Wanted("ring_idle_cpu")) RingIdleFigure();
    if (Wanted("quiet_step")) QuietStepFigures("quiet_step", Target::kCache);
    if (Wanted("quiet_ring_step")) QuietStepFigures("quiet_ring_step", Target::kRings);
    if (Wanted("two_caches")) TwoCachesFigure();
    if (Wanted("open_cache_64gib")) OpenCacheFigure();
    const std::string bytes = absl::StrCat("idle_sessions_", options_.idle_sessions, "_bytes");
    if (Wanted(bytes)) IdleBytesFigure(bytes);
    if (Wanted("beside_idle")) BesideIdleFigures();
  }

 private:
  bool Wanted(const std::string& id) const {
    return id.starts_with(options_.figure) || options_.figure.starts_with(id);
  }
  BenchServer& server() {
    if (!server_.has_value()) server_.emplace();
    return *server_;
  }
  Compared Rounds(const std::string& id, const Slice& value, const Slice& yardstick,
                  std::vector<pid_t> others = {}) {
    others.push_back(getpid());
    others.push_back(server().pid());
    return RunRounds(id, options_.rounds, others, value, yardstick);
  }
  Slice RateOf(SessionLoad& load) const {
    return [&load, seconds = slice_seconds_] { return std::vector{load.Rate(seconds)}; };
  }
  Slice MedianOf(Connection& connection) const {
    return [&connection, seconds = slice_seconds_] {
      return std::vector{UnaryMedian(connection, seconds)};
    };
  }
  Slice StepsOf(DecodeLoad& load) const {
    return [&load, steps = options_.decode_steps] { return load.Percentiles(steps); };
  }

  void SessionFigure(const std::string& id, const std::string& endpoint) {
    SessionLoad cache(endpoint, Target::kCache);
    SessionLoad noop(endpoint, Target::kNoop);
    Show(id, "operations/s", kNoop, Rounds(id, RateOf(cache), RateOf(noop)));
  }
  void RetryFigure() {
    SessionLoad with(server().unix_endpoint(), Target::kCache, Retry::kOn);
    SessionLoad without(server().unix_endpoint(), Target::kCache);
    Show("session_256_retry", "operations/s", "session_256_unix, without retry ids",
         Rounds("session_256_retry", RateOf(with), RateOf(without)));
  }
  void UnaryMedianFigure() {
    Connection cache(server().unix_endpoint(), Target::kCache);
    Connection noop(server().unix_endpoint(), Target::kNoop);
    Show("unary_p50", "us", kNoop, Rounds("unary_p50", MedianOf(cache), MedianOf(noop)));
  }
  void UnaryRateFigure() {
    constexpr int kConnections = 4;
    constexpr int kOutstandingEach = 16;
    std::vector<std::unique_ptr<Connection>> cache, noop;
    for (int i = 0; i < kConnections; ++i) {
      cache.push_back(std::make_unique<Connection>(server().unix_endpoint(), Target::kCache));
      noop.push_back(std::make_unique<Connection>(server().unix_endpoint(), Target::kNoop));
    }
    const auto rate = [this](const auto& connections) {
      return [&connections, seconds = slice_seconds_] {
        return std::vector{UnaryRate(connections, kOutstandingEach, seconds)};
      };
    };
    Show("unary_64", "calls/s", kNoop, Rounds("unary_64", rate(cache), rate(noop)));
  }
  void DecodeFigures() {
    DecodeLoad cache(server().unix_endpoint(), Target::kCache);
    DecodeLoad noop(server().unix_endpoint(), Target::kNoop);
    const Compared us = Rounds("decode_step_256", StepsOf(cache), StepsOf(noop));
    Show("decode_step_256_p50", "us", kNoop, us, 0);
    Show("decode_step_256_p99", "us", kNoop, us, 1);
  }

  void PackedDecodeFigures() {
    constexpr char kEmptyCall[] = "a unary call of an empty batch";
    DecodeLoad packed(server().unix_endpoint(), Target::kCache, StepForm::kPacked);
    Connection connection(server().unix_endpoint(), Target::kCache);
    const Slice empty = [&connection, calls = options_.decode_steps] {
      return EmptyCallPercentiles(connection, calls);
    };
    const Compared us = Rounds("decode_step_256_packed", StepsOf(packed), empty);
    Show("decode_step_256_packed_p50", "us", kEmptyCall, us, 0);
    Show("decode_step_256_packed_p99", "us", kEmptyCall, us, 1);
  }

  void RingRoundTripFigure() {
    SessionStream rings(server().unix_endpoint(), Target::kRings);
    Connection connection(server().unix_endpoint(), Target::kCache);
    const Slice through_rings = [&] {
      return std::vector{EmptyBatchMedian(rings, 10 * options_.decode_steps)};
    };
    const Slice unary = [&] { return EmptyCallPercentiles(connection, options_.decode_steps); };
    Show("ring_round_trip_p50", "us", "a unary call of an empty batch",
         Rounds("ring_round_trip_p50", through_rings, unary));
  }
  void RingDecodeFigures(const std::string& id, StepForm form) {
    constexpr char kOverGrpc[] = "the same on a Session stream";
    DecodeLoad rings(server().unix_endpoint(), Target::kRings, form);
    DecodeLoad stream(server().unix_endpoint(), Target::kCache, form);
    const Compared us = Rounds(id, StepsOf(rings), StepsOf(stream));
    Show(absl::StrCat(id, "_p50"), "us", kOverGrpc, us, 0);
    Show(absl::StrCat(id, "_p99"), "us", kOverGrpc, us, 1);
  }
  // An engine sends its steps like this, one each 10 ms: both sides sleep between two steps.
  void PacedDecodeFigures() {
    constexpr absl::Duration kPause = absl::Milliseconds(10);
    DecodeLoad rings(server().unix_endpoint(), Target::kRings, StepForm::kPacked);
    DecodeLoad stream(server().unix_endpoint(), Target::kCache, StepForm::kPacked);
    const auto paced = [this, kPause](DecodeLoad& load) {
      return [&load, steps = std::max(1, options_.decode_steps / 4), kPause] {
        return load.Percentiles(steps, kPause);
      };
    };
    const Compared us = RunRounds("decode_step_256_paced_ring", std::min(options_.rounds, 9),
                                  {getpid(), server().pid()}, paced(rings), paced(stream));
    Show("decode_step_256_paced_ring_p50", "us", "the same on a Session stream", us, 0);
    Show("decode_step_256_paced_ring_p99", "us", "the same on a Session stream", us, 1);
  }
  // Milliseconds of the processor that a daemon takes in ten slices, while its client does nothing.
  double IdleMilliseconds(Target target) const {
    const BenchServer fresh;
    SessionStream client(fresh.unix_endpoint(), target);
    EmptyBatchMedian(client, options_.decode_steps);
    absl::SleepFor(absl::Seconds(slice_seconds_));
    const double before = ProcessorSeconds(fresh.pid());
    absl::SleepFor(absl::Seconds(10 * slice_seconds_));
    return 1e3 * (ProcessorSeconds(fresh.pid()) - before);
  }
  void RingIdleFigure() const {
    const Slice with = [this] { return std::vector{IdleMilliseconds(Target::kRings)}; };
    const Slice without = [this] { return std::vector{IdleMilliseconds(Target::kCache)}; };
    Show("ring_idle_cpu", "ms", "with a client on a Session stream",
         RunRounds("ring_idle_cpu", std::min(options_.rounds, 5), {getpid()}, with, without));
  }

  // A quiet tenant's decode steps, one each 2 ms, next to two tenants that send batches of 256
  // operations without pause. Beside them stand the same steps alone, and while the batches go to
  // another server on this machine.
  void QuietStepFigures(const std::string& id, Target target) const {
    constexpr absl::Duration kPause = absl::Milliseconds(2);
    const BenchServer server(ServerRole::kTenants), other(ServerRole::kTenants);
    DecodeLoad quiet(server.unix_endpoint(), target, StepForm::kPacked, {.token = kQuietToken});
    BusyTenants here(server.unix_endpoint(), target), elsewhere(other.unix_endpoint(), target);
    const auto steps = [&] { return quiet.Percentiles(options_.decode_steps, kPause); };
    const auto beside = [&](BusyTenants& busy) {
      busy.GoOn();
      std::vector<double> us = steps();
      busy.Stop();
      return us;
    };
    const Slice yardsticks = [&] {
      std::vector<double> us = steps();
      for (const double each : beside(elsewhere)) us.push_back(each);
      return us;
    };
    const Compared us = RunRounds(
        id, options_.rounds, {getpid(), server.pid(), other.pid(), here.pid(), elsewhere.pid()},
        [&] { return beside(here); }, yardsticks);
    const size_t numbers = us.value.size();
    for (size_t i = 0; i < numbers; ++i) {
      const std::string name = absl::StrCat(id, i == 0 ? "_p50" : "_p99");
      Show(name + "_beside_256", "us", "the quiet tenant alone", us, i, i);
      Show(name + "_sharing_256", "us", "the batches go to another server", us, i, numbers + i);
    }
  }

  // Two clients at once, each on its own cache, and one of them alone: the operations a second of
  // all clients. Uses a separate server, because sessions have to name their cache there.
  void TwoCachesFigure() const {
    constexpr uint64_t kBytes = uint64_t{64} << 20;
    const BenchServer server;
    Connection opener(server.unix_endpoint(), Target::kCache);
    std::vector<std::unique_ptr<SessionLoad>> loads;
    for (const char* name : {"first", "second"}) {
      opener.OpenCache(name, kBytes);
      loads.push_back(std::make_unique<SessionLoad>(server.unix_endpoint(), Target::kCache,
                                                    Retry::kOff, Caller{.cache = name}));
    }
    const Slice both = [&] {
      std::vector<double> rates(loads.size());
      std::vector<std::thread> clients;
      for (size_t i = 0; i < loads.size(); ++i) {
        clients.emplace_back([&, i] { rates[i] = loads[i]->Rate(slice_seconds_); });
      }
      for (std::thread& client : clients) client.join();
      return std::vector{rates[0] + rates[1]};
    };
    const Slice one = [&] { return std::vector{loads[0]->Rate(slice_seconds_)}; };
    Show("two_caches", "operations/s", "one of the two caches alone",
         RunRounds("two_caches", options_.rounds, {getpid(), server.pid()}, both, one));
  }

  // The milliseconds to open a cache of 64 GiB whose memory is taken when it is touched.
  void OpenCacheFigure() const {
    constexpr uint64_t kBytes = uint64_t{64} << 30;
    const BenchServer server(ServerRole::kSparse);
    Connection connection(server.unix_endpoint(), Target::kCache);
    int opened = 0;
    const Slice open = [&] {
      const std::string name = absl::StrCat("pages-", ++opened);
      const double seconds = Seconds([&] { connection.OpenPages(name, kBytes); });
      connection.DropCache(name);
      return std::vector{seconds * 1e3};
    };
    const Slice map = [] { return std::vector{MapSeconds(kBytes) * 1e3}; };
    Show("open_cache_64gib", "ms", "memory of that size without a name, made and mapped once",
         RunRounds("open_cache_64gib", options_.rounds, {getpid(), server.pid()}, open, map));
  }

  // The memory that idle sessions add to a daemon that has served before: its event log is full,
  // and it has used each of its blocks.
  double IdleBytes(Target target) const {
    BenchServer fresh;
    SessionLoad before_them(fresh.unix_endpoint(), target);
    for (int i = 0; i < kMessagesToUseAll; ++i) before_them.Call();
    const double before = SettledResidentBytes(fresh.pid());
    const IdleSessions idle(fresh.unix_endpoint(), target, options_.idle_sessions);
    return SettledResidentBytes(fresh.pid()) - before;
  }
  void IdleBytesFigure(const std::string& id) const {
    Print({.id = id,
           .value = IdleBytes(Target::kCache),
           .unit = "bytes",
           .yardstick = "as many idle streams of the no-op handler",
           .yardstick_value = IdleBytes(Target::kNoop)});
  }
  // The same figures for a daemon with idle sessions and for one without.
  void BesideIdleFigures() {
    constexpr char kWithout[] = "the same without idle sessions";
    BenchServer burdened;
    const IdleSessions idle(burdened.unix_endpoint(), Target::kCache, options_.idle_sessions);
    const auto show = [&](const std::string& id, const std::string& unit, const Slice& value,
                          const Slice& yardstick) {
      const std::string beside = "beside_idle_" + id;
      Show(beside, unit, kWithout, Rounds(beside, value, yardstick, {burdened.pid(), idle.pid()}));
    };
    {
      SessionLoad with(burdened.unix_endpoint(), Target::kCache);
      SessionLoad without(server().unix_endpoint(), Target::kCache);
      show("session_256_unix", "operations/s", RateOf(with), RateOf(without));
    }
    {
      Connection with(burdened.unix_endpoint(), Target::kCache);
      Connection without(server().unix_endpoint(), Target::kCache);
      show("unary_p50", "us", MedianOf(with), MedianOf(without));
    }
    DecodeLoad with(burdened.unix_endpoint(), Target::kCache);
    DecodeLoad without(server().unix_endpoint(), Target::kCache);
    show("decode_step_256_p50", "us", StepsOf(with), StepsOf(without));
  }

  static void Show(const std::string& id, const std::string& unit, const std::string& yardstick,
                   const Compared& compared, size_t number = 0) {
    Show(id, unit, yardstick, compared, number, number);
  }
  static void Show(const std::string& id, const std::string& unit, const std::string& yardstick,
                   const Compared& compared, size_t number, size_t yardstick_number) {
    Print({.id = id,
           .value = compared.value[number],
           .unit = unit,
           .yardstick = yardstick,
           .yardstick_value = compared.yardstick[yardstick_number]});
  }

  const Options options_;
  const double slice_seconds_;
  std::optional<BenchServer> server_;
};

// A thousand connections need more files than a process may open by default.
void AllowManyFiles() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"service_bench: figures of the service, each beside a yardstick"};
  app.add_option("FIGURE", options.figure, "Only figures whose ids begin so");
  app.add_option("--rounds", options.rounds, "Rounds of each figure")->check(CLI::PositiveNumber);
  app.add_option("--slice-ms", options.slice_ms, "How long a round measures each of the two")
      ->check(CLI::PositiveNumber);
  app.add_option("--decode-steps", options.decode_steps, "The same of the decode figures, in steps")
      ->check(CLI::PositiveNumber);
  app.add_option("--idle-sessions", options.idle_sessions, "Idle sessions")
      ->check(CLI::PositiveNumber);
  // For the program's own children only.
  constexpr char kNotShown[] = "";
  bool noop = false;
  int serve = -1, busy = -1, hold = 0;
  std::string endpoint;
  app.add_option("--serve", serve)->group(kNotShown);
  app.add_option("--busy", busy)->group(kNotShown);
  app.add_option("--hold", hold)->group(kNotShown);
  app.add_option("--endpoint", endpoint)->group(kNotShown);
  app.add_flag("--noop,!--cache", noop)->group(kNotShown);
  CLI11_PARSE(app, argc, argv);

  AllowManyFiles();
  if (serve >= 0) return RunBenchServer(static_cast<ServerRole>(serve));
  if (busy >= 0) return RunBusyTenants(endpoint, static_cast<Target>(busy));
  if (hold > 0) return HoldIdleSessions(endpoint, noop ? Target::kNoop : Target::kCache, hold);
  ServiceBench(options).Run();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace pagoda::bench

int main(int argc, char** argv) { return pagoda::bench::Main(argc, argv); }
