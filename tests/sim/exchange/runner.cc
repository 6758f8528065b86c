#include "tests/sim/exchange/runner.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "tests/sim/exchange/world.h"
#include "tests/sim/words/fail.h"
#include "tests/sim/words/trace.h"

namespace pagoda {
namespace exchange_sim {
namespace {

// A run takes milliseconds.
constexpr unsigned kLongestRunSeconds = 60;
constexpr uint32_t kMostWorkers = 64;
constexpr size_t kTraceLines = 80;

// What the worker processes and their parent share.
struct Worker {
  std::atomic<uint64_t> seed{0};
  uint64_t seeds_done = 0;
  Coverage coverage;
};
struct Board {
  std::atomic<uint64_t> next_seed{0};
  Worker workers[kMostWorkers];
};

// The trace of the run in this process, for the signal handler.
const sim::Trace* g_trace = nullptr;

void PrintTrace(int signal) {
  if (signal != 0) std::signal(signal, SIG_DFL);
  const sim::Trace* const trace = std::exchange(g_trace, nullptr);
  if (trace == nullptr) return;
  std::fprintf(stderr, "What happened last:\n");
  for (const std::string& line : trace->last()) std::fprintf(stderr, "%s\n", line.c_str());
  if (signal != 0) raise(signal);
}

void WriteNoCore() {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

Coverage RunWorld(uint64_t seed, uint32_t operations, sim::Trace* trace) {
  alarm(kLongestRunSeconds);
  World world(seed, trace);
  for (uint32_t i = 0; i < operations; ++i) world.Step(i);
  world.Finish();
  alarm(0);
  return world.coverage();
}

[[noreturn]] void Work(const Plan& plan, Board& board, Worker& worker) {
  WriteNoCore();
  const int null = open("/dev/null", O_WRONLY);
  if (null >= 0) dup2(null, STDERR_FILENO), dup2(null, STDOUT_FILENO), close(null);
  sim::Trace trace(0);
  while (true) {
    const uint64_t offset = board.next_seed.fetch_add(1);
    if (offset >= plan.seeds) break;
    worker.seed.store(plan.first_seed + offset);
    worker.coverage.Add(RunWorld(plan.first_seed + offset, plan.operations, &trace));
    ++worker.seeds_done;
  }
  _exit(0);
}

}  // namespace

Outcome RunAll(const Plan& plan) {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  SIM_CHECK(memory != MAP_FAILED, "no shared memory for the workers");
  auto& board = *new (memory) Board;
  std::fflush(nullptr);
  const uint32_t workers = std::clamp(plan.workers, 1u, kMostWorkers);
  std::vector<std::pair<pid_t, uint32_t>> children;
  for (uint32_t i = 0; i < workers; ++i) {
    const pid_t child = fork();
    SIM_CHECK(child >= 0, "no process for a worker");
    if (child == 0) Work(plan, board, board.workers[i]);
    children.emplace_back(child, i);
  }
  Outcome outcome;
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    const auto child = std::find_if(children.begin(), children.end(),
                                    [ended](const auto& one) { return one.first == ended; });
    SIM_CHECK(child != children.end(), "a worker is lost");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    // The others end after the seeds that they have begun.
    board.next_seed.store(plan.seeds);
    const uint64_t seed = board.workers[child->second].seed.load();
    outcome.failed_seed = std::min(seed, outcome.failed_seed.value_or(seed));
  }
  for (uint32_t i = 0; i < workers; ++i) {
    outcome.seeds += board.workers[i].seeds_done;
    outcome.coverage.Add(board.workers[i].coverage);
  }
  munmap(memory, sizeof(Board));
  return outcome;
}

void RunHere(uint64_t seed, uint32_t operations, size_t lines) {
  WriteNoCore();
  sim::Trace trace(lines);
  g_trace = &trace;
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM}) {
    std::signal(signal, PrintTrace);
  }
  RunWorld(seed, operations, &trace);
  g_trace = nullptr;
}

uint64_t DigestOf(uint64_t seed, uint32_t operations) {
  sim::Trace trace(0);
  World world(seed, &trace);
  for (uint32_t i = 0; i < operations; ++i) world.Step(i);
  world.Finish();
  return world.digest();
}

void Replay(uint64_t seed, uint32_t operations) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    RunHere(seed, operations, kTraceLines);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

}  // namespace exchange_sim

namespace sim {

void Fail(const std::string& what) {
  exchange_sim::PrintTrace(0);
  std::fprintf(stderr, "exchange_sim: %s\n", what.c_str());
  std::abort();
}

}  // namespace sim
}  // namespace pagoda
