#include "tests/kernels/cuda_emulation/emulator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "tests/kernels/cuda_emulation/barriers.h"
#include "tests/kernels/cuda_emulation/capture.h"
#include "tests/kernels/cuda_emulation/fiber.h"
#include "tests/kernels/cuda_emulation/launch_count.h"
#include "tests/kernels/cuda_emulation/ordering.h"
#include "tests/kernels/cuda_emulation/shared_memory.h"

namespace pagoda::kernels::cuda::emulation {
namespace {

constexpr uint32_t kLanes = kWarpLanes;
constexpr uint32_t kNamedBarriers = 16;

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
  uint32_t at_phase = 0;  // Not 0: the address of the shared memory barrier that it waits for.
  uint32_t parity = 0;
  LaneData* data = nullptr;  // Set during an exchange.
  std::vector<std::vector<PendingCopy>> groups;
  std::vector<PendingCopy> uncommitted;
};

struct Warp {
  uint32_t arrived = 0;
  std::string_view operation;
  uint32_t registers = 0;  // 0: the launch's number.
};

// A numbered barrier of some threads.
struct NamedBarrier {
  uint32_t threads = 0;
  std::vector<uint32_t> arrived;
  std::vector<uint32_t> waiting;  // Those of `arrived` that wait.
};

// A running block.
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
        ordering_(threads),
        shared_(shared_bytes, threads / kLanes, ordering_, Reporter()),
        barriers_(shared_, ordering_, Reporter()),
        products_(threads / kLanes, shared_, ordering_, Reporter()) {}

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
          if (thread.at_phase != 0 && !barriers_.Ended(thread.at_phase, thread.parity)) continue;
          progress = true;
          if (thread.fiber->Resume()) continue;
          thread.ended = true;
          --running;
          if (!thread.uncommitted.empty() || !thread.groups.empty()) CheckCopiesAtEnd(thread);
        }
      }
      // A box arrives at random moments, and always when all threads wait.
      constexpr uint32_t kRoundsOfABox = 8;
      if (progress && random_() % kRoundsOfABox != 0) continue;
      const bool came = barriers_.EndBox(random_());
      if (progress || came) continue;
      Report(
          "the block hangs: a barrier or an exchange waits for threads or bytes that never come");
      return;
    }
    if (barriers_.EndBox(0)) Report("the block ends with a box on its way");
    products_.CheckNoneLeft();
    CheckRegisters();
    for (const NamedBarrier& barrier : named_) {
      if (!barrier.arrived.empty()) Report("the block ends with arrivals at a barrier of threads");
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
      std::vector<uint32_t> all(warps_.size());
      std::iota(all.begin(), all.end(), 0);
      ordering_.Meet(all);
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
    if (operation == "SyncWarp") ordering_.Meet({current_ / kLanes});
  }

  // Barrier `id` of `threads` threads (whole warps).
  void SyncSome(uint32_t id, uint32_t threads) {
    if (!ComeToBarrier(id, threads)) return;
    threads_[current_].at_barrier = true;
    named_[id].waiting.push_back(current_);
    if (named_[id].arrived.size() < threads) {
      threads_[current_].fiber->Suspend();
    } else {
      EndBarrier(named_[id]);
    }
  }

  // The same without waiting.
  void ArriveSome(uint32_t id, uint32_t threads) {
    if (ComeToBarrier(id, threads) && named_[id].arrived.size() == threads) EndBarrier(named_[id]);
  }

  void WaitFor(uint32_t address, uint32_t parity) {
    Thread& self = threads_[current_];
    while (!barriers_.Ended(address, parity)) {
      self.at_phase = address;
      self.parity = parity;
      self.fiber->Suspend();
      self.at_phase = 0;
    }
    barriers_.Learn(current_, address);
  }

  Ordering& ordering() { return ordering_; }
  Barriers& barriers() { return barriers_; }
  Products& products() { return products_; }

  // setmaxnreg of the thread's warp.
  void SetRegisters(uint32_t registers, bool more) {
    const uint32_t before = RegistersOf(current_ / kLanes);
    if (registers % 8 != 0 || registers < 24 || registers > 256) {
      Report("setmaxnreg of " + std::to_string(registers));
    }
    // The first lane sets the registers for all lanes.
    if (current_ % kLanes != 0) return;
    if (more ? registers <= before : registers >= before) {
      Report("setmaxnreg from " + std::to_string(before) + " to " + std::to_string(registers));
    }
    warps_[current_ / kLanes].registers = registers;
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
  bool ComeToBarrier(uint32_t id, uint32_t threads) {
    if (id == 0 || id >= kNamedBarriers || threads % kLanes != 0 || threads > threads_.size()) {
      Report("barrier " + std::to_string(id) + " of " + std::to_string(threads) + " threads");
      return false;
    }
    NamedBarrier& barrier = named_[id];
    if (barrier.arrived.empty()) barrier.threads = threads;
    if (barrier.threads != threads) Report("a barrier of different numbers of threads");
    barrier.arrived.push_back(current_);
    return true;
  }

  // All threads have come. If one of them did not wait, nobody learns what the others have done.
  void EndBarrier(NamedBarrier& barrier) {
    std::vector<uint32_t> lanes(warps_.size(), 0);
    for (const uint32_t thread : barrier.arrived) ++lanes[thread / kLanes];
    std::vector<uint32_t> whole;
    for (uint32_t warp = 0; warp < lanes.size(); ++warp) {
      if (lanes[warp] == kLanes) whole.push_back(warp);
      if (lanes[warp] % kLanes != 0) Report("some lanes of a warp come to a barrier of threads");
      if (lanes[warp] > kLanes) Report("a warp comes to a barrier of threads twice");
    }
    if (barrier.waiting.size() == barrier.arrived.size()) ordering_.Meet(whole);
    for (const uint32_t thread : barrier.waiting) threads_[thread].at_barrier = false;
    barrier.arrived.clear();
    barrier.waiting.clear();
  }

  void CheckCopiesAtEnd(const Thread& thread) {
    bool pending = !thread.uncommitted.empty();
    for (const auto& group : thread.groups) pending |= !group.empty();
    if (pending) Report("ends with copies that it has not waited for");
  }

  SharedMemory::Reporter Reporter() {
    return [this](const std::string& text) { Report(text); };
  }

  // Registers per thread: the register file divided by the block's threads, or the number that was
  // set.
  uint32_t RegistersOf(uint32_t warp) const {
    const auto threads = static_cast<uint32_t>(threads_.size());
    const uint32_t at_launch = std::min(255u, 65536 / threads / 8 * 8);
    return warps_[warp].registers == 0 ? at_launch : warps_[warp].registers;
  }

  void CheckRegisters() {
    uint32_t total = 0;
    bool any = false;
    for (uint32_t warp = 0; warp < warps_.size(); ++warp) {
      any = any || warps_[warp].registers != 0;
      total += RegistersOf(warp);
      if (RegistersOf(warp) != RegistersOf(warp / 4 * 4)) {
        Report("warps of a warpgroup have different numbers of registers");
      }
    }
    const auto threads = static_cast<uint32_t>(threads_.size());
    if (any && total * kLanes > 65536 / threads / 8 * 8 * threads) {
      Report("warps wait for registers that nobody gives up: " + std::to_string(total * kLanes));
    }
  }

  const uint32_t index_;
  const uint32_t blocks_;
  std::mt19937 random_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<std::string>& problems_;
  Ordering ordering_;
  SharedMemory shared_;
  Barriers barriers_;
  Products products_;
  NamedBarrier named_[kNamedBarriers];
  uint32_t current_ = 0;
  uint32_t at_barrier_ = 0;
};

