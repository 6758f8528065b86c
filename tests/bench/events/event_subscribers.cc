#include "tests/bench/events/event_subscribers.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/arena.h"
#include "grpcpp/grpcpp.h"
#include "pagoda/v1/events.grpc.pb.h"
#include "tests/bench/figure.h"
#include "tests/bench/noop.grpc.pb.h"

namespace pagoda::bench {
namespace {

namespace pv1 = ::pagoda::v1;

// Slow ones read 20 events a second.
constexpr double kSlowEventsPerSecond = 20;

// The values of pv1::EventType, starting at 1.
constexpr int kEventTypes = 4;

std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // A separate connection.
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
}

[[noreturn]] void Fail(const std::string& what) {
  std::cerr << "events_bench: " << what << "\n";
  std::exit(EXIT_FAILURE);
}

// Reads one message. The next one reuses its memory.
class Reader {
 public:
  Reader(const std::string& endpoint, const pv1::WatchRequest& request, Stream stream)
      : channel_(Connect(endpoint)) {
    reader_ = stream == Stream::kEvents
                  ? pv1::EventService::NewStub(channel_)->Watch(&context_, request)
                  : v1::NoopService::NewStub(channel_)->Watch(&context_, request);
  }
  ~Reader() {
    context_.TryCancel();
    reader_->Finish();
  }

  // Null at the end.
  const pv1::WatchResponse* Next() {
    memory_.Reset();
    auto* message = google::protobuf::Arena::CreateMessage<pv1::WatchResponse>(&memory_);
    return reader_->Read(message) ? message : nullptr;
  }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::ClientReader<pv1::WatchResponse>> reader_;
  google::protobuf::Arena memory_;
};

// From the first event of the message until now.
double MicrosecondsOnTheWay(const pv1::WatchResponse& message) {
  const auto& time = message.events(0).time();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const double now_us = std::chrono::duration<double, std::micro>(now).count();
  return now_us - 1e6 * static_cast<double>(time.seconds()) - 1e-3 * time.nanos();
}

}  // namespace

double WatchRate(const std::string& endpoint, uint32_t events, Stream stream) {
  pv1::WatchRequest request;
  request.set_from_revision(1);
  Reader reader(endpoint, request, stream);
  if (reader.Next() == nullptr) Fail("a stream does not begin");
  uint32_t seen = 0;
  const double seconds = Seconds([&] {
    while (seen < events) {
      const pv1::WatchResponse* message = reader.Next();
      if (message == nullptr) Fail("a stream ends");
      seen += static_cast<uint32_t>(message->events_size());
    }
  });
  return seen / seconds;
}

double SnapshotSeconds(const std::string& endpoint, uint32_t blocks) {
  pv1::WatchRequest request;
  request.set_snapshot(true);
  uint32_t seen = 0;
  const double seconds = Seconds([&] {
    Reader reader(endpoint, request, Stream::kEvents);
    for (bool end = false; !end;) {
      const pv1::WatchResponse* message = reader.Next();
      if (message == nullptr) Fail("a snapshot ends early");
      for (const pv1::Event& event : message->events()) {
        seen += static_cast<uint32_t>(event.stored().blocks_size());
      }
      end = message->snapshot_end();
    }
  });
  if (seen < blocks) Fail(absl::StrCat("a snapshot of ", seen, " blocks"));
  return seconds;
}

Subscribers::Subscribers(const std::string& endpoint, const SubscriberCounts& counts)
    : process_({"--subscribe", endpoint, "--fast", absl::StrCat(counts.fast), "--slow",
                absl::StrCat(counts.slow), "--stalled", absl::StrCat(counts.stalled), "--alone",
                absl::StrCat(counts.alone)}) {
  process_.ReadLine();
}

Latency Subscribers::End() {
  process_.TellToEnd();
  Latency latency;
  std::istringstream(process_.ReadLine()) >> latency.p50 >> latency.p99;
  return latency;
}

int RunSubscribers(const std::string& endpoint, const SubscriberCounts& counts) {
  std::atomic<bool> stop = false;
  std::vector<std::unique_ptr<Reader>> readers;
  std::vector<std::thread> threads;
  std::vector<std::vector<double>> on_the_way(static_cast<size_t>(counts.fast));
  for (int i = 0; i < counts.fast + counts.slow + counts.stalled + counts.alone; ++i) {
    pv1::WatchRequest from_now;
    const int filter = i - (counts.fast + counts.slow + counts.stalled) + 1;
    for (int type = 0; filter > 0 && type < kEventTypes; ++type) {
      if ((filter >> type & 1) != 0) from_now.add_types(static_cast<pv1::EventType>(type + 1));
    }
    readers.push_back(std::make_unique<Reader>(endpoint, from_now, Stream::kEvents));
    if (readers.back()->Next() == nullptr) Fail("a subscriber is refused");
    if (i >= counts.fast + counts.slow) continue;
    const bool slow = i >= counts.fast;
    std::vector<double>* const us = slow ? nullptr : &on_the_way[static_cast<size_t>(i)];
    threads.emplace_back([&stop, slow, us, reader = readers.back().get()] {
      while (const pv1::WatchResponse* message = reader->Next()) {
        if (!slow && message->events_size() > 0) us->push_back(MicrosecondsOnTheWay(*message));
        if (!slow) continue;
        const auto until =
            std::chrono::steady_clock::now() +
            std::chrono::duration<double>(message->events_size() / kSlowEventsPerSecond);
        while (!stop && std::chrono::steady_clock::now() < until) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
      }
    });
  }
  std::cout << "ready\n" << std::flush;
  WaitUntilStdinCloses();
  stop = true;
  for (const auto& reader : readers) reader->Cancel();
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all = {0};
  for (const auto& us : on_the_way) all.insert(all.end(), us.begin(), us.end());
  std::cout << Percentile(all, 0.5) << " " << Percentile(all, 0.99) << "\n" << std::flush;
  return EXIT_SUCCESS;
}

}  // namespace pagoda::bench
