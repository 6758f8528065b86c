#include "tests/kernels/cuda_emulation/emulator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "tests/kernels/cuda_emulation/fiber.h"
#include "tests/kernels/cuda_emulation/shared_memory.h"

namespace pagoda::kernels::cuda::emulation {
namespace {

constexpr uint32_t kLanes = 32;

struct PendingCopy {
  uint32_t shared;
  const void* global;
  bool present;
};

struct Thread {
  std::unique_ptr<Fiber> fiber;
  bool ended = false;
  bool at_barrier = false;
  bool at_exchange = false;
  LaneData* data = nullptr;  // While it is at an exchange.
  std::vector<std::vector<PendingCopy>> groups;
  std::vector<PendingCopy> uncommitted;
};

struct Warp {
  uint32_t arrived = 0;
  std::string_view operation;
};

// A block that runs.
class Block {
 public:
  Block(uint32_t index, uint32_t blocks, uint32_t threads, uint32_t shared_bytes, uint32_t schedule,
        std::vector<std::string>& problems)
      : index_(index),
        blocks_(blocks),
        random_(schedule + index),
        threads_(threads),
        warps_(threads / kLanes),
        problems_(problems),
        shared_(shared_bytes, threads / kLanes, [this](const std::string& text) { Report(text); }) {
  }

  void Run(FiberStacks& stacks, const std::function<void()>& kernel) {
    for (Thread& thread : threads_) {
      thread.fiber = std::make_unique<Fiber>(stacks, [&kernel] { kernel(); });
    }
    std::vector<uint32_t> order(warps_.size());
    std::iota(order.begin(), order.end(), 0);
    uint32_t running = static_cast<uint32_t>(threads_.size());
    while (running > 0) {
      std::shuffle(order.begin(), order.end(), random_);
      bool progress = false;
      for (const uint32_t warp : order) {
        for (uint32_t lane = 0; lane < kLanes; ++lane) {
          current_ = warp * kLanes + lane;
          Thread& thread = threads_[current_];
          if (thread.ended || thread.at_barrier || thread.at_exchange) continue;
          progress = true;
          if (thread.fiber->Resume()) continue;
          thread.ended = true;
          --running;
          if (!thread.uncommitted.empty() || !thread.groups.empty()) CheckCopiesAtEnd(thread);
        }
      }
      if (progress) continue;
      Report("the block hangs: a barrier or an exchange waits for threads that never come");
      return;
    }
  }

  Place place() const { return {current_, index_, blocks_}; }
  SharedMemory& shared() { return shared_; }
  uint32_t current() const { return current_; }

  void SyncThreads() {
    Thread& self = threads_[current_];
    self.at_barrier = true;
    if (++at_barrier_ == threads_.size()) {
      at_barrier_ = 0;
      shared_.BlockBarrier();
      for (Thread& thread : threads_) thread.at_barrier = false;
      return;
    }
    self.fiber->Suspend();
  }

  void Collect(std::string_view operation, LaneData& data, Exchange exchange) {
    Thread& self = threads_[current_];
    const uint32_t first = current_ / kLanes * kLanes;
    Warp& warp = warps_[current_ / kLanes];
    if (warp.arrived == 0) warp.operation = operation;
    if (warp.operation != operation) {
      Report("lanes of a warp come to " + std::string(warp.operation) + " and " +
             std::string(operation));
    }
    self.data = &data;
    self.at_exchange = true;
    if (++warp.arrived < kLanes) {
      self.fiber->Suspend();
      return;
    }
    warp.arrived = 0;
    LaneData lanes[kLanes];
    for (uint32_t i = 0; i < kLanes; ++i) lanes[i] = *threads_[first + i].data;
    exchange(lanes);
    for (uint32_t i = 0; i < kLanes; ++i) {
      *threads_[first + i].data = lanes[i];
      threads_[first + i].at_exchange = false;
    }
    if (operation == "SyncWarp") shared_.WarpBarrier(current_ / kLanes);
  }