thread_local Block* running = nullptr;
thread_local std::vector<std::string> thread_problems;
thread_local uint64_t thread_launches = 0;
thread_local uint32_t thread_schedule = 0;
thread_local uint32_t most_shared_bytes = 227 * 1024;
thread_local CapturedWork* captured = nullptr;

int RunBlocks(uint64_t blocks, uint32_t threads, uint32_t shared_bytes,
              const std::function<void()>& kernel) {
  constexpr int kLaunchFailure = 719;
  thread_local FiberStacks stacks;
  const size_t problems_before = thread_problems.size();
  if (threads == 0 || threads % kLanes != 0 || threads > 1024 || shared_bytes > most_shared_bytes) {
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

}  // namespace

std::vector<std::string> TakeProblems() { return std::exchange(thread_problems, {}); }

void SetSchedule(uint32_t seed) { thread_schedule = seed; }

void SetMostSharedBytes(uint32_t bytes) { most_shared_bytes = bytes; }
uint32_t MostSharedBytes() { return most_shared_bytes; }

int Launch(uint64_t blocks, uint32_t threads, uint32_t shared_bytes,
           const std::function<void()>& kernel) {
  if (blocks > 0) ++thread_launches;
  if (captured == nullptr) return RunBlocks(blocks, threads, shared_bytes, kernel);
  captured->push_back([=] { return RunBlocks(blocks, threads, shared_bytes, kernel); });
  return 0;
}

void CaptureInto(CapturedWork* work) { captured = work; }
bool IsCapturing() { return captured != nullptr; }
void Capture(std::function<int()> piece) { captured->push_back(std::move(piece)); }

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
void InitBarrier(uint32_t address, uint32_t arrivals) {
  running->barriers().Init(running->current(), address, arrivals);
}
void FenceBarriers() { running->barriers().FenceInit(running->current()); }
void ArriveExpecting(uint32_t address, uint32_t bytes) {
  running->barriers().Arrive(running->current(), address, bytes);
}
void WaitFor(uint32_t address, uint32_t parity) { running->WaitFor(address, parity); }
void SyncSome(uint32_t id, uint32_t threads) { running->SyncSome(id, threads); }
void ArriveSome(uint32_t id, uint32_t threads) { running->ArriveSome(id, threads); }
void StartBox(uint32_t shared, const TensorMap& map, const uint32_t (&place)[4], uint32_t barrier) {
  running->barriers().StartBox(running->current(), shared, map, place, barrier);
}
void FenceAsync() { running->ordering().Fence(running->current()); }
void SetRegisters(uint32_t registers, bool more) { running->SetRegisters(registers, more); }
void ReportProblem(const std::string& text) { running->Report(text); }
void OfWarp(const std::function<void(Products& products, uint32_t warp)>& work) {
  work(running->products(), running->current() / kLanes);
}
uint64_t CountProducts() { return Products::count(); }
uint64_t CountLaunches() { return thread_launches; }
void Collect(std::string_view operation, LaneData& data, Exchange exchange) {
  running->Collect(operation, data, exchange);
}
void ReadMatrixRow(uint32_t address, uint32_t (&words)[4]) {
  running->shared().Read(running->current(), address, words, sizeof(words));
}

}  // namespace pagoda::kernels::cuda::emulation
