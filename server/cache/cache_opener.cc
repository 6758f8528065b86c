#include "server/cache/cache_opener.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/fair_count.h"
#include "manager/cache_lists.h"
#include "manager/policy/eviction_policy.h"
#include "manager/sequences/session_endings.h"
#include "pools/memory/shared_memory.h"
#include "server/log/log.h"
#include "server/supervision/serving_state.h"

namespace pagoda::server {
namespace {

// How often the thread checks for unused caches.
constexpr absl::Duration kSweepInterval = absl::Seconds(1);
// The core needs metadata for each block, which no budget counts: 127 bytes (manager/README.md),
// and for large blocks 8 bytes a token. With blocks of one byte, the metadata would take more than
// a hundred times the memory that the operator gave.
constexpr uint64_t kLeastBlockBytes = 128;
constexpr uint64_t kLeastTokenBytes = 8;
// How long the subscribers of a dropped cache have to read the last events.
constexpr absl::Duration kLastWords = absl::Seconds(1);
// How often the thread checks whether the last call has released a dropped cache.
constexpr absl::Duration kRetiredInterval = absl::Milliseconds(20);

CachePtr PartsOf(const std::shared_ptr<ServedCache>& cache) {
  return CachePtr(cache, &cache->parts());
}

absl::Status Mismatch(const std::string& name, const std::string& what) {
  return MakeError(Reason::kCacheMismatch,
                   absl::StrCat("the cache '", name, "' exists already, and ", what));
}

absl::Status CheckCall(const OpenCacheCall& call) {
  if (absl::Status status = CheckCacheName(call.name); !status.ok()) return status;
  if (call.eviction_policy.empty()) return absl::OkStatus();
  return MakeEvictionPolicies(call.eviction_policy, {}, 1).status();
}

absl::Status CheckBlockBytes(const CacheLayout& layout, uint32_t tokens_per_block) {
  const uint64_t least = std::max(kLeastBlockBytes, kLeastTokenBytes * tokens_per_block);
  for (const WindowLayout& window : layout.windows()) {
    if (window.block_bytes() >= least) continue;
    return InvalidArgument(absl::StrCat("layers: a block of a window has ", window.block_bytes(),
                                        " bytes; it needs at least ", least));
  }
  return absl::OkStatus();
}

CacheSpec SpecOf(const OpenCacheCall& call) {
  return {.name = call.name,
          .model_fingerprint = call.identity.Text(),
          .tokens_per_block = call.tokens_per_block,
          .layers = call.layers};
}

// How an open cache and a requested one differ; "" if they are the same.
std::string Difference(const OpenCacheCall& there, const OpenCacheCall& asked) {
  const CacheIdentity& a = there.identity;
  const CacheIdentity& b = asked.identity;
  if (!(a == b)) return absl::StrCat("its identity is ", a.Text(), ", not ", b.Text());
  if (there.tokens_per_block != asked.tokens_per_block) {
    return absl::StrCat("its blocks have ", Counted(there.tokens_per_block, "token"), ", not ",
                        asked.tokens_per_block);
  }
  if (there.layers != asked.layers) return "its layers differ";
  return "";
}

// The sessions of a cache's clients. The exchange's own session does not count.
struct ClientSessions {
  bool any = false;    // Open or quarantined ones.
  uint64_t ended = 0;  // Since the cache was opened.
};

ClientSessions SessionsOf(ServedCache& cache) {
  const SharedManager& manager = cache.manager();
  const size_t own = cache.parts().exchange->has_session() ? 1 : 0;
  return manager.Read([&](const BlockManager& core) {
    const auto& ended = core.endings().counters().ended;
    return ClientSessions{
        .any = core.lists().Sessions(SessionId(0), own + 1, manager.now()).size() > own ||
               !core.endings().QuarantinedSessions(SessionId(0), 1).empty(),
        .ended = std::accumulate(ended.begin(), ended.end(), uint64_t{0})};
  });
}

// The file that lists clients' caches for the next daemon. It lies on the disk if the configuration
// has one, because a disk outlives a reboot; else next to the shared memory of a warm restart. None
// without both.
std::optional<BroughtCachesFile> FileOf(const Config& config) {
  if (!config.memory.disk.path.empty()) {
    return BroughtCachesFile(absl::StrCat(config.memory.disk.path, "/caches.json"));
  }
  if (!config.memory.warm_restart) return std::nullopt;
  return BroughtCachesFile(absl::StrCat("/dev/shm/pagoda-", AddressHash(config), "-caches"));
}

// The number of the client's cache that a file of shared memory belongs to. None if it belongs to
// no client's cache at this daemon's addresses. InstanceName makes the names.
std::optional<uint32_t> CacheNumberIn(absl::string_view file, const std::string& address_hash) {
  if (!absl::ConsumePrefix(&file, "pagoda-")) return std::nullopt;
  const size_t hash = file.rfind(absl::StrCat("-", address_hash, "-"));
  if (hash == absl::string_view::npos) return std::nullopt;
  const absl::string_view rest = file.substr(hash + address_hash.size() + 2);
  uint32_t number = 0;
  if (!absl::SimpleAtoi(rest.substr(0, rest.find('-')), &number)) return std::nullopt;
  return number;
}

// Removes the memory of clients' caches that a killed daemon left and that will not be reopened.
// The memory's names contain the cache's number, which no later cache gets.
void RemoveStrays(const std::string& address_hash, const BroughtCaches& remembered) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string file = entry.path().filename().string();
    const std::optional<uint32_t> number = CacheNumberIn(file, address_hash);
    const bool is_remembered =
        std::any_of(remembered.caches.begin(), remembered.caches.end(),
                    [&](const BroughtCache& cache) { return cache.number == number; });
    if (!number.has_value() || is_remembered || absl::EndsWith(file, ".lock")) continue;
    if (const absl::Status status = SharedMemory::RemoveLeftover(absl::StrCat("/", file));
        !status.ok()) {
      Log(LogLevel::kWarning, absl::StrCat("cannot remove the memory of an earlier run's cache: ",
                                           std::string(status.message())));
    }
  }
}

}  // namespace