  void CopyAsync(const PendingCopy& copy) {
    if (reinterpret_cast<uintptr_t>(copy.global) % 16 != 0)
      Report("CopyAsync16 from a misaligned address");
    if (!shared_.BeginCopy(current_, copy.shared)) return;
    threads_[current_].uncommitted.push_back(copy);
  }

  void CommitCopies() {
    Thread& self = threads_[current_];
    self.groups.push_back(std::move(self.uncommitted));
    self.uncommitted.clear();
  }

  void WaitForCopies(uint32_t pending) {
    std::vector<std::vector<PendingCopy>>& groups = threads_[current_].groups;
    while (groups.size() > pending) {
      for (const PendingCopy& copy : groups.front()) {
        std::byte bytes[16] = {};
        if (copy.present) std::memcpy(bytes, copy.global, sizeof(bytes));
        shared_.EndCopy(current_, copy.shared, bytes);
      }
      groups.erase(groups.begin());
    }
  }

  void Report(const std::string& text) {
    constexpr size_t kMost = 20;
    if (problems_.size() >= kMost) return;
    problems_.push_back("block " + std::to_string(index_) + ", thread " + std::to_string(current_) +
                        ": " + text);
  }

 private:
  void CheckCopiesAtEnd(const Thread& thread) {
    bool pending = !thread.uncommitted.empty();
    for (const auto& group : thread.groups) pending |= !group.empty();
    if (pending) Report("ends with copies that it has not waited for");
  }

  const uint32_t index_;
  const uint32_t blocks_;
  std::mt19937 random_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<std::string>& problems_;
  SharedMemory shared_;
  uint32_t current_ = 0;
  uint32_t at_barrier_ = 0;
};

thread_local Block* running = nullptr;
thread_local std::vector<std::string> thread_problems;
thread_local uint32_t thread_schedule = 0;

}  // namespace

std::vector<std::string> TakeProblems() { return std::exchange(thread_problems, {}); }

void SetSchedule(uint32_t seed) { thread_schedule = seed; }

int Launch(uint64_t blocks, uint32_t threads, uint32_t shared_bytes,
           const std::function<void()>& kernel) {
  constexpr int kLaunchFailure = 719;
  thread_local FiberStacks stacks;
  const size_t problems_before = thread_problems.size();
  if (threads == 0 || threads % kLanes != 0 || threads > 1024 || shared_bytes > 227 * 1024) {
    thread_problems.push_back("a launch of " + std::to_string(threads) + " threads with " +
                              std::to_string(shared_bytes) + " bytes of shared memory");
    return kLaunchFailure;
  }
  constexpr uint64_t kFewBlocks = 3;
  if (thread_schedule % 2 == 1) blocks = std::min(blocks, kFewBlocks);
  for (uint64_t i = 0; i < blocks; ++i) {
    Block block(static_cast<uint32_t>(i), static_cast<uint32_t>(blocks), threads, shared_bytes,
                thread_schedule, thread_problems);
    running = &block;
    block.Run(stacks, kernel);
    running = nullptr;
  }
  return thread_problems.size() == problems_before ? 0 : kLaunchFailure;
}

Place CurrentPlace() { return running->place(); }
void SyncThreads() { running->SyncThreads(); }
void ReadShared(uint32_t address, void* to, uint32_t bytes) {
  running->shared().Read(running->current(), address, to, bytes);
}
void WriteShared(uint32_t address, const void* from, uint32_t bytes) {
  running->shared().Write(running->current(), address, from, bytes);
}
void CopyAsync(uint32_t shared, const void* global, bool present) {
  running->CopyAsync({shared, global, present});
}
void CommitCopies() { running->CommitCopies(); }
void WaitForCopies(uint32_t pending) { running->WaitForCopies(pending); }
void Collect(std::string_view operation, LaneData& data, Exchange exchange) {
  running->Collect(operation, data, exchange);
}
void ReadMatrixRow(uint32_t address, uint32_t (&words)[4]) {
  running->shared().Read(running->current(), address, words, sizeof(words));
}

}  // namespace pagoda::kernels::cuda::emulation
