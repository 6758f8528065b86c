#include "tests/manager/disk/disk_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pagoda {
namespace {

constexpr uint32_t kPaths = 40;
constexpr uint32_t kFileSlots[] = {10, 16};

// The same in the processes that a test forks, so that a process can take over what a killed one
// left.
const std::string& Instance() {
  static const std::string instance = absl::StrCat("test-", getpid(), "-disk");
  return instance;
}
[[maybe_unused]] const std::string& kMadeBeforeAnyFork = Instance();

template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << "\n";
    std::abort();
  }
  return *std::move(value);
}

std::vector<DiskPath> AllPaths() {
  std::mt19937_64 random(7);
  const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
  std::vector<DiskPath> paths = {{.name_space = 0}, {.name_space = 1}, {.name_space = 2}};
  std::set<std::string> names;
  while (paths.size() < kPaths + 3) {
    DiskPath path = paths[below(static_cast<uint32_t>(paths.size()))];
    const bool is_tail =
        !path.tokens.empty() && path.tokens.back().size() < DiskCache::kTokensPerBlock;
    if (is_tail || path.tokens.size() == 5) continue;
    const uint32_t count = below(5) == 0 ? 3 : DiskCache::kTokensPerBlock;
    path.tokens.emplace_back(count, below(3));
    if (names.insert(path.Name()).second) paths.push_back(std::move(path));
  }
  paths.erase(paths.begin(), paths.begin() + 3);  // The namespaces themselves.
  return paths;
}

const DiskPath& PathOf(const std::string& name) {
  for (const DiskPath& path : DiskCache::Paths()) {
    if (path.Name() == name) return path;
  }
  std::abort();
}

}  // namespace

DiskPath DiskPath::Parent() const {
  DiskPath parent = *this;
  parent.tokens.pop_back();
  return parent;
}

NamespaceKey DiskPath::Key() const {
  if (name_space == 0) return {};
  if (name_space == 1) return {.cache_salt = "salt", .tenant = "tenant"};
  return {.lora_id = name_space};
}

std::string DiskPath::Name() const {
  std::string name = absl::StrCat(name_space);
  for (const std::vector<TokenId>& block : tokens) {
    absl::StrAppend(&name, "/", absl::StrJoin(block, ","));
  }
  return name;
}