absl::Status NoMemoryForCaches() {
  return MakeError(Reason::kOutOfMemory,
                   "the daemon has no memory for clients' caches: start it with --memory, or with "
                   "a section memory in its configuration");
}

CacheOpener::CacheOpener(Options options)
    : options_(std::move(options)),
      budget_(options_.config, *options_.tenants),
      file_(FileOf(options_.config)),
      jobs_(kMaxWaiting, options_.tenants->size() + 1) {}

CacheOpener::~CacheOpener() { Stop(absl::InfinitePast()); }

absl::Status CacheOpener::Start() {
  if (options_.config.own_cache) {
    absl::StatusOr<std::unique_ptr<ServedCache>> own =
        ServedCache::Create({.config = options_.config,
                             .spec = std::nullopt,
                             .identity = std::nullopt,
                             .tenants = options_.tenants,
                             .supervisor = options_.supervisor,
                             .sources = options_.sources,
                             .peers = options_.peers,
                             .start_time = options_.start_time});
    if (!own.ok()) return own.status();
    own_ = *std::move(own);
    options_.directory->Add(PartsOf(own_));
  }
  if (!options_.config.memory.any()) return absl::OkStatus();
  BroughtCaches remembered;
  if (file_.has_value()) remembered = ReadRemembered();
  RemoveStrays(AddressHash(options_.config), remembered);
  OpenRemembered(remembered);
  return thread_.Start("pagoda-opener", [this] { Run(); });
}

absl::Status CacheOpener::Reopen(const BroughtCache& brought) {
  TenantId tenant = kDefaultTenant;
  if (!brought.tenant.empty()) {
    const absl::StatusOr<TenantId> found = options_.tenants->Find(brought.tenant);
    if (!found.ok()) return found.status();
    tenant = *found;
  }
  OpenCacheCall call = brought.call;
  if (absl::Status status = CheckCall(call); !status.ok()) return status;
  const absl::StatusOr<MemoryBytes> share = TakeShare(&call, tenant);
  if (!share.ok()) return share.status();
  const absl::StatusOr<CachePtr> made = Make(brought, tenant, *share);
  if (made.ok()) NoteSession(brought.number);  // It holds what earlier sessions cached.
  return made.status();
}

