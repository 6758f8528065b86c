#include "tests/sim/runner.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/sim/words/trace.h"
#include "tests/sim/world.h"

namespace pagoda::sim {
namespace {

using Clock = std::chrono::steady_clock;

// A run counts as hanging if it makes no progress for this long.
constexpr std::chrono::seconds kLongestStep{60};
constexpr uint32_t kMostWorkers = 64;
constexpr size_t kTraceLines = 60;

// The data that the worker processes and their parent share.
struct Worker {
  std::atomic<uint64_t> seed{0};
  std::atomic<uint32_t> operation{0};
  std::atomic<uint64_t> steps{0};  // The steps of all its runs.
  uint64_t seeds_done = 0;
  Coverage coverage;
};
struct Board {
  std::atomic<uint64_t> next_seed{0};
  Worker workers[kMostWorkers];
};

// The trace of the run in this process, for the signal handler.
const Trace* g_trace = nullptr;

void PrintTrace(int signal) {
  if (signal != 0) std::signal(signal, SIG_DFL);
  if (g_trace == nullptr) return;
  const Trace* const trace = std::exchange(g_trace, nullptr);
  std::fprintf(stderr, "The last operations:\n");
  for (const std::string& line : trace->last()) std::fprintf(stderr, "%s\n", line.c_str());
  if (signal != 0) raise(signal);  // It ends the process now.
}

// The process writes no core file when it dies, because the seed is enough.
void BeSilent() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  const int null = open("/dev/null", O_WRONLY);
  if (null >= 0) dup2(null, STDERR_FILENO), dup2(null, STDOUT_FILENO), close(null);
}

// Everything that can be read from the pipe.
std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(fd, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

uint64_t RunWorld(const SimRun& run, Trace* trace, bool keep_events, Worker* worker) {
  World world(run.seed, trace);
  if (keep_events) world.KeepEvents();
  for (uint32_t i = 0; i < run.operations; ++i) {
    if (worker != nullptr) {
      worker->operation.store(i, std::memory_order_relaxed);
      worker->steps.fetch_add(1, std::memory_order_relaxed);
    }
    if (run.Skips(i)) continue;
    if (trace->on()) trace->Add(Text("operation ", i, ":"));
    world.Step(i);
  }
  if (worker != nullptr) worker->operation.store(run.operations);
  world.Finish();
  if (worker != nullptr && !keep_events) worker->coverage.Add(world.coverage);
  return world.digest.value();
}

[[noreturn]] void Work(const Plan& plan, Board& board, Worker& worker) {
  BeSilent();
  Trace trace(0);
  for (;;) {
    const uint64_t offset = board.next_seed.fetch_add(1);
    if (offset >= plan.seeds) break;
    const SimRun run{.seed = plan.first_seed + offset, .operations = plan.operations, .skip = {}};
    worker.seed.store(run.seed);
    const uint64_t digest = RunWorld(run, &trace, false, &worker);
    if (plan.twice_every != 0 && offset % plan.twice_every == 0) {
      SIM_CHECK(RunWorld(run, &trace, true, &worker) == digest,
                "the same seed gives other events or copies");
    }
    ++worker.seeds_done;
  }
  _exit(0);
}

}  // namespace

void Fail(const std::string& what) {
  std::fprintf(stderr, "sim: %s\n", what.c_str());
  std::abort();
}

bool SimRun::Skips(uint32_t operation) const {
  return std::any_of(skip.begin(), skip.end(), [operation](const Range& range) {
    return operation >= range.begin && operation < range.end;
  });
}

uint32_t SimRun::Size() const {
  uint32_t size = operations;
  for (const Range& range : skip) size -= range.end - range.begin;
  return size;
}

std::string SimRun::Arguments() const {
  std::string text = Text("--seed=", seed, " --ops=", operations);
  for (size_t i = 0; i < skip.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? " --skip=" : ",", skip[i].begin, "-", skip[i].end);
  }
  return text;
}

std::optional<std::vector<SimRun::Range>> ParseRanges(const std::string& text) {
  std::vector<SimRun::Range> ranges;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    SimRun::Range range;
    if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &range.begin) ||
        !absl::SimpleAtoi(ends[1], &range.end) || range.end < range.begin) {
      return std::nullopt;
    }
    ranges.push_back(range);
  }
  return ranges;
}

