// How much a tier on disk costs the memory above it: evictions of blocks that have a copy on disk,
// and copies between memories while the disk stalls. deploy/bench.sh tiers runs it.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "events/event_log.h"
#include "manager/disk/disk_carrier.h"
#include "manager/disk/disk_recovery.h"
#include "manager/sequences/raw_blocks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/shared_manager.h"
#include "pools/pool.h"
#include "pools/transfers.h"
#include "tests/bench/figure.h"
#include "tests/manager/fixtures/prompt_of.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kTokensPerBlock = 16;
const absl::Time kNow = absl::UnixEpoch();

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// A core whose copies and disk orders complete at once.
class Core {
 public:
  Core(uint32_t blocks, uint32_t disk_blocks) {
    std::vector<TierSpec> tiers = {{.name = "dram", .blocks = {blocks}}};
    if (disk_blocks != 0) {
      tiers.push_back({.name = "nvme", .medium = Medium::kDisk, .blocks = {disk_blocks}});
    }
    core_ = *BlockManager::Create(
        {.layout = *CacheLayout::Create(
             {.tokens_per_block = kTokensPerBlock, .layers = {{.num_kv_heads = 1, .head_dim = 1}}}),
         .tiers = std::move(tiers),
         .lifecycle_events = LifecycleEvents::kOff});
    session_ = core_->OpenSession("bench", absl::InfiniteDuration(), kNow)->ref.id;
  }

  BlockManager& core() { return *core_; }
  SessionId session() const { return session_; }
  // A whole request of `num_tokens` tokens that no request had before, from its beginning to its
  // end.
  void Serve(uint32_t num_tokens) {
    std::vector<TokenId> tokens(num_tokens);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_());
    const SequenceId id{++sequences_};
    Require(core_->sequences().AddSequence(session_, id, PromptOf({}, tokens), kNow).status());
    Require(core_->sequences().CommitTokens(session_, id, {}, num_tokens, kNow).status());
    Require(core_->sequences().FreeSequence(session_, id, kNow));
    Settle();
  }
  // Returns when no block waits for a backup.
  void Settle() {
    for (bool more = true; more;) {
      core_->Maintain(kNow, 0);
      more = false;
      for (const Order& order : core_->TakeOrders()) {
        if (order.kind != Order::Kind::kMove) continue;
        core_->Complete(order.lane, order.ticket, absl::OkStatus(), kNow);
        more = true;
      }
      core_->TakeEvents();
    }
  }

 private:
  std::unique_ptr<BlockManager> core_;
  SessionId session_;
  std::mt19937_64 random_{1};
  uint64_t sequences_ = 0;
};

// Evicts requests of 64 tokens from a full tier, one after another. Freeing the blocks that this
// took is not measured.
class EvictionBed {
 public:
  EvictionBed(uint32_t blocks, uint32_t disk_blocks) : bed_(blocks, disk_blocks) {
    for (uint32_t i = 0; i < blocks / kRequestBlocks; ++i) bed_.Serve(kRequestTokens);
  }

  // The seconds of one request.
  double Seconds() {
    std::vector<BlockHandle> handles(kRequestBlocks);
    std::vector<BlockRef> taken;
    const double seconds = bench::Seconds([&] {
      for (int i = 0; i < kCalls; ++i) {
        Require(bed_.core()
                    .raw_blocks()
                    .AllocateBlocks(bed_.session(), kFullAttention, absl::MakeSpan(handles), kNow)
                    .status());
        bed_.core().TakeEvents();
        for (const BlockHandle& handle : handles) taken.push_back(handle.ref());
      }
    });
    for (size_t i = 0; i < taken.size(); i += kRequestBlocks) {
      Require(bed_.core().raw_blocks().FreeBlocks(
          bed_.session(), kFullAttention, absl::MakeSpan(taken).subspan(i, kRequestBlocks), kNow));
      bed_.Serve(kRequestTokens);
    }
    return seconds / kCalls;
  }
  uint64_t evicted() { return bed_.core().Stats().windows[0].counters.evicted_blocks; }
  uint64_t fell() { return bed_.core().Stats().windows[0].counters.freely_evicted_blocks; }

 private:
  static constexpr int kCalls = 500;
  static constexpr uint32_t kRequestTokens = 64;
  static constexpr uint32_t kRequestBlocks = kRequestTokens / kTokensPerBlock;

  Core bed_;
};

