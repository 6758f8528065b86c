#include "server/peers/digest_index.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "events/block_key.h"
#include "pools/store/stored_value.h"

namespace pagoda::server {
namespace {

// How long the thread waits after new events, so that it wakes up less often. Callers do not wait
// for it: they read the log themselves.
constexpr absl::Duration kFollowPause = absl::Milliseconds(20);
constexpr absl::Duration kLongestWait = absl::Seconds(10);
constexpr size_t kEventsPerRead = 256;
constexpr size_t kSnapshotBlocks = 512;
constexpr size_t kSnapshotTokens = 16'384;
constexpr Revision kAbsent{0};

}  // namespace

// The blocks of one window.
class DigestIndex::Window {
 public:
  Window(const CacheInfo::Window& window, bool has_names)
      : size_(window.window), has_names_(has_names) {
    // Ids are given out in ascending order, so pages are touched only as far as they are used.
    stored_.reserve(window.all_blocks());
    digests_.reserve(window.all_blocks());
    if (has_names_) names_.reserve(window.all_blocks());
  }

  WindowSize size() const { return size_; }
  size_t blocks() const { return by_name_.size(); }

  std::optional<Entry> Find(const Name& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return std::nullopt;
    return Entry{BlockId{*found}, stored_[*found], digests_[*found]};
  }
  bool Has(const Entry& entry) const {
    const uint32_t id = entry.block.value();
    return id < stored_.size() && stored_[id] == entry.stored && digests_[id] == entry.digest;
  }
  // Null: the index does not have the block.
  const ContentDigest* DigestOf(BlockId id) const {
    const bool is_there = id.value() < stored_.size() && stored_[id.value()] != kAbsent;
    return is_there ? &digests_[id.value()] : nullptr;
  }

  void Insert(BlockId block, const ContentDigest& digest, const Name& name, Revision at) {
    Erase(block);
    const uint32_t id = block.value();
    if (id >= stored_.size()) {
      stored_.resize(id + 1, kAbsent);
      digests_.resize(id + 1);
      if (has_names_) names_.resize(id + 1);
    }
    stored_[id] = at;
    digests_[id] = digest;
    if (has_names_) names_[id] = name;
    // If two blocks have the same name, the later one is found.
    by_name_.erase(name);
    by_name_.insert(id);
  }
  void Erase(BlockId block) {
    waiting_.erase(block);
    const uint32_t id = block.value();
    if (id >= stored_.size() || stored_[id] == kAbsent) return;
    const auto found = by_name_.find(NameOf(id));
    if (found != by_name_.end() && *found == id) by_name_.erase(found);
    stored_[id] = kAbsent;
  }
  void Clear() {
    absl::c_fill(stored_, kAbsent);
    by_name_.clear();
    ForgetWaiting();
  }

  // --- Blocks that a snapshot has delivered before their parents ---

  struct Waiting {
    BlockId parent;
    Revision stored;
    bool keyed = false;
    std::vector<TokenId> tokens;
    std::vector<TokenExtra> extras;
    BlockKey key() const { return {tokens, extras, keyed}; }
  };
  void Wait(BlockId block, Waiting waiting) {
    Erase(block);
    children_[waiting.parent].push_back(block);
    waiting_.insert_or_assign(block, std::move(waiting));
  }
  // Takes a block that waits for `parent`; nothing if there is none.
  std::optional<std::pair<BlockId, Waiting>> TakeWaiting(BlockId parent) {
    const auto children = children_.find(parent);
    if (children == children_.end()) return std::nullopt;
    while (!children->second.empty()) {
      const BlockId child = children->second.back();
      children->second.pop_back();
      // It can have left, and its id can have come back below another parent.
      const auto found = waiting_.find(child);
      if (found == waiting_.end() || found->second.parent != parent) continue;
      std::pair<BlockId, Waiting> taken(child, std::move(found->second));
      waiting_.erase(found);
      return taken;
    }
    children_.erase(children);
    return std::nullopt;
  }
  size_t waiting() const { return waiting_.size(); }
  void ForgetWaiting() {
    waiting_ = {};
    children_ = {};
  }

 private:
  const Name& NameOf(uint32_t id) const { return has_names_ ? names_[id] : digests_[id].bytes; }