void CacheOpener::Keep() {
  if (own_ != nullptr) own_->Keep();
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [number, brought] : brought_) brought.cache->Keep();
    keeps_ = true;
  }
  if (file_.has_value())
    Submit(operators(), [this](const absl::Status& status) {
      if (status.ok()) Remember();
    });
}

void CacheOpener::Submit(size_t party, Job job) {
  absl::Status refused;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) {
      refused = Draining();
    } else if (jobs_.Add(party, job)) {
      return;
    } else {
      refused = MakeError(
          Reason::kTooManyCalls,
          absl::StrCat("already waiting: ", Counted(jobs_.of(party), "call"), " of this caller"));
    }
  }
  job(refused);
}

void CacheOpener::OpenLater(OpenCacheCall call, TenantId tenant, OpenDone done) {
  if (!options_.config.memory.any()) return done(NoMemoryForCaches());
  Submit(tenant.value(),
         [this, call = std::move(call), tenant, done = std::move(done)](
             const absl::Status& status) { done(status.ok() ? Open(call, tenant) : status); });
}

void CacheOpener::DropLater(std::string name, bool force, DropDone done) {
  if (!options_.config.memory.any()) return done(Drop(name, force));
  Submit(operators(),
         [this, name = std::move(name), force, done = std::move(done)](const absl::Status& status) {
           done(status.ok() ? Drop(name, force) : absl::StatusOr<uint64_t>(status));
         });
}

void CacheOpener::Run() {
  absl::Time next_sweep = absl::Now() + kSweepInterval;
  while (true) {
    Job job;
    bool stopping = false;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !jobs_.empty();
      };
      const absl::Time until = retired_.empty() ? next_sweep : absl::Now() + kRetiredInterval;
      mutex_.AwaitWithDeadline(absl::Condition(&ready), until);
      stopping = stopping_;
      if (!jobs_.empty()) {
        job = jobs_.Take();
      } else if (stopping) {
        return;
      }
    }
    if (job != nullptr) job(stopping ? Draining() : absl::OkStatus());
    const absl::Time now = absl::Now();
    if (now < next_sweep && retired_.empty()) continue;
    Sweep(now);
    next_sweep = now + kSweepInterval;
  }
}

absl::StatusOr<CacheOpener::Opened> CacheOpener::Open(OpenCacheCall call, TenantId tenant) {
  if (absl::Status status = CheckCall(call); !status.ok()) return status;
  absl::StatusOr<CachePtr> same = FindSame(call, tenant);
  if (!same.ok()) return same.status();
  if (*same != nullptr) return Opened{*std::move(same), false};
  const absl::StatusOr<CacheLayout> layout = CacheLayout::Create(SpecOf(call));
  if (!layout.ok()) return layout.status();
  if (absl::Status status = CheckBlockBytes(*layout, call.tokens_per_block); !status.ok())
    return status;
  if (absl::Status status = CheckShare(tenant); !status.ok()) return status;
  const absl::StatusOr<MemoryBytes> share = TakeShare(&call, tenant);
  if (!share.ok()) return share.status();
  absl::StatusOr<CachePtr> made =
      Make({.number = next_number_,
            .tenant = tenant == kDefaultTenant ? "" : (*options_.tenants)[tenant].name,
            .call = std::move(call)},
           tenant, *share);
  if (!made.ok()) return made.status();
  if (keeps_) Remember();
  return Opened{*std::move(made), true};
}

