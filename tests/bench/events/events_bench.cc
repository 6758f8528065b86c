// The speed of the events: the log in this process; and a daemon and its subscribers in separate
// processes. deploy/bench.sh events runs it.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "tests/bench/events/event_log_bench.h"
#include "tests/bench/events/event_server.h"
#include "tests/bench/events/event_subscribers.h"
#include "tests/bench/figure.h"
#include "tests/bench/service/child_process.h"
#include "tests/bench/service/process_use.h"

namespace pagoda::bench {
namespace {

[[noreturn]] void Fail(const std::string& what) {
  std::cerr << "events_bench: " << what << "\n";
  std::exit(EXIT_FAILURE);
}

struct Options {
  std::string figure;  // Measures the figures whose ids begin with this.
  int rounds = 9;
  uint32_t log_events = 1'000'000;
  uint32_t snapshot_blocks = 1'000'000;
  // Windows of a second for the allocation figure, each without and with subscribers.
  int windows = 8;
};

class EventsBench {
 public:
  explicit EventsBench(const Options& options) : options_(options) {}

  void Run() {
    if (Wanted("log_append")) PrintLogAppend();
    if (Wanted("watch_batched")) Watch();
    if (Wanted("alloc_p99_with_64_subscribers")) Allocations(64);
    // These run only if they were asked for.
    for (const int subscribers : {1, 8, 256, 1000}) {
      if (Wanted(AllocationsId(subscribers)) && !options_.figure.empty()) Allocations(subscribers);
    }
    if (Wanted("stalled_subscriber_bytes")) Stalled();
    if (Wanted("snapshot_1m")) Snapshot();
  }

 private:
  bool Wanted(const std::string& id) const {
    return id.starts_with(options_.figure) || options_.figure.starts_with(id);
  }

  void Watch() const {
    EventServer server(EventServer::Fill::kLog, options_.log_events);
    std::vector<double> events, prebuilt;
    for (int round = 0; round < options_.rounds; ++round) {
      events.push_back(WatchRate(server.endpoint(), options_.log_events, Stream::kEvents));
      prebuilt.push_back(WatchRate(server.endpoint(), options_.log_events, Stream::kPrebuilt));
    }
    Print({.id = "watch_batched",
           .value = Percentile(events, 0.5),
           .unit = "events/s",
           .yardstick = "messages of the same size, built before",
           .yardstick_value = Percentile(prebuilt, 0.5)});
  }

  // The p99s of seconds of allocations.
  class AllocationSeconds {
   public:
    // `foreign`: the processor seconds that others took meanwhile.
    void Add(const std::vector<double>& us, double foreign) {
      seconds_.push_back({.foreign = foreign, .p99 = Percentile(us, 0.99)});
    }
    // The median of the seconds that others disturbed little, or of the less disturbed half.
    double Median() {
      std::sort(seconds_.begin(), seconds_.end(),
                [](const Second& a, const Second& b) { return a.foreign < b.foreign; });
      std::vector<double> p99s;
      for (const Second& second : seconds_) {
        if (second.foreign > kMostForeign && 2 * p99s.size() >= seconds_.size()) break;
        p99s.push_back(second.p99);
      }
      return Percentile(p99s, 0.5);
    }

   private:
    static constexpr double kMostForeign = 0.2;
    struct Second {
      double foreign;
      double p99;
    };
    std::vector<Second> seconds_;
  };

  static std::string AllocationsId(int subscribers) {
    return absl::StrCat("alloc_p99_with_", subscribers, "_subscribers");
  }

  // The server makes the allocations, and prints their times once a second. Seconds with and
  // without subscribers alternate. The median second of each kind counts.
  void Allocations(int subscribers) const {
    const SubscriberCounts counts{.fast = subscribers - subscribers / 8 * 2,
                                  .slow = subscribers / 8,
                                  .stalled = subscribers / 8};
    EventServer server(EventServer::Fill::kAllocations, 1000);
    AllocationSeconds alone, beside;
    std::vector<double> p50s, p99s;
    for (int window = 0; window < options_.windows; ++window) {
      server.ReadWindow();  // After this, the last window's subscribers are gone.
      ForeignUse without({getpid(), server.pid()});
      const std::vector<double> first = server.ReadWindow();
      alone.Add(first, without.Take());
      Subscribers all(server.endpoint(), counts);
      server.ReadWindow();
      ForeignUse with({getpid(), server.pid(), all.pid()});
      const std::vector<double> second = server.ReadWindow();
      beside.Add(second, with.Take());
      const Latency latency = all.End();
      p50s.push_back(latency.p50);
      p99s.push_back(latency.p99);
    }
    Print({.id = AllocationsId(subscribers),
           .value = beside.Median(),
           .unit = "us",
           .yardstick = "no subscribers",
           .yardstick_value = alone.Median()});
    Print({.id = absl::StrCat("event_latency_p99_", subscribers),
           .value = Percentile(p99s, 0.5) / 1e3,
           .unit = "ms",
           .yardstick = "its p50",
           .yardstick_value = Percentile(p50s, 0.5) / 1e3});
  }