void MeasureFreeEviction(uint32_t blocks) {
  EvictionBed drops(blocks, 0), falls(blocks, blocks * 8);
  const auto [free, drop] =
      InterleavedMedians([&] { return falls.Seconds(); }, [&] { return drops.Seconds(); });
  PAGODA_CHECK(falls.evicted() == 0 && falls.fell() > 0 && drops.evicted() > 0,
               "the one drops blocks, and the other lets them fall to their copies");
  Print({.id = "free_eviction",
         .value = free * 1e6,
         .unit = "us",
         .yardstick = "the same request dropped, in a cache without a tier below",
         .yardstick_value = drop * 1e6});
}

// An engine whose writes take a second each while it is told to stall.
class StallingEngine final : public FileEngine {
 public:
  StallingEngine(std::unique_ptr<FileEngine> engine, const std::atomic<bool>* stalls)
      : engine_(std::move(engine)), stalls_(stalls) {}

  void Submit(FileRequest request) override {
    if (request.kind == FileRequest::Kind::kWrite && *stalls_) {
      request.done = [done = std::move(request.done)](int error) {
        absl::SleepFor(absl::Seconds(1));
        done(error);
      };
    }
    engine_->Submit(std::move(request));
  }
  void Stop() override { engine_->Stop(); }
  std::string_view name() const override { return engine_->name(); }

 private:
  const std::unique_ptr<FileEngine> engine_;
  const std::atomic<bool>* const stalls_;
};

// A cache with pools and copies, like a daemon's: two tiers in memory, and below them a disk if a
// folder is given.
class Ladder {
 public:
  explicit Ladder(const std::string& folder)
      : layout_(*CacheLayout::Create({.name = absl::StrCat("bench", getpid(), folder.empty()),
                                      .tokens_per_block = kTokensPerBlock,
                                      .layers = {4, {.num_kv_heads = 4, .head_dim = 64}}})),
        log_(EventLog::Limits{.max_events = 1 << 16, .max_bytes = 64 << 20}) {
    SizingRequest sizes = {
        .workload = {.max_sequence_tokens = 1024},
        .tiers = {{.budget = BlockBudget{{kBlocks}}}, {.budget = BlockBudget{{kBlocks}}}}};
    std::vector<TierSpec> tiers = {
        {.name = "hbm", .blocks = {kBlocks}},
        {.name = "dram", .blocks = {kBlocks}, .min_priority = Priority{0}}};
    if (!folder.empty()) {
      sizes.tiers.push_back({.budget = BlockBudget{{kBlocks * 8}}, .medium = Medium::kDisk});
      tiers.push_back({.name = "nvme",
                       .medium = Medium::kDisk,
                       .blocks = {kBlocks * 8},
                       .min_priority = Priority{0}});
    }
    const absl::StatusOr<SizingPlan> plan = PlanSizes(layout_, sizes);
    Require(plan.status());
    pools_ = *PoolSet::Create(layout_, plan->slots(), layout_.spec().name);
    manager_ = std::make_unique<SharedManager>(
        *BlockManager::Create({.layout = layout_, .tiers = std::move(tiers), .epoch = Epoch{1}}),
        &log_);
    if (!folder.empty()) OpenDisk(folder);
    transfers_ = std::make_unique<HostTransfers>(
        pools_.get(), HostTransfers::Options{.num_threads = 2},
        [this](Lane lane, Ticket ticket, const absl::Status& status) {
          manager_->Complete(lane, ticket, status);
        });
    manager_->SetCarrier({Lane::kMemory}, transfers_.get());
    client_ = *OpenLocalCacheClient(manager_.get(), "bench");
  }
  ~Ladder() {
    stalls_ = false;
    client_.reset();
    if (carrier_ != nullptr) Require(carrier_->WaitUntilIdle());
    manager_->SetCarrier({Lane::kMemory}, nullptr);
    transfers_.reset();
    manager_->SetCarrier({Lane::kFetch, Lane::kBackup}, nullptr);
    carrier_.reset();
  }