  // The set has ids. It finds them by their names.
  struct HashName {
    using is_transparent = void;
    const Window* window;
    size_t operator()(const Name& name) const { return absl::HashOf(name); }
    size_t operator()(uint32_t id) const { return absl::HashOf(window->NameOf(id)); }
  };
  struct SameName {
    using is_transparent = void;
    const Window* window;
    bool operator()(uint32_t a, uint32_t b) const { return window->NameOf(a) == window->NameOf(b); }
    bool operator()(uint32_t id, const Name& name) const { return window->NameOf(id) == name; }
    bool operator()(const Name& name, uint32_t id) const { return window->NameOf(id) == name; }
  };

  const WindowSize size_;
  const bool has_names_;  // Else digests are the names.
  // By block id.
  std::vector<Revision> stored_;  // kAbsent: not in the index.
  std::vector<ContentDigest> digests_;
  std::vector<Name> names_;
  absl::flat_hash_set<uint32_t, HashName, SameName> by_name_{0, HashName{this}, SameName{this}};
  absl::flat_hash_map<BlockId, Waiting> waiting_;
  absl::flat_hash_map<BlockId, std::vector<BlockId>> children_;  // By the parent.
};

DigestIndex::DigestIndex(Options options)
    : options_(std::move(options)), log_(options_.manager->log()) {
  {
    absl::MutexLock lock(&mutex_);
    for (const CacheInfo::Window& window : options_.manager->info().windows) {
      windows_.push_back(std::make_unique<Window>(window, !options_.secret.empty()));
    }
  }
  started_ = thread_.Start("pagoda-digests", [this] { Run(); });
}

DigestIndex::~DigestIndex() {
  stopping_ = true;
  log_.Wake();
  thread_.Join();
}

std::optional<DigestIndex::Entry> DigestIndex::Find(uint32_t window_index, const Name& name) {
  const Revision last = log_.last();
  absl::MutexLock lock(&mutex_);
  CatchUp(last);
  return windows_[window_index]->Find(name);
}

bool DigestIndex::HadUntil(uint32_t window_index, const Entry& entry, Revision revision) {
  absl::MutexLock lock(&mutex_);
  return CatchUp(revision) && windows_[window_index]->Has(entry);
}

DigestIndex::Stats DigestIndex::stats() const {
  absl::MutexLock lock(&mutex_);
  Stats stats = stats_;
  for (const auto& window : windows_) stats.blocks += window->blocks();
  stats.read_revision = next_.value() - 1;
  return stats;
}

void DigestIndex::Run() {
  uint64_t wakes = 0;
  while (!stopping_) {
    Revision seen;
    {
      absl::MutexLock lock(&mutex_);
      if (ReadOn()) continue;
      seen = Revision(next_.value() - 1);
    }
    if (log_.WaitBeyond(seen, kLongestWait, &wakes) > seen && !stopping_) {
      absl::SleepFor(kFollowPause);
    }
  }
}

bool DigestIndex::CatchUp(Revision revision) {
  for (int i = 0; i < kCatchUpPieces; ++i) {
    if (!snapshot_.has_value() && next_ > revision) return true;
    if (!ReadOn()) return false;
  }
  return !snapshot_.has_value() && next_ > revision;
}

bool DigestIndex::ReadOn() {
  if (!snapshot_.has_value()) return ReadLog();
  ReadSnapshot();
  return true;
}

bool DigestIndex::ReadLog() {
  const absl::StatusOr<std::vector<EventLog::BatchPtr>> batches = log_.Read(next_, kEventsPerRead);
  if (!batches.ok()) {
    // The log has passed the index: Read's other error cannot occur here.
    ++stats_.resets;
    BeginSnapshot();
    return true;
  }
  size_t tokens = 0;
  for (const EventLog::BatchPtr& batch : *batches) {
    for (size_t i = next_.value() - batch->front().revision.value(); i < batch->size(); ++i) {
      if (tokens >= kPieceTokens) return true;
      const Event& event = (*batch)[i];
      Apply(event, event.revision);
      next_ = Revision(event.revision.value() + 1);
      const auto* stored = std::get_if<StoredEvent>(&event.what);
      // Also an event without tokens takes time.
      tokens += stored == nullptr ? 16 : stored->tokens.size();
    }
  }
  return !batches->empty();
}

void DigestIndex::BeginSnapshot() {
  for (const auto& window : windows_) window->Clear();
  if (++snapshots_ <= kSnapshots) {
    snapshot_ = SnapshotPosition();
    return;
  }
  EndSnapshot();
  next_ = log_.oldest();
}

void DigestIndex::EndSnapshot() {
  snapshot_.reset();
  snapshots_ = 0;
  for (const auto& window : windows_) {
    stats_.left_out += window->waiting();
    window->ForgetWaiting();
  }
}

void DigestIndex::ReadSnapshot() {
  const SnapshotPiece piece = options_.manager->Read([&](const BlockManager& core) {
    return core.ReadSnapshot(*snapshot_, kSnapshotBlocks, kSnapshotTokens, options_.manager->now());
  });
  // The first piece starts at its own revision: no block was passed before it.
  if (*snapshot_ == SnapshotPosition()) next_ = Revision(piece.revision.value() + 1);
  if (!ApplyPassed(piece.revision)) return BeginSnapshot();
  for (const Event& event : piece.events) Apply(event, piece.revision);
  snapshot_ = piece.end;
  if (piece.end.done) EndSnapshot();
}

bool DigestIndex::ApplyPassed(Revision end) {
  while (next_ <= end) {
    const absl::StatusOr<std::vector<EventLog::BatchPtr>> batches =
        log_.Read(next_, kEventsPerRead);
    if (!batches.ok()) return false;
    for (const EventLog::BatchPtr& batch : *batches) {
      for (const Event& event : *batch) {
        if (event.revision < next_ || event.revision > end) continue;
        next_ = Revision(event.revision.value() + 1);
        ForEachPassed(event, *snapshot_, [&](const Event& part) {
          mutex_.AssertHeld();
          Apply(part, event.revision);
        });
      }
    }
  }
  return true;
}

DigestIndex::Window& DigestIndex::WindowOf(WindowSize size) {
  const auto found =
      absl::c_find_if(windows_, [size](const auto& window) { return window->size() == size; });
  PAGODA_CHECK(found != windows_.end(), "an event names a window that the cache does not have");
  return **found;
}

void DigestIndex::Apply(const Event& event, Revision at) {
  if (const auto* stored = std::get_if<StoredEvent>(&event.what)) {
    Store(WindowOf(event.window), *stored, at);
  } else if (const auto* removed = std::get_if<RemovedEvent>(&event.what)) {
    Window& window = WindowOf(event.window);
    if (removed->scope != RemovedEvent::Scope::kBlocks) return window.Clear();
    // Released blocks were not in the tree.
    if (removed->reason == RemovalReason::kReleased) return;
    for (const BlockId id : removed->blocks) window.Erase(id);
  }
}

// While a block is cached, its parent's id is not given to another block: in a sliding window the
// node of a parent that left stays.
void DigestIndex::Store(Window& window, const StoredEvent& stored, Revision at) {
  // The digest of the previous block, if it is known.
  std::optional<ContentDigest> parent;
  if (stored.parent == kNoBlock) {
    parent = digester_.OfNamespace(*stored.name_space);
  } else if (const ContentDigest* digest = window.DigestOf(stored.parent)) {
    parent = *digest;
  }
  BlockId parent_id = stored.parent;
  size_t begin = 0;
  for (const StoredBlock& block : stored.blocks) {
    const BlockKey key = stored.KeyAt(begin, block);
    begin += stored.EntriesOf(block);
    if (parent.has_value()) {
      parent = digester_.OfBlock(*parent, key);
      Insert(window, block.id, *parent, at);
    } else if (snapshot_.has_value()) {
      window.Wait(block.id, {.parent = parent_id,
                             .stored = at,
                             .keyed = key.keyed,
                             .tokens = {key.tokens.begin(), key.tokens.end()},
                             .extras = {key.extras.begin(), key.extras.end()}});
    } else {
      window.Erase(block.id);
      ++stats_.left_out;
    }
    parent_id = block.id;
  }
}

// Inserts the block and those that waited for it.
void DigestIndex::Insert(Window& window, BlockId id, const ContentDigest& digest, Revision at) {
  window.Insert(id, digest, NameDigest(options_.secret, digest.bytes), at);
  if (window.waiting() == 0) return;
  std::vector<BlockId> parents = {id};
  while (!parents.empty()) {
    const BlockId parent = parents.back();
    const auto taken = window.TakeWaiting(parent);
    if (!taken.has_value()) {
      parents.pop_back();
      continue;
    }
    const auto& [child, waiting] = *taken;
    const ContentDigest below = digester_.OfBlock(*window.DigestOf(parent), waiting.key());
    window.Insert(child, below, NameDigest(options_.secret, below.bytes), waiting.stored);
    parents.push_back(child);
  }
}

}  // namespace pagoda::server
