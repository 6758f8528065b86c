#include "manager/block_manager.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {
namespace {

absl::Status CheckOptions(const BlockManager::Options& options) {
  const std::vector<WindowLayout>& windows = options.layout.windows();
  if (windows.size() != 1 || windows.front().window != kFullAttention) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("the layout has ", windows.size(), " windows, the first of ",
                                  WindowName(windows.front().window),
                                  " tokens; this version serves one window of full attention"));
  }
  PAGODA_CHECK(options.primary_blocks.size() == windows.size(), "one block count a window");
  for (const uint32_t blocks : options.primary_blocks) {
    if (blocks == 0 || blocks >= kNoBlock.value() / 2) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("a window of ", blocks, " blocks; 1 to ",
                                    kNoBlock.value() / 2 - 1, " are served"));
    }
  }
  return absl::OkStatus();
}

CacheInfo MakeInfo(const BlockManager::Options& options) {
  const CacheSpec& spec = options.layout.spec();
  CacheInfo info{.name = spec.name,
                 .model_fingerprint = spec.model_fingerprint,
                 .rank = spec.rank,
                 .tokens_per_block = spec.tokens_per_block,
                 .windows = {}};
  for (size_t i = 0; i < options.layout.windows().size(); ++i) {
    info.windows.push_back({.window = options.layout.windows()[i].window,
                            .primary_blocks = options.primary_blocks[i],
                            .secondary_blocks = 0});
  }
  return info;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockManager>> BlockManager::Create(Options options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  return absl::WrapUnique(new BlockManager(std::move(options)));
}

BlockManager::BlockManager(Options options)
    : options_(std::move(options)),
      info_(MakeInfo(options_)),
      tokens_per_block_(info_.tokens_per_block),
      recorder_(options_.record_events),
      sessions_(options_.seed, options_.max_sessions) {
  recorder_.BeginOperation(options_.start_time);
  for (const CacheInfo::Window& window : info_.windows) {
    windows_.push_back(std::make_unique<WindowBlockManager>(
        WindowBlockManager::Options{.window = window.window,
                                    .tokens_per_block = TokensPerBlock(info_.tokens_per_block),
                                    .primary_blocks = window.primary_blocks},
        &recorder_));
    recorder_.PoolsCreated(window.window, {window.primary_blocks, window.secondary_blocks});
  }
}

// --- Sessions ---

absl::StatusOr<BlockManager::OpenedSession> BlockManager::OpenSession(std::string client_name,
                                                                      absl::Duration lease,
                                                                      absl::Time now) {
  absl::StatusOr<SessionRef> ref = sessions_.Open(std::move(client_name), lease, now);
  if (!ref.ok()) return ref.status();
  return OpenedSession{.ref = *ref, .lease = lease};
}

absl::Status BlockManager::CheckSession(SessionRef ref) const {
  return sessions_.Find(ref).status();
}

absl::StatusOr<absl::Duration> BlockManager::KeepAlive(SessionRef ref, absl::Time now) {
  absl::StatusOr<Session*> session = sessions_.Find(ref);
  if (!session.ok()) return session.status();
  (*session)->deadline = now + (*session)->lease;
  return (*session)->lease;
}

absl::Status BlockManager::AttachStream(SessionRef ref) {
  absl::StatusOr<Session*> session = sessions_.Find(ref);
  if (!session.ok()) return session.status();
  ++(*session)->streams;
  return absl::OkStatus();
}

void BlockManager::DetachStream(SessionId id, absl::Time now) {
  Session* session = sessions_.Find(id);
  if (session == nullptr) return;  // Closed while the stream was open.
  PAGODA_CHECK(session->streams > 0, "a stream is detached once");
  --session->streams;
  session->deadline = now + session->lease;
}

absl::Status BlockManager::CloseSession(SessionRef ref, absl::Time now) {
  if (absl::Status status = CheckSession(ref); !status.ok()) return status;
  EndSession(ref.id, now);
  return absl::OkStatus();
}

size_t BlockManager::ExpireSessions(absl::Time now) {
  const std::vector<SessionId> expired = sessions_.Expired(now);
  for (const SessionId id : expired) EndSession(id, now);
  return expired.size();
}

void BlockManager::EndSession(SessionId id, absl::Time now) {
  Session& session = RequireSession(id);
  const absl::btree_set<SequenceId> sequences = std::exchange(session.sequences, {});
  for (const SequenceId sequence : sequences) {
    recorder_.BeginOperation(now);
    EndSequence({id, sequence});
  }
  for (const auto& window : windows_) {
    if (session.raw_blocks == 0) break;
    const std::vector<BlockRef> blocks = window->RawBlocksOf(id);
    if (blocks.empty()) continue;
    const absl::Status status = FreeBlocks(id, window->window(), blocks, now);
    PAGODA_CHECK(status.ok(), "a session may free its own raw blocks");
  }
  PAGODA_CHECK(session.raw_blocks == 0, "a session's raw blocks are counted");
  sessions_.Close(id);
  CheckAccounting();
}

// --- Raw blocks ---

absl::Status BlockManager::AllocateBlocks(SessionId session, WindowSize window,
                                          absl::Span<BlockHandle> out, absl::Time now) {
  absl::StatusOr<WindowBlockManager*> manager = RequireWindow(window);
  if (!manager.ok()) return manager.status();
  if (out.empty() || out.size() > (*manager)->capacity()) {
    return MakeError(Reason::kInvalidCount, absl::StrCat(out.size(), " blocks asked for; 1 to ",
                                                         (*manager)->capacity(), " can be had"));
  }
  if (out.size() > (*manager)->available()) {
    return MakeError(Reason::kBlocksExhausted,
                     absl::StrCat(out.size(), " blocks asked for, ", (*manager)->available(),
                                  " are free or evictable in window ", WindowName(window)));
  }
  recorder_.BeginOperation(now);
  (*manager)->TakeRaw(session, out);
  RequireSession(session).raw_blocks += out.size();
  if (options_.lifecycle_events == LifecycleEvents::kRaw) {
    std::vector<BlockId> ids;
    ids.reserve(out.size());
    for (const BlockHandle& handle : out) ids.push_back(handle.id);
    recorder_.BlocksCreated(window, std::move(ids));
  }
  CheckAccounting();
  return absl::OkStatus();
}

absl::Status BlockManager::FreeBlocks(SessionId session, WindowSize window,
                                      absl::Span<const BlockRef> blocks, absl::Time now) {
  absl::StatusOr<WindowBlockManager*> manager = RequireWindow(window);
  if (!manager.ok()) return manager.status();
  if (blocks.empty()) return MakeError(Reason::kInvalidCount, "no blocks to free");
  if (absl::Status status = (*manager)->CheckRaw(session, blocks); !status.ok()) return status;

  recorder_.BeginOperation(now);
  (*manager)->FreeRaw(blocks);
  RequireSession(session).raw_blocks -= blocks.size();
  if (options_.lifecycle_events == LifecycleEvents::kRaw) {
    std::vector<BlockId> ids;
    ids.reserve(blocks.size());
    for (const BlockRef& ref : blocks) ids.push_back(ref.id);
    recorder_.BlocksReleased(window, std::move(ids));
  }
  CheckAccounting();
  return absl::OkStatus();
}

// --- Operators ---

uint64_t BlockManager::ResetPrefixCache(absl::Time now) {
  recorder_.BeginOperation(now);
  uint64_t removed = 0;
  for (const auto& window : windows_) removed += window->Reset();
  CheckAccounting();
  return removed;
}

ManagerStats BlockManager::Stats() const {
  ManagerStats stats;
  for (const auto& window : windows_) stats.windows.push_back(window->Stats());
  stats.sessions = sessions_.size();
  stats.sequences = sequences_.size();
  return stats;
}

// --- Look-ups and checks ---

absl::StatusOr<WindowBlockManager*> BlockManager::RequireWindow(WindowSize window) {
  for (const auto& manager : windows_) {
    if (manager->window() == window) return manager.get();
  }
  return MakeError(Reason::kUnknownWindow,
                   absl::StrCat("the cache has no window of ", WindowName(window), " tokens"));
}

Session& BlockManager::RequireSession(SessionId session) {
  Session* found = sessions_.Find(session);
  PAGODA_CHECK(found != nullptr, "operations run for living sessions");
  return *found;
}

void BlockManager::CheckAccounting() const {
  for (const auto& window : windows_) window->CheckAccounting();
}

void BlockManager::CheckInvariants() const {
  for (size_t w = 0; w < windows_.size(); ++w) {
    const WindowBlockManager& window = *windows_[w];
    std::vector<uint32_t> holders(window.capacity());
    for (const SessionId id : sessions_.Ids()) {
      for (const BlockRef& ref : window.RawBlocksOf(id)) ++holders[ref.id.value()];
    }
    for (const auto& [key, sequence] : sequences_) {
      PAGODA_CHECK(
          sequence->computed_tokens <= std::min(sequence->token_count, sequence->room_tokens),
          "rule 7: computed tokens were named and have a place");
      const SequenceBlocks& blocks = sequence->windows[w];
      PAGODA_CHECK(
          blocks.table.size() == window.tokens_per_block().BlocksFor(sequence->room_tokens),
          "a sequence has the blocks of its room");
      for (const BlockHandle& handle : blocks.table) {
        PAGODA_CHECK(window.handle(handle.id) == handle, "rule 10: a block table in use is stable");
        ++holders[handle.id.value()];
      }
      for (const BlockId id : blocks.canonical) {
        if (id != kNoBlock) ++holders[id.value()];
      }
    }
    window.CheckInvariants(holders);
  }
}

std::vector<TreeEntry> BlockManager::DumpTree(WindowSize window) const {
  for (const auto& manager : windows_) {
    if (manager->window() == window) return manager->DumpTree();
  }
  return {};
}

}  // namespace pagoda