std::vector<std::byte> BytesOf(const DiskPath& path, uint32_t window_index) {
  static const CacheLayout layout = DiskCache::Layout();
  std::mt19937_64 random(std::hash<std::string>{}(path.Name()) + window_index);
  std::vector<std::byte> bytes(layout.windows()[window_index].block_bytes());
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

CacheLayout DiskCache::Layout() {
  return *CacheLayout::Create(
      {.name = "cold",
       .model_fingerprint = "model",
       .tokens_per_block = kTokensPerBlock,
       .layers = {{.window = WindowSize(64), .num_kv_heads = 1, .head_dim = 16},
                  {.num_kv_heads = 4, .head_dim = 16},
                  {.num_kv_heads = 1, .head_dim = 24}}});
}

DiskFiles::Options DiskCache::FileOptions(const std::string& directory) {
  return {.directory = directory,
          .num_slots = {kFileSlots[0], kFileSlots[1]},
          .engine = EngineKind::kThreads,
          .caching = SlabFile::Caching::kBuffered,
          .depth = 6};
}

const std::vector<DiskPath>& DiskCache::Paths() {
  static const std::vector<DiskPath> paths = AllPaths();
  return paths;
}

DiskCache::DiskCache(uint64_t seed, Options options)
    : random_(seed),
      options_(std::move(options)),
      pools_(
          Must(PoolSet::Create(Layout(), {.tiers = {{kMemorySlots, kMemorySlots}}}, Instance()))),
      windows_(2),
      busy_slots_(2),
      busy_memory_(2),
      model_({std::vector<std::optional<Written>>(kFileSlots[0]),
              std::vector<std::optional<Written>>(kFileSlots[1])}) {
  std::unique_ptr<DiskFiles> files = Must(DiskFiles::Open(Layout(), options_.files));
  recovery_ = RecoverDisk(*files, {.tier = Tier(1)});
  Restore();
  carrier_ = std::make_unique<DiskCarrier>(pools_.get(), std::move(files), recovery_.ledgers,
                                           options_.carrier,
                                           [this](Lane lane, Ticket ticket, absl::Status status) {
                                             const absl::MutexLock lock(&mutex_);
                                             reports_.emplace_back(lane, ticket, std::move(status));
                                           });
}

void DiskCache::Restore() {
  for (const auto& [where, slot] : Recovered()) {
    windows_[where.first][where.second] = {.path = PathOf(where.second), .slot = slot};
  }
}

DiskContent DiskCache::Recovered() const {
  DiskContent content;
  for (uint32_t w = 0; w < recovery_.windows.size(); ++w) {
    std::vector<DiskPath> paths;
    for (const RecoveredBlock& block : recovery_.windows[w].blocks) {
      DiskPath path;
      if (block.parent == RecoveredBlock::kRoot) {
        while (path.Key() != block.name_space) ++path.name_space;
      } else {
        path = paths.at(block.parent);
      }
      path.tokens.push_back(block.tokens);
      content[{w, path.Name()}] = block.slot.slot.value();
      paths.push_back(std::move(path));
    }
  }
  return content;
}

void DiskCache::SetModel(Files files, uint64_t last_number) {
  model_ = std::move(files);
  last_number_ = last_number;
}

DiskContent DiskCache::Recoverable(const Files& files) {
  DiskContent content;
  for (uint32_t w = 0; w < files.size(); ++w) {
    std::map<uint64_t, uint64_t> parents;  // The parent's write number by the block's.
    for (const std::optional<Written>& one : files[w]) {
      if (one.has_value()) parents[one->number] = one->parent;
    }
    std::map<std::string, uint64_t> latest;
    for (uint32_t slot = 0; slot < files[w].size(); ++slot) {
      const std::optional<Written>& one = files[w][slot];
      if (!one.has_value()) continue;
      uint64_t number = one->number;
      while (parents.contains(number)) number = parents.at(number);
      if (number != 0 || latest[one->name] > one->number) continue;
      latest[one->name] = one->number;
      content[{w, one->name}] = slot;
    }
  }
  return content;
}

// ---- Orders ----

std::optional<uint32_t> DiskCache::FreeSlot(uint32_t w) {
  std::set<uint32_t> used = busy_slots_[w];
  for (const auto& [name, entry] : windows_[w]) used.insert(entry.slot);
  if (used.size() == kFileSlots[w]) return std::nullopt;
  uint32_t slot = Random(kFileSlots[w]);
  while (used.contains(slot)) slot = (slot + 1) % kFileSlots[w];
  return slot;
}

std::optional<uint32_t> DiskCache::FreeMemory(uint32_t w) {
  for (uint32_t slot = 0; slot < kMemorySlots; ++slot) {
    if (!busy_memory_[w].contains(slot)) return slot;
  }
  return std::nullopt;
}

bool DiskCache::IsBelow(const Entry& entry, const std::string& name) const {
  const std::string own = entry.path.Name();
  return own == name || own.rfind(name + "/", 0) == 0;
}

void DiskCache::Fill(uint32_t w, uint32_t memory, const std::vector<std::byte>& bytes) {
  size_t begin = 0;
  for (uint32_t p = 0; p < pools_->layout().windows()[w].pools.size(); ++p) {
    const absl::Span<std::byte> to = pools_->pool(w, p).slot(SlotIndex(memory));
    std::memcpy(to.data(), &bytes[begin], to.size());
    begin += to.size();
  }
}

std::vector<std::byte> DiskCache::Held(uint32_t w, uint32_t memory) {
  std::vector<std::byte> held;
  for (uint32_t p = 0; p < pools_->layout().windows()[w].pools.size(); ++p) {
    const absl::Span<const std::byte> bytes = pools_->pool(w, p).slot(SlotIndex(memory));
    held.insert(held.end(), bytes.begin(), bytes.end());
  }
  return held;
}

void DiskCache::Step() {
  const uint32_t w = Random(2);
  switch (Random(16)) {
    case 0:
      if (Random(3) == 0) Erase(w);
      return;
    case 1:
      if (Random(8) == 0) Reset(w);
      return;
    case 2:
    case 3:
    case 4:
      return Drop(w);
    case 5:
    case 6: {
      if (windows_[w].empty()) return;
      const auto entry =
          std::next(windows_[w].begin(), Random(static_cast<uint32_t>(windows_[w].size())));
      if (!entry->second.is_busy) Fetch(w, entry->second);
      return;
    }
    default:
      return Backup(w);
  }
}

void DiskCache::Backup(uint32_t w) {
  std::vector<const DiskPath*> possible;
  for (const DiskPath& path : Paths()) {
    const bool is_first = path.tokens.size() == 1;
    if (windows_[w].contains(path.Name())) continue;
    if (is_first || windows_[w].contains(path.Parent().Name())) possible.push_back(&path);
  }
  const std::optional<uint32_t> slot = FreeSlot(w), memory = FreeMemory(w);
  if (possible.empty() || !slot.has_value() || !memory.has_value()) return;
  const DiskPath& path = *possible[Random(static_cast<uint32_t>(possible.size()))];
  const std::string name = path.Name();
  if (options_.on_write) options_.on_write(w, name);
  Order order = {.lane = Lane::kBackup,
                 .ticket = Ticket(++backup_ticket_),
                 .window_index = w,
                 .source = {kPrimaryTier, SlotIndex(*memory)},
                 .target = {Tier(1), SlotIndex(*slot)}};
  SlotContent content{.tokens = path.tokens.back()};
  Written written = {.number = ++last_number_, .name = name};
  if (path.tokens.size() == 1) {
    content.name_space = path.Key();
  } else {
    const Entry& parent = windows_[w].at(path.Parent().Name());
    content.parent = {BlockId(1), Generation(1)};
    order.parent = SlotIndex(parent.slot);
    const std::optional<Written>& above = model_[w][parent.slot];
    written.parent = above.has_value() ? above->number : ~uint64_t{0};
  }
  order.content = std::make_shared<const SlotContent>(std::move(content));
  model_[w][*slot] = std::move(written);
  windows_[w][name] = {.path = path, .slot = *slot, .is_busy = true};
  busy_slots_[w].insert(*slot);
  busy_memory_[w].insert(*memory);
  orders_[{Lane::kBackup, order.ticket}] = {.window_index = w, .name = name, .memory = *memory};
  const bool waits = Random(3) == 0;
  std::vector<std::byte> bytes = BytesOf(path, w);
  if (!waits) {
    Fill(w, *memory, bytes);
    return carrier_->Submit({order});
  }
  // A copy into the memory's slot is still under way.
  std::vector<std::byte> before(bytes.size(), std::byte{0x5a});
  Fill(w, *memory, before);
  order.after = {Ticket(++memory_ticket_)};
  carrier_->Submit({order});
  Fill(w, *memory, bytes);
  carrier_->MemoryCopiesDone(Ticket(memory_ticket_));
}

void DiskCache::Fetch(uint32_t w, const Entry& entry) {
  const std::optional<uint32_t> memory = FreeMemory(w);
  if (!memory.has_value()) return;
  const Ticket ticket(++fetch_ticket_);
  windows_[w].at(entry.path.Name()).is_busy = true;
  busy_slots_[w].insert(entry.slot);
  busy_memory_[w].insert(*memory);
  orders_[{Lane::kFetch, ticket}] = {
      .window_index = w, .name = entry.path.Name(), .memory = *memory};
  carrier_->Submit({Order{.lane = Lane::kFetch,
                          .ticket = ticket,
                          .window_index = w,
                          .source = {Tier(1), SlotIndex(entry.slot)},
                          .target = {kPrimaryTier, SlotIndex(*memory)}}});
}

// A block with all blocks below it.
void DiskCache::Drop(uint32_t w) {
  if (windows_[w].empty()) return;
  const std::string name =
      std::next(windows_[w].begin(), Random(static_cast<uint32_t>(windows_[w].size())))->first;
  for (const auto& [other, entry] : windows_[w]) {
    if (entry.is_busy && IsBelow(entry, name)) return;
  }
  Forget(w, name);
}

// The same, and everything that was dropped before.
void DiskCache::Erase(uint32_t w) {
  Order erase = {.lane = Lane::kBackup,
                 .kind = Order::Kind::kErase,
                 .ticket = Ticket(backup_ticket_ + 1),
                 .window_index = w};
  std::set<std::string> left;
  if (!windows_[w].empty()) {
    const std::string name =
        std::next(windows_[w].begin(), Random(static_cast<uint32_t>(windows_[w].size())))->first;
    for (const auto& [other, entry] : windows_[w]) {
      if (!IsBelow(entry, name)) continue;
      if (entry.is_busy) return;
      erase.slots.push_back(SlotIndex(entry.slot));
    }
    std::erase_if(windows_[w], [&](const auto& other) { return IsBelow(other.second, name); });
  }
  ++backup_ticket_;
  std::set<uint32_t> kept;
  for (const auto& [name, entry] : windows_[w]) {
    kept.insert(entry.slot);
    left.insert(name);
  }
  for (uint32_t slot = 0; slot < kFileSlots[w]; ++slot) {
    if (!kept.contains(slot)) model_[w][slot].reset();
  }
  Ordered order = {.window_index = w};
  for (const DiskPath& path : Paths()) {
    if (!left.contains(path.Name())) order.erased.push_back(path.Name());
  }
  for (const SlotIndex slot : erase.slots) busy_slots_[w].insert(slot.value());
  orders_[{Lane::kBackup, erase.ticket}] = std::move(order);
  carrier_->Submit({erase});
  Settle();
}

void DiskCache::Reset(uint32_t w) {
  Settle();
  const Ticket ticket(++backup_ticket_);
  Ordered order = {.window_index = w};
  for (const DiskPath& path : Paths()) order.erased.push_back(path.Name());
  windows_[w].clear();
  std::fill(model_[w].begin(), model_[w].end(), std::nullopt);
  orders_[{Lane::kBackup, ticket}] = std::move(order);
  carrier_->Submit({Order{
      .lane = Lane::kBackup, .kind = Order::Kind::kEraseAll, .ticket = ticket, .window_index = w}});
  Settle();
}

// ---- Reports ----

void DiskCache::Settle() {
  std::vector<std::tuple<Lane, Ticket, absl::Status>> reports;
  {
    const auto all = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return reports_.size() >= orders_.size();
    };
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&all));
    reports.swap(reports_);
  }
  for (const auto& [lane, ticket, status] : reports) Settled(lane, ticket, status);
  if (!orders_.empty()) std::abort();  // Something was reported twice.
  for (std::set<uint32_t>& busy : busy_slots_) busy.clear();
  for (std::set<uint32_t>& busy : busy_memory_) busy.clear();
  for (Window& window : windows_) {
    for (auto& [name, entry] : window) entry.is_busy = false;
  }
}