absl::StatusOr<CachePtr> CacheOpener::FindSame(const OpenCacheCall& call, TenantId tenant) {
  if (own_ != nullptr && own_->parts().name == call.name) {
    return Mismatch(call.name, "it is the cache of the daemon's configuration");
  }
  absl::MutexLock lock(&mutex_);
  for (auto& [number, brought] : brought_) {
    const OpenCacheCall& there = brought.as_opened.call;
    if (there.name != call.name) continue;
    if (brought.tenant != tenant) return Mismatch(call.name, "it belongs to another tenant");
    const std::string difference = Difference(there, call);
    if (!difference.empty()) return Mismatch(call.name, difference);
    brought.unused_since.reset();  // Gives the client time to open a session.
    return PartsOf(brought.cache);
  }
  return CachePtr();
}

absl::Status CacheOpener::CheckShare(TenantId tenant) const {
  absl::MutexLock lock(&mutex_);
  FairCount shares(options_.config.memory.max_caches, options_.tenants->size());
  // Caches of an earlier run can exceed a share.
  for (const auto& [number, brought] : brought_) shares.Overdraw(brought.tenant.value(), 1);
  if (shares.left(tenant.value()) > 0) return absl::OkStatus();
  return MakeError(
      Reason::kTooManyCaches,
      absl::StrCat("open: ", Counted(shares.of(tenant.value()), "cache"), " of this tenant, and ",
                   brought_.size(), " in all; the share of memory.max_caches is used up: use an ",
                   "open cache, or ask an operator to drop one"));
}

absl::StatusOr<MemoryBytes> CacheOpener::TakeShare(OpenCacheCall* call, TenantId tenant) {
  MemoryBytes share;
  for (TierWish& wish : call->tiers) {
    if (wish.bytes == 0) {
      const uint64_t free = budget_.FreeFor(tenant, wish.medium);
      // Divides first, because the product of all bytes and 1,000 could overflow 64 bits.
      wish.bytes = free / 1000 * wish.free_permille + free % 1000 * wish.free_permille / 1000;
      if (wish.bytes == 0) {
        return MakeError(Reason::kOutOfMemory,
                         absl::StrCat("no memory for clients' caches is free: ",
                                      std::string(MediumName(wish.medium))));
      }
      wish.free_permille = 0;
    }
    share[wish.medium] += wish.bytes;
  }
  if (absl::Status status = budget_.Take(tenant, share); !status.ok()) return status;
  return share;
}

ServedCache::Plan CacheOpener::PlanOf(const BroughtCache& brought, TenantId tenant) const {
  const OpenCacheCall& call = brought.call;
  ServedCache::Plan plan{.config = options_.config,
                         .spec = SpecOf(call),
                         .identity = call.identity,
                         .number = brought.number,
                         .reservation = options_.config.memory.reservation,
                         .tenant = tenant,
                         .tenants = options_.tenants,
                         .supervisor = options_.supervisor,
                         .sources = options_.sources,
                         .peers = options_.peers,
                         .start_time = SharedManager::Now()};
  const bool on_gpu = call.tiers.front().medium == Medium::kGpu;
  Config::Cache cache;
  cache.name = call.name;
  cache.tokens_per_block = call.tokens_per_block;
  cache.primary_memory = on_gpu ? PrimaryMemory::kCuda : PrimaryMemory::kHost;
  cache.device = options_.config.cache.device;
  cache.huge_pages = options_.config.cache.huge_pages;
  cache.pin_lower = options_.config.cache.pin_lower;
  cache.offload.copy_threads = options_.config.cache.offload.copy_threads;
  if (!call.eviction_policy.empty()) cache.eviction_policy = call.eviction_policy;
  // GPU memory ends with the daemon.
  cache.warm_restart = options_.config.memory.warm_restart && !on_gpu;
  const Config::Memory::Disk& disk = options_.config.memory.disk;
  for (const TierWish& wish : call.tiers) {
    Config::Cache::TierConfig& tier = cache.tiers.emplace_back();
    tier.name = std::string(MediumName(wish.medium));
    tier.medium = wish.medium;
    tier.size = ByteBudget{wish.bytes};
    tier.min_priority = 0;
    if (wish.medium != Medium::kDisk) continue;
    tier.path = absl::StrCat(disk.path, "/", call.name, ".", brought.number);
    tier.write_bytes_per_second = disk.write_bytes_per_second;
  }
  plan.config.cache = std::move(cache);
  plan.config.engine = Config::Engine();
  // Quotas in blocks apply to the configuration's cache only. The budget limits a client's cache.
  for (Config::Tenant& one : plan.config.tenants) {
    one.quota.tiers.clear();
    one.quota.primary_blocks = 0;
  }
  return plan;
}