Outcome RunAll(const Plan& plan) {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  SIM_CHECK(memory != MAP_FAILED, "no shared memory for the workers");
  auto& board = *new (memory) Board;
  std::fflush(nullptr);
  std::vector<pid_t> children;
  const uint32_t workers = std::min(std::max(plan.workers, 1u), kMostWorkers);
  for (uint32_t i = 0; i < workers; ++i) {
    const pid_t child = fork();
    SIM_CHECK(child >= 0, "no process for a worker");
    if (child == 0) Work(plan, board, board.workers[i]);
    children.push_back(child);
  }

  Outcome outcome;
  std::vector<uint64_t> steps(workers);
  std::vector<Clock::time_point> moved(workers, Clock::now());
  const auto failed = [&](uint32_t i) {
    const Worker& worker = board.workers[i];
    // The operation that ran, and all before it. If all were done, the end of the run.
    const uint32_t operations = std::min(worker.operation.load() + 1, plan.operations);
    if (!outcome.failure.has_value()) {
      outcome.failure = SimRun{.seed = worker.seed.load(), .operations = operations, .skip = {}};
    }
    for (const pid_t child : children) {
      if (child > 0) kill(child, SIGKILL);
    }
  };
  for (size_t left = children.size(); left > 0;) {
    for (uint32_t i = 0; i < workers; ++i) {
      if (children[i] == 0) continue;
      int status = 0;
      if (waitpid(children[i], &status, WNOHANG) == children[i]) {
        children[i] = 0;
        --left;
        const bool killed = outcome.failure.has_value();
        if (!killed && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) failed(i);
      } else if (board.workers[i].steps.load() != steps[i]) {
        steps[i] = board.workers[i].steps.load();
        moved[i] = Clock::now();
      } else if (Clock::now() - moved[i] > kLongestStep && !outcome.failure.has_value()) {
        failed(i);
      }
    }
    if (left > 0) usleep(10'000);
  }
  for (uint32_t i = 0; i < workers; ++i) {
    outcome.seeds += board.workers[i].seeds_done;
    outcome.coverage.Add(board.workers[i].coverage);
  }
  outcome.operations = outcome.seeds * plan.operations;
  munmap(memory, sizeof(Board));
  return outcome;
}

void RunHere(const SimRun& run, size_t lines) {
  Trace trace(lines);
  g_trace = &trace;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM}) {
    std::signal(signal, PrintTrace);
  }
  RunWorld(run, &trace, true, nullptr);
  PrintTrace(0);
}

uint64_t DigestOf(const SimRun& run) {
  Trace trace(0);
  return RunWorld(run, &trace, false, nullptr);
}

std::string FailureOf(const SimRun& run) {
  int ends[2];
  SIM_CHECK(pipe(ends) == 0, "no pipe");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(static_cast<unsigned>(kLongestStep.count()));
    BeSilent();
    dup2(ends[1], STDERR_FILENO);
    Trace trace(0);
    RunWorld(run, &trace, true, nullptr);
    _exit(0);
  }
  close(ends[1]);
  std::string failure = ReadAll(ends[0]);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  if (failure.empty()) failure = "it hangs, or dies in silence";
  std::erase_if(failure, [](char c) { return c >= '0' && c <= '9'; });
  return failure;
}

void Replay(const SimRun& run) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(static_cast<unsigned>(kLongestStep.count()));
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    RunHere(run, kTraceLines);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

SimRun Shrink(const SimRun& run, double seconds) {
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(seconds));
  const std::string failure = FailureOf(run);
  std::vector<bool> kept(run.operations, true);
  const auto as_run = [&run](const std::vector<bool>& which) {
    SimRun smaller{.seed = run.seed, .operations = static_cast<uint32_t>(which.size()), .skip = {}};
    while (smaller.operations > 0 && !which[smaller.operations - 1]) --smaller.operations;
    for (uint32_t i = 0; i < smaller.operations; ++i) {
      if (which[i]) continue;
      if (!smaller.skip.empty() && smaller.skip.back().end == i) {
        ++smaller.skip.back().end;
      } else {
        smaller.skip.push_back({i, i + 1});
      }
    }
    return smaller;
  };
  for (const SimRun::Range& range : run.skip) {
    std::fill(kept.begin() + range.begin, kept.begin() + range.end, false);
  }
  // Tries smaller and smaller pieces, from the end, because operations near the failure are often
  // its cause.
  for (size_t piece = std::max<size_t>(1, kept.size() / 2); piece > 0; piece /= 2) {
    for (bool again = true; again;) {
      again = false;
      for (size_t stop = kept.size(); stop > 0;) {
        const size_t start = stop - std::min(stop, piece);
        std::vector<bool> fewer = kept;
        std::fill(fewer.begin() + static_cast<ptrdiff_t>(start),
                  fewer.begin() + static_cast<ptrdiff_t>(stop), false);
        stop = start;
        if (fewer == kept) continue;
        if (Clock::now() > end) return as_run(kept);
        if (FailureOf(as_run(fewer)) != failure) continue;
        kept = std::move(fewer);
        again = piece == 1;
      }
    }
  }
  return as_run(kept);
}

}  // namespace pagoda::sim
