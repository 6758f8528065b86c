#include "engine/serve/run/run_requests.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/error.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/interrupt.h"
#include "engine/serve/prompt/generated.h"
#include "engine/serve/run/chosen_engine.h"
#include "engine/serve/run/line_reader.h"
#include "engine/serve/run/request_line.h"
#include "engine/serve/run/workers.h"

namespace pagoda {
namespace {

// Whether the program cannot go on after this error of a request.
bool EndsProgram(const absl::Status& status) {
  return absl::IsCancelled(status) ||
         (absl::IsUnavailable(status) && ReasonOf(status) == Reason::kNone);
}

// Answers requests, several at a time. Each answer is printed when its request is done.
class RequestServer {
 public:
  // `on_end` is called, on any thread, when end() is no longer OK.
  RequestServer(const ProgramOptions& options, ChosenEngine& engine, std::function<void()> on_end)
      : max_new_tokens_(options.max_new_tokens),
        engine_(engine),
        on_end_(std::move(on_end)),
        workers_(options.concurrency) {}

  // OK, or why it cannot take requests.
  const absl::Status& started() const { return workers_.started(); }

  // Starts a request. Waits while `concurrency` requests run.
  void Take(const std::string& line) {
    workers_.Push([this, request = ParseRequestLine(line, max_new_tokens_)] { Answer(request); });
  }

  // Ends all running and later requests with CANCELLED.
  void Interrupt() {
    interrupted_ = true;
    engine_.Interrupt();
  }

  // The error that ends the program: CANCELLED, UNAVAILABLE, or ABORTED if an answer could not be
  // written.
  absl::Status end() {
    absl::MutexLock lock(&mutex_);
    return end_;
  }

  // Waits for the running requests. Errors: those of end(); ABORTED if requests failed.
  absl::Status Finish() {
    workers_.Finish();
    absl::MutexLock lock(&mutex_);
    if (!end_.ok() || failed_ == 0) return end_;
    return absl::AbortedError(
        absl::StrCat(failed_, " of ", FormatCounted(requests_, "request"), " failed"));
  }

 private:
  absl::StatusOr<Generated> Generate(absl::StatusOr<GenerateRequest> request) {
    if (!request.ok()) return request.status();
    const std::optional<uint32_t> most = engine_.max_sequences();
    if (most.has_value() && request->beam_width > *most) {
      return MakeError(Reason::kInvalidCount,
                       absl::StrCat("beam_width is ", request->beam_width,
                                    "; the most sequences of --kv flat and basic are ", *most));
    }
    request->cancelled = [this] { return interrupted_.load(); };
    return GenerateAll(engine_.generator(), *std::move(request));
  }

  void Answer(const RequestLine& request) {
    const absl::StatusOr<Generated> generated = Generate(request.request);
    absl::MutexLock lock(&mutex_);
    std::cout << AnswerLine(request.id, generated) << std::endl;
    ++requests_;
    if (!std::cout) {
      end_.Update(absl::AbortedError("cannot write the answers"));
    } else if (EndsProgram(generated.status())) {
      end_.Update(generated.status());
    } else if (!generated.ok()) {
      ++failed_;
    }
    if (!end_.ok()) on_end_();
  }

  const uint32_t max_new_tokens_;
  ChosenEngine& engine_;
  const std::function<void()> on_end_;
  std::atomic<bool> interrupted_ = false;
  absl::Mutex mutex_;
  uint64_t requests_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t failed_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  Workers workers_;  // Last: they use the others.
};

absl::StatusOr<int> OpenRequests(const std::string& path) {
  if (path == "-") return STDIN_FILENO;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) return fd;
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
}

// Why no more requests are read before the input ends.
class Ending {
 public:
  explicit Ending(LineReader* lines) : lines_(*lines) {}

  // On the signal's thread.
  void Interrupt() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    lines_.Wake();
    if (server_ != nullptr) server_->Interrupt();
  }
  // The engine has given up the search for a daemon.
  void Lose(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    lost_ = why;
    lines_.Wake();
  }
  absl::Status lost() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return lost_;
  }
  // Null: there is none any more.
  void SetServer(RequestServer* server) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    server_ = server;
  }

 private:
  LineReader& lines_;
  mutable absl::Mutex mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  RequestServer* server_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// Hands the lines to the server until there are no more.
absl::Status TakeLines(LineReader& lines, RequestServer& server, const InterruptScope& interrupt,
                       const Ending& ending) {
  for (std::string line;;) {
    const absl::StatusOr<LineReader::Event> event = lines.Next(line);
    if (!event.ok()) return event.status();
    if (*event == LineReader::Event::kWoken) {
      if (interrupt.interrupted() || !server.end().ok()) break;
      if (absl::Status status = ending.lost(); !status.ok()) return status;
      continue;
    }
    if (*event == LineReader::Event::kEnd) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    server.Take(line);
  }
  return server.Finish();
}

}  // namespace

absl::Status RunRequests(const ProgramOptions& options) {
  const absl::StatusOr<int> requests = OpenRequests(options.requests);
  if (!requests.ok()) return requests.status();
  LineReader lines(*requests);
  Ending ending(&lines);
  // The signal handling must exist before the engine: the engine's threads inherit the signal mask.
  const InterruptScope interrupt([&] { ending.Interrupt(); });
  const absl::StatusOr<std::unique_ptr<ChosenEngine>> engine =
      ChosenEngine::Open(options, {.on_lost = [&](const absl::Status& why) { ending.Lose(why); }});
  if (!engine.ok()) return engine.status();
  if (interrupt.interrupted()) return absl::CancelledError("interrupted");
  if (absl::Status status = (*engine)->Begin(options); !status.ok()) return status;
  RequestServer server(options, **engine, [&lines] { lines.Wake(); });
  if (!server.started().ok()) return server.started();
  ending.SetServer(&server);
  const absl::Status status = TakeLines(lines, server, interrupt, ending);
  ending.SetServer(nullptr);
  return status;
}

}  // namespace pagoda