  // The 99th percentile, in seconds, of onboarding a prefix from the second tier: from the order to
  // the end of its copies. Meanwhile the disk always has writes, and each write takes a second
  // more.
  double P99(int rounds) {
    stalls_ = true;
    std::vector<double> seconds;
    int busy_rounds = 0;
    for (int i = 0; i < rounds; ++i) {
      const std::vector<TokenId> tokens = FreshTokens();
      const SequenceId id{++sequences_};
      Require(
          RunOne<AddedSequence>(*client_, AddSequence{.sequence = id, .tokens = tokens}).status());
      Require(RunOne<CommittedTokens>(
                  *client_, CommitTokens{.sequence = id,
                                         .computed_tokens = static_cast<uint32_t>(tokens.size())})
                  .status());
      Require(RunOne<FreedSequence>(*client_, FreeSequence{.sequence = id}).status());
      Await(RunOne<OffloadedPrefix>(*client_, OffloadPrefix{.tokens = tokens})->ready);
      // Works off the queue of evicted blocks, as a daemon does.
      for (int piece = 0; piece < 16; ++piece) manager_->Maintain(64);
      const absl::Time before = absl::Now();
      const auto up = RunOne<PrefetchedPrefix>(*client_, PrefetchPrefix{.tokens = tokens});
      Require(up.status());
      PAGODA_CHECK(up->blocks > 0, "there is something to bring up");
      Await(up->ready);
      seconds.push_back(absl::ToDoubleSeconds(absl::Now() - before));
      if (carrier_ != nullptr && IsWriting()) ++busy_rounds;
    }
    // Between two groups of writes it can have none for a moment.
    PAGODA_CHECK(carrier_ == nullptr || busy_rounds * 10 >= rounds * 9,
                 "the disk is busy while it is measured");
    return Percentile(std::move(seconds), 0.99);
  }

 private:
  static constexpr uint32_t kBlocks = 512;

  void OpenDisk(const std::string& folder) {
    DiskFiles::Options options{.directory = folder, .num_slots = {kBlocks * 8}};
    options.make_engine = [this](uint32_t, int fd, uint32_t depth) {
      return absl::StatusOr<std::unique_ptr<FileEngine>>(
          std::make_unique<StallingEngine>(*MakeThreadEngine(fd, depth), &stalls_));
    };
    absl::StatusOr<std::unique_ptr<DiskFiles>> files = DiskFiles::Open(layout_, options);
    Require(files.status());
    DiskRecovery recovery = RecoverDisk(**files);
    carrier_ = std::make_unique<DiskCarrier>(pools_.get(), *std::move(files),
                                             std::move(recovery.ledgers), DiskCarrier::Options(),
                                             [this](Lane lane, Ticket ticket, absl::Status status) {
                                               manager_->Complete(lane, ticket, status);
                                             });
    manager_->SetCarrier({Lane::kFetch, Lane::kBackup}, carrier_.get());
  }
  bool IsWriting() const {
    return manager_->Read(&BlockManager::Stats).windows[0].tiers[2].in_flight > 0;
  }
  std::vector<TokenId> FreshTokens() {
    std::vector<TokenId> tokens(kTokensPerBlock * 16);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_());
    return tokens;
  }
  void Await(Ticket ticket) {
    absl::Notification done;
    manager_->NotifyWhenDone(ticket, [&] { done.Notify(); });
    done.WaitForNotification();
  }

  const CacheLayout layout_;
  EventLog log_;
  std::atomic<bool> stalls_ = false;
  std::unique_ptr<PoolSet> pools_;
  std::unique_ptr<SharedManager> manager_;
  std::unique_ptr<DiskCarrier> carrier_;
  std::unique_ptr<HostTransfers> transfers_;
  std::unique_ptr<CacheClient> client_;
  std::mt19937_64 random_{1};
  uint64_t sequences_ = 0;
};

void MeasureStalledDisk(const std::string& folder, int repetitions, int rounds) {
  Ladder with_disk(folder), without("");
  with_disk.P99(rounds);
  without.P99(rounds);
  std::vector<double> idle, stalled;
  for (int i = 0; i < repetitions; ++i) {
    idle.push_back(without.P99(rounds));
    stalled.push_back(with_disk.P99(rounds));
  }
  Print({.id = "memory_p99_disk_stalled",
         .value = Percentile(stalled, 0.5) * 1e6,
         .unit = "us",
         .yardstick = "the same without a disk",
         .yardstick_value = Percentile(idle, 0.5) * 1e6});
}

}  // namespace
}  // namespace pagoda::bench

// ladder_bench FOLDER [--smoke] [ID...]: creates a file of some 300 MB in FOLDER.
int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: ladder_bench FOLDER [--smoke] [ID...]\n");
    return 2;
  }
  std::vector<std::string> ids(argv + 2, argv + argc);
  const bool smoke = std::erase(ids, "--smoke") > 0;
  const auto wanted = [&](const std::string& id) {
    return ids.empty() || std::any_of(ids.begin(), ids.end(), [&](const std::string& begin) {
             return id.compare(0, begin.size(), begin) == 0;
           });
  };
  if (wanted("free_eviction")) {
    pagoda::bench::MeasureFreeEviction(smoke ? 4096 : 65'536);
  }
  if (wanted("memory_p99_disk_stalled")) {
    pagoda::bench::MeasureStalledDisk(argv[1], smoke ? 1 : 21, smoke ? 50 : 400);
  }
}