absl::StatusOr<CachePtr> CacheOpener::Make(BroughtCache brought, TenantId tenant,
                                           MemoryBytes share) {
  ServedCache::Plan plan = PlanOf(brought, tenant);
  const Config::Cache::TierConfig last = plan.config.cache.tiers.back();
  std::error_code ignored;
  const bool folder_was_there = last.on_disk() && std::filesystem::exists(last.path, ignored);
  absl::StatusOr<std::unique_ptr<ServedCache>> made = ServedCache::Create(std::move(plan));
  if (!made.ok()) {
    if (last.on_disk() && !folder_was_there) std::filesystem::remove_all(last.path, ignored);
    budget_.GiveBack(tenant, share);
    return made.status();
  }
  // The bytes that fill no whole block return to the budget.
  MemoryBytes rest = share;
  for (const CacheTierBytes& tier : (*made)->parts().tier_bytes) {
    const uint64_t used = std::min(rest[tier.medium], tier.bytes);
    rest[tier.medium] -= used;
  }
  budget_.GiveBack(tenant, rest);
  for (const Medium medium : kAllMedia) share[medium] -= rest[medium];
  const uint32_t number = brought.number;
  next_number_ = std::max(next_number_, number + 1);
  std::shared_ptr<ServedCache> cache = *std::move(made);
  if (keeps_) cache->Keep();
  const CachePtr parts = PartsOf(cache);
  Log(LogLevel::kInfo,
      absl::StrCat("cache ", brought.call.name, " is open: ", brought.call.identity.Text()));
  {
    absl::MutexLock lock(&mutex_);
    brought_.emplace(number, Brought{.as_opened = std::move(brought),
                                     .cache = std::move(cache),
                                     .tenant = tenant,
                                     .share = share,
                                     .unused_since = std::nullopt});
  }
  options_.directory->Add(parts);
  return parts;
}

absl::StatusOr<uint64_t> CacheOpener::Drop(const std::string& name, bool force) {
  if (own_ != nullptr && own_->parts().name == name) {
    return InvalidArgument(
        absl::StrCat("the cache '", name,
                     "' is the cache of the daemon's configuration; it ends with the daemon"));
  }
  uint32_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = std::find_if(brought_.begin(), brought_.end(), [&](const auto& one) {
      return one.second.as_opened.call.name == name;
    });
    if (found == brought_.end()) {
      return MakeError(Reason::kUnknownCache, absl::StrCat("there is no cache '", name, "'"));
    }
    if (!force && SessionsOf(*found->second.cache).any) {
      return MakeError(Reason::kCacheInUse,
                       absl::StrCat("the cache '", name,
                                    "' has sessions, or quarantined slots that dead clients could "
                                    "still write; force ends them"));
    }
    number = found->first;
  }
  return Retire(number);
}

uint64_t CacheOpener::Retire(uint32_t number) {
  Brought brought;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = brought_.find(number);
    brought = std::move(found->second);
    brought_.erase(found);
  }
  options_.directory->Remove(number);
  const CacheParts& parts = brought.cache->parts();
  const absl::Status dropped = CacheDropped(parts);
  brought.cache->EndExchange();
  uint64_t ended = 0;
  // A call that found the cache earlier can still open a session; its client then finds the cache
  // gone.
  SessionId from(0);
  constexpr size_t kPiece = 256;
  while (true) {
    const std::vector<SessionRow> rows = parts.manager->Read([&](const BlockManager& core) {
      return core.lists().Sessions(from, kPiece, parts.manager->now());
    });
    for (const SessionRow& row : rows) {
      if (parts.manager->EndSession(row.session).ok()) ++ended;
    }
    if (rows.size() < kPiece) break;
    from = SessionId(rows.back().session.value() + 1);
  }
  parts.manager->RemovePools();
  parts.streams->EndWhenSent(dropped);
  if (options_.end_waits != nullptr) options_.end_waits(parts, dropped);
  Log(LogLevel::kInfo, absl::StrCat("cache ", parts.name, " is dropped; sessions ended: ", ended));
  brought.retired = absl::Now();
  retired_.push_back(std::move(brought));
  if (keeps_) Remember();
  return ended;
}

