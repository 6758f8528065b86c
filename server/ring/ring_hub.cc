#include "server/ring/ring_hub.h"

#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/fair_count.h"
#include "server/directory/cache_parts.h"
#include "wire/ring/ring_layout.h"
#include "wire/ring/ring_wake.h"

namespace pagoda::server {
namespace {

uint32_t RingBytes(uint32_t wanted) {
  if (wanted == 0) return ring::kDefaultBytes;
  return std::bit_ceil(std::clamp(wanted, ring::kMinBytes, ring::kMaxBytes));
}

absl::Status CannotMake(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the daemon cannot make ", what, ": ", std::strerror(errno)));
}

}  // namespace

RingHub::Limits RingHub::DefaultLimits() {
  Limits limits;
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    limits.pairs = std::min<size_t>(limits.pairs, files.rlim_cur / 8);
  }
  return limits;
}

RingHub::RingHub(Limits limits, const CacheDirectory* caches, size_t num_tenants,
                 RpcMetrics* metrics)
    : limits_(limits),
      num_tenants_(num_tenants),
      caches_(caches),
      metrics_(metrics),
      slots_(limits.pairs, num_tenants) {}

RingHub::~RingHub() { Stop(absl::CancelledError("the daemon has ended")); }

absl::StatusOr<RingHub::Opened> RingHub::Open(const BatchRun::Context& context, SessionRef session,
                                              uint32_t wanted_bytes) {
  Opened opened;
  opened.bytes = RingBytes(wanted_bytes);
  FileDescriptor own_wake;
  std::unique_ptr<ring::Memory> memory = ring::Memory::Create(opened.bytes, &opened.memory);
  if (memory == nullptr) return CannotMake("the rings' memory");
  if (!ring::MakeWakeSockets(&own_wake, &opened.wake)) return CannotMake("a pair of sockets");
  PairPtr before;
  {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return MakeError(Reason::kDraining, "the daemon is shutting down");
    ForgetEnded();
    if (!HasRoom(context.tenant, ring::MemoryBytes(opened.bytes))) {
      return absl::ResourceExhaustedError("the rings of this tenant have reached their memory");
    }
    absl::StatusOr<StreamSlots::Slot> slot = slots_.Take(context.tenant);
    if (!slot.ok()) return slot.status();
    const absl::StatusOr<RingPoller*> poller = PollerOf(session.id);
    if (!poller.ok()) return poller.status();
    auto pair = std::make_shared<RingPair>(context, caches_, session, std::move(memory),
                                           std::move(own_wake), metrics_, *std::move(slot));
    before = std::exchange(pairs_[session.id], pair);
    if (before != nullptr) replaced_.push_back(before);
    (*poller)->Add(std::move(pair));
  }
  if (before != nullptr) {
    before->End(absl::AbortedError("the session has asked for another pair of rings"));
  }
  return opened;
}

void RingHub::ForgetEnded() {
  absl::erase_if(pairs_, [](const auto& entry) { return entry.second->ended(); });
  std::erase_if(replaced_, [](const PairPtr& pair) { return pair->ended(); });
}

bool RingHub::HasRoom(TenantId tenant, uint64_t bytes) const {
  FairCount count(limits_.bytes, num_tenants_);
  const auto add = [&](const RingPair& pair) {
    count.Overdraw(pair.tenant().value(), pair.memory_bytes());
  };
  for (const auto& [id, pair] : pairs_) add(*pair);
  for (const PairPtr& pair : replaced_) add(*pair);
  return bytes <= count.left(tenant.value());
}

absl::StatusOr<RingPoller*> RingHub::PollerOf(SessionId session) {
  std::unique_ptr<RingPoller>& poller = pollers_[CacheNumberOf(session)];
  if (poller == nullptr) {
    absl::StatusOr<std::unique_ptr<RingPoller>> started = RingPoller::Start();
    if (!started.ok()) {
      pollers_.erase(CacheNumberOf(session));
      return started.status();
    }
    poller = *std::move(started);
  }
  return poller.get();
}

std::vector<RingHub::PairPtr> RingHub::All() const {
  absl::MutexLock lock(&mutex_);
  std::vector<PairPtr> all = replaced_;
  for (const auto& [id, pair] : pairs_) all.push_back(pair);
  return all;
}

void RingHub::EndIf(const std::function<absl::Status(SessionRef)>& check) {
  for (const PairPtr& pair : All()) {
    const absl::Status status = check(pair->session());
    if (!status.ok()) pair->End(status);
  }
}

void RingHub::Sweep() {
  std::vector<std::unique_ptr<RingPoller>> idle;  // They end without the lock.
  absl::MutexLock lock(&mutex_);
  ForgetEnded();
  for (auto it = pollers_.begin(); it != pollers_.end();) {
    if (it->second->size() == 0) {
      idle.push_back(std::move(it->second));
      it = pollers_.erase(it);
    } else {
      ++it;
    }
  }
}

void RingHub::Stop(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  for (const PairPtr& pair : All()) pair->EndNow(reason);
  decltype(pollers_) pollers;  // They end without the lock.
  absl::MutexLock lock(&mutex_);
  pairs_.clear();
  replaced_.clear();
  pollers.swap(pollers_);
}

bool RingHub::Has(SessionId session) const {
  absl::MutexLock lock(&mutex_);
  const auto found = pairs_.find(session);
  return found != pairs_.end() && !found->second->ended();
}

size_t RingHub::size() const {
  const std::vector<PairPtr> all = All();
  return std::count_if(all.begin(), all.end(), [](const PairPtr& pair) { return !pair->ended(); });
}

}  // namespace pagoda::server