  // The growth of a server's memory for each subscriber. The log is full and pushes events out. It
  // is measured before the subscribers connect, and after more events than the log holds.
  static double BytesOf(const SubscriberCounts& counts, int subscribers,
                        EventServer::Fill fill = EventServer::Fill::kAllocations) {
    EventServer server(fill, fill == EventServer::Fill::kPrompts ? 200 : 20'000);
    for (int i = 0; i < 4; ++i) server.ReadWindow();
    const double before = ResidentBytes(server.pid());
    const Subscribers all(server.endpoint(), counts);
    for (int i = 0; i < 8; ++i) server.ReadWindow();
    return (ResidentBytes(server.pid()) - before) / subscribers;
  }
  void Stalled() const {
    constexpr int kSubscribers = 64;
    Print({.id = "stalled_subscriber_bytes",
           .value = BytesOf({.stalled = kSubscribers}, kSubscribers),
           .unit = "bytes",
           .yardstick = "a subscriber that reads",
           .yardstick_value = BytesOf({.fast = kSubscribers}, kSubscribers)});
    // They share their messages with no other subscriber, and the messages are full.
    constexpr int kAlone = 15;
    Print({.id = "stalled_subscriber_alone_bytes",
           .value = BytesOf({.alone = kAlone}, kAlone, EventServer::Fill::kPrompts),
           .unit = "bytes",
           .yardstick = "the goal",
           .yardstick_value = 2e6});
  }

  void Snapshot() const {
    EventServer server(EventServer::Fill::kCache, options_.snapshot_blocks);
    const double longest_ms = server.longest_piece_ms();
    std::vector<double> seconds, prebuilt;
    for (int round = 0; round < options_.rounds; ++round) {
      seconds.push_back(SnapshotSeconds(server.endpoint(), options_.snapshot_blocks));
      prebuilt.push_back(options_.snapshot_blocks /
                         WatchRate(server.endpoint(), options_.snapshot_blocks, Stream::kPrebuilt));
    }
    Print({.id = "snapshot_1m",
           .value = Percentile(seconds, 0.5),
           .unit = "s",
           .yardstick = "as many events of other kinds, built before",
           .yardstick_value = Percentile(prebuilt, 0.5)});
    Print({.id = "snapshot_1m_longest_pause",
           .value = longest_ms,
           .unit = "ms",
           .yardstick = "the goal",
           .yardstick_value = 5});
    AllocationsBesideSnapshots(server);
  }

  // One reader takes a snapshot every other second.
  void AllocationsBesideSnapshots(EventServer& server) const {
    // The windows printed so far ran at the same time as snapshots of the previous figure.
    std::atomic<int> snapshots = 0;
    std::atomic<bool> reading = false, stop = false;
    std::thread reader([&] {
      while (!stop) {
        if (reading) {
          SnapshotSeconds(server.endpoint(), options_.snapshot_blocks);
          ++snapshots;
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      }
    });
    std::vector<double> alone, beside;
    for (int window = 0; window < options_.windows; ++window) {
      reading = false;
      server.ReadWindow();
      Append(server.ReadWindow(), alone);
      reading = true;
      server.ReadWindow();
      Append(server.ReadWindow(), beside);
    }
    stop = true;
    reader.join();
    if (snapshots == 0) Fail("no snapshot was read beside the allocations");
    for (const double share : {0.99, 1.0}) {
      Print({.id = absl::StrCat("snapshot_1m_alloc_", share < 1 ? "p99" : "longest"),
             .value = Percentile(beside, share),
             .unit = "us",
             .yardstick = "no snapshot",
             .yardstick_value = Percentile(alone, share)});
    }
  }

  static void Append(const std::vector<double>& window, std::vector<double>& to) {
    to.insert(to.end(), window.begin(), window.end());
  }

  const Options options_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"events_bench: figures of the events, each beside a yardstick"};
  app.add_option("FIGURE", options.figure, "Only figures whose ids begin so");
  app.add_option("--rounds", options.rounds, "Rounds of each figure")->check(CLI::PositiveNumber);
  app.add_option("--log-events", options.log_events, "Events in the log of watch_batched")
      ->check(CLI::PositiveNumber);
  app.add_option("--snapshot-blocks", options.snapshot_blocks, "Cached blocks of snapshot_1m")
      ->check(CLI::PositiveNumber);
  app.add_option("--windows", options.windows, "Seconds that allocations are measured for, twice")
      ->check(CLI::PositiveNumber);
  // For the program's own children only.
  constexpr char kNotShown[] = "";
  std::string serve, endpoint;
  uint32_t number = 0;
  SubscriberCounts counts;
  app.add_option("--serve", serve)->group(kNotShown);
  app.add_option("--number", number)->group(kNotShown);
  app.add_option("--subscribe", endpoint)->group(kNotShown);
  app.add_option("--fast", counts.fast)->group(kNotShown);
  app.add_option("--slow", counts.slow)->group(kNotShown);
  app.add_option("--stalled", counts.stalled)->group(kNotShown);
  app.add_option("--alone", counts.alone)->group(kNotShown);
  CLI11_PARSE(app, argc, argv);

  if (!serve.empty()) return RunEventServer(serve, number);
  if (!endpoint.empty()) return RunSubscribers(endpoint, counts);
  EventsBench(options).Run();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace pagoda::bench

int main(int argc, char** argv) { return pagoda::bench::Main(argc, argv); }