void CacheOpener::UpdateUse(uint32_t number) {
  std::shared_ptr<ServedCache> cache;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = brought_.find(number);
    if (found == brought_.end()) return;
    cache = found->second.cache;
  }
  // Without the lock: the cache's core can be busy for long.
  const ClientSessions sessions = SessionsOf(*cache);
  absl::MutexLock lock(&mutex_);
  const auto found = brought_.find(number);
  if (found == brought_.end()) return;
  Brought& brought = found->second;
  if (sessions.any || sessions.ended > brought.ended_sessions) {
    brought.ended_sessions = std::max(brought.ended_sessions, sessions.ended);
    brought.had_session = true;
    brought.unused_since.reset();
  }
  if (!sessions.any && !brought.unused_since.has_value()) brought.unused_since = absl::Now();
}

void CacheOpener::Sweep(absl::Time now) {
  std::vector<uint32_t> numbers;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [number, brought] : brought_) numbers.push_back(number);
  }
  for (const uint32_t number : numbers) UpdateUse(number);
  std::vector<uint32_t> unused;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [number, brought] : brought_) {
      if (brought.unused_since.has_value() && now - *brought.unused_since >= LingerOf(brought)) {
        unused.push_back(number);
      }
    }
  }
  for (const uint32_t number : unused) Retire(number);
  // The directory no longer has retired caches, so a use count of 1 means that no call holds them.
  for (size_t i = 0; i < retired_.size();) {
    Brought& brought = retired_[i];
    if (brought.cache.use_count() > 1) {
      if (now - brought.retired > kLastWords) brought.cache->parts().streams->Cut();
      ++i;
      continue;
    }
    Bury(std::move(brought));
    retired_.erase(retired_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void CacheOpener::Bury(Brought retired) {
  retired.cache->Stop(absl::InfinitePast());
  const ServedCache::Remains remains = retired.cache->remains();
  retired.cache.reset();
  ServedCache::Remove(remains);
  budget_.GiveBack(retired.tenant, retired.share);
}

std::optional<CacheOpener::Unused> CacheOpener::UnusedFor(uint32_t number) {
  UpdateUse(number);
  absl::MutexLock lock(&mutex_);
  const auto found = brought_.find(number);
  if (found == brought_.end()) return std::nullopt;
  if (!found->second.unused_since.has_value()) return std::nullopt;
  const absl::Duration since = absl::Now() - *found->second.unused_since;
  return Unused{.since = std::max(since, absl::ZeroDuration()),
                .ends_in = std::max(LingerOf(found->second) - since, absl::ZeroDuration())};
}

void CacheOpener::Maintain() {
  if (own_ != nullptr) own_->Maintain();
  std::vector<std::shared_ptr<ServedCache>> caches;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [number, brought] : brought_) caches.push_back(brought.cache);
  }
  for (const std::shared_ptr<ServedCache>& cache : caches) cache->Maintain();
}

void CacheOpener::Stop(absl::Time disk_end) {
  if (thread_.joinable()) {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.Join();
  }
  for (Brought& brought : std::exchange(retired_, {})) Bury(std::move(brought));
  if (own_ != nullptr) own_->Stop(disk_end);
  absl::MutexLock lock(&mutex_);
  for (auto& [number, brought] : brought_) brought.cache->Stop(disk_end);
}

}  // namespace pagoda::server