void DiskCache::Settled(Lane lane, Ticket ticket, const absl::Status& status) {
  const auto it = orders_.find({lane, ticket});
  if (it == orders_.end()) std::abort();  // Reported twice, or never ordered.
  const Ordered order = std::move(it->second);
  orders_.erase(it);
  if (!status.ok() && !options_.may_fail) {
    std::cerr << status << "\n";
    std::abort();
  }
  const uint32_t w = order.window_index;
  if (order.name.empty()) {
    if (!status.ok() || !options_.on_erased) return;
    for (const std::string& name : order.erased) options_.on_erased(w, name);
    return;
  }
  if (lane == Lane::kFetch) {
    if (!status.ok()) {
      lost_.insert({w, order.name});
      if (windows_[w].contains(order.name)) Forget(w, order.name);
      return;
    }
    ++whole_;
    if (Held(w, order.memory) != BytesOf(PathOf(order.name), w)) {
      wrong_ = absl::StrCat("window ", w, ": the bytes are not those of ", order.name);
    }
    return;
  }
  if (!status.ok()) Forget(w, order.name);
}

// A block leaves, with all blocks below it.
void DiskCache::Forget(uint32_t w, const std::string& name) {
  for (auto it = windows_[w].begin(); it != windows_[w].end();) {
    if (!IsBelow(it->second, name)) {
      ++it;
      continue;
    }
    carrier_->Submit({Order{.lane = Lane::kBackup,
                            .kind = Order::Kind::kDrop,
                            .window_index = w,
                            .target = {Tier(1), SlotIndex(it->second.slot)}}});
    it = windows_[w].erase(it);
  }
}

bool DiskCache::WaitUntilIdle() {
  const bool is_durable = carrier_->WaitUntilIdle().ok();
  Settle();
  return is_durable;
}

std::string DiskCache::FetchAll() {
  Settle();
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    std::vector<std::string> names;
    for (const auto& [name, entry] : windows_[w]) names.push_back(name);
    for (const std::string& name : names) {
      const auto it = windows_[w].find(name);
      if (it != windows_[w].end()) Fetch(w, it->second);
      if (!FreeMemory(w).has_value()) Settle();
    }
    Settle();
  }
  return wrong_;
}

}  // namespace pagoda
