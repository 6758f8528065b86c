#include "engine/serve/daemon/tenant_sessions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"

namespace pagoda {
namespace {

using SessionPtr = TenantSessions::SessionPtr;

// A tenant's session as the engine's thread sees it in one batch: its operations, and where their
// results go.
struct Part {
  SessionPtr session;
  std::vector<Operation> operations;
  // For each operation, its place in the whole batch.
  std::vector<size_t> places;
  // For an AppendStep, the places of its sequences in the whole step. Empty for other operations.
  std::vector<std::vector<uint32_t>> members;
};

// The parts of a batch, in the order of their first operations.
class Parts {
 public:
  Part& Of(const SessionPtr& session) {
    for (Part& part : parts_) {
      if (part.session == session) return part;
    }
    return parts_.emplace_back(Part{.session = session});
  }
  void Add(const SessionPtr& session, size_t place, Operation operation,
           std::vector<uint32_t> members = {}) {
    Part& part = Of(session);
    part.operations.push_back(std::move(operation));
    part.places.push_back(place);
    part.members.push_back(std::move(members));
  }
  std::vector<Part>& all() { return parts_; }

 private:
  std::vector<Part> parts_;
};

template <class T>
T EntryOr(const std::vector<T>& entries, size_t i, T otherwise) {
  return entries.empty() ? otherwise : entries[i];
}

// Collects the results of an AppendStep whose sequences belong to several sessions.
struct JoinedStep {
  // A growth, and its blocks of each window.
  struct Growth {
    AppendedStep::Growth growth;
    std::vector<BlockHandle> blocks;
  };
  std::vector<Growth> grown;
  std::vector<AppendedStep::Failure> failed;

  // `members`: the places of the part's sequences in the whole step. Errors: INTERNAL if the answer
  // does not fit them; it comes from another process.
  absl::Status Add(const AppendedStep& part, const std::vector<uint32_t>& members,
                   size_t num_windows) {
    absl::Span<const BlockHandle> blocks = part.blocks;
    for (AppendedStep::Growth growth : part.grown) {
      const size_t count = size_t{growth.blocks} * num_windows;
      if (growth.index >= members.size() || count > blocks.size()) return Misfit();
      growth.index = members[growth.index];
      grown.push_back({growth, {blocks.begin(), blocks.begin() + count}});
      blocks.remove_prefix(count);
    }
    if (!blocks.empty()) return Misfit();
    for (AppendedStep::Failure failure : part.failed) {
      if (failure.index >= members.size()) return Misfit();
      failure.index = members[failure.index];
      failed.push_back(std::move(failure));
    }
    return absl::OkStatus();
  }
  void Fail(const absl::Status& status, const std::vector<uint32_t>& members) {
    for (const uint32_t member : members) failed.push_back({.index = member, .status = status});
  }
  AppendedStep Take() {
    const auto by_index = [](const auto& a, const auto& b) { return a.index < b.index; };
    std::sort(failed.begin(), failed.end(), by_index);
    std::sort(grown.begin(), grown.end(),
              [&](const Growth& a, const Growth& b) { return by_index(a.growth, b.growth); });
    AppendedStep step;
    for (Growth& each : grown) {
      step.grown.push_back(each.growth);
      step.blocks.insert(step.blocks.end(), each.blocks.begin(), each.blocks.end());
    }
    step.failed = std::move(failed);
    return step;
  }

 private:
  static absl::Status Misfit() {
    return absl::InternalError("the daemon's answer to a step does not match the step");
  }
};

// The latest of each: the tickets count the copies of the whole cache.
void TakeProgress(const BatchResult& part, BatchResult& whole) {
  whole.revision = std::max(whole.revision, part.revision);
  whole.completed = std::max(whole.completed, part.completed);
  whole.completed_fetch = std::max(whole.completed_fetch, part.completed_fetch);
  whole.completed_backup = std::max(whole.completed_backup, part.completed_backup);
  whole.shortened.insert(whole.shortened.end(), part.shortened.begin(), part.shortened.end());
}

bool NamesATenant(const Operation& operation) {
  return std::visit(
      [](const auto& each) {
        bool names = false;
        if constexpr (requires { each.tenant; }) names = !each.tenant.empty();
        return names;
      },
      static_cast<const OperationVariant&>(operation));
}

class AllSessions final : public CacheClient {
 public:
  explicit AllSessions(std::shared_ptr<TenantSessions> sessions) : sessions_(std::move(sessions)) {}

  const CacheInfo& info() const override { return sessions_->own()->client->info(); }

  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations,
                                      StepRange steps) override {
    if (owners_.empty() && std::none_of(operations.begin(), operations.end(), NamesATenant)) {
      return sessions_->own()->client->Execute(operations, steps);
    }
    Parts parts;
    for (size_t i = 0; i < operations.size(); ++i) {
      std::visit([&](const auto& operation) { Assign(operation, i, parts); },
                 static_cast<const OperationVariant&>(operations[i]));
    }
    BatchResult whole;
    whole.results.resize(operations.size(), absl::InternalError("no session ran the operation"));
    absl::flat_hash_map<size_t, JoinedStep> steps_by_place;
    for (Part& part : parts.all()) {
      const absl::Time begun = absl::Now();
      absl::StatusOr<BatchResult> result = Run(part, steps);
      if (part.session != nullptr) NoteTime(part.session->tenant, absl::Now() - begun);
      if (result.ok()) TakeProgress(*result, whole);
      for (size_t i = 0; i < part.operations.size(); ++i) {
        const absl::StatusOr<OperationResult>& one =
            result.ok() ? result->results[i] : absl::StatusOr<OperationResult>(result.status());
        TakeResult(part, i, one, steps_by_place, whole);
      }
    }
    for (auto& [place, step] : steps_by_place) whole.results[place] = step.Take();
    opening_.clear();  // The last holder of a session must be able to wait.
    return whole;
  }

  std::vector<std::string> SlowTenants() override {
    std::vector<std::string> slow;
    if (rests_.empty()) return slow;
    const absl::Time now = absl::Now();
    for (const auto& [tenant, rest] : rests_) {
      if (now < rest.end) slow.push_back(tenant);
    }
    return slow;
  }

  absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(MemoryAccess access) override {
    return sessions_->own()->client->MapPools(access);
  }

 private:
  struct Rest {
    absl::Duration length;
    absl::Time end;
  };

  void NoteTime(const std::string& tenant, absl::Duration taken) {
    if (tenant.empty()) return;
    if (taken < TenantSessions::kSlow) {
      rests_.erase(tenant);
      return;
    }
    Rest& rest = rests_[tenant];
    rest.length = std::min(std::max(TenantSessions::kRestFactor * taken, 2 * rest.length),
                           TenantSessions::kMostRest);
    rest.end = absl::Now() + rest.length;
  }

  static absl::StatusOr<BatchResult> Run(const Part& part, StepRange steps) {
    if (part.session == nullptr) {
      return MakeError(Reason::kUnknownSession, "the tenant that asks has no session");
    }
    return part.session->client->Execute(part.operations, steps);
  }

  SessionPtr OwnerOf(SequenceId sequence) const {
    for (const auto* owners : {&opening_, &owners_}) {
      if (const auto it = owners->find(sequence); it != owners->end()) return it->second;
    }
    return sessions_->own();
  }

  template <class T>
  void Assign(const T& operation, size_t place, Parts& parts) {
    if constexpr (std::is_same_v<T, AppendStep>) {
      AssignStep(operation, place, parts);
    } else if constexpr (std::is_same_v<T, QueryCapacity>) {
      const bool is_new = operation.sequence == SequenceId();
      parts.Add(is_new ? sessions_->Find(operation.tenant) : OwnerOf(operation.sequence), place,
                operation);
    } else if constexpr (std::is_same_v<T, AddSequence>) {
      const SessionPtr session = sessions_->Find(operation.tenant);
      opening_[operation.sequence] = session;
      parts.Add(session, place, operation);
    } else if constexpr (std::is_same_v<T, ForkSequence>) {
      const SessionPtr session = OwnerOf(operation.sequence);
      opening_[operation.new_sequence] = session;
      parts.Add(session, place, operation);
    } else if constexpr (requires { operation.sequence; }) {
      parts.Add(OwnerOf(operation.sequence), place, operation);
    } else if constexpr (requires { operation.tenant; }) {
      parts.Add(sessions_->Find(operation.tenant), place, operation);
    } else {
      parts.Add(sessions_->own(), place, operation);
    }
  }

  void AssignStep(const AppendStep& step, size_t place, Parts& parts) {
    struct PartOfStep {
      SessionPtr session;
      AppendStep step;
      std::vector<uint32_t> members;
    };
    std::vector<PartOfStep> split;
    size_t token = 0;
    for (size_t i = 0; i < step.sequences.size(); ++i) {
      const SessionPtr session = OwnerOf(step.sequences[i]);
      auto part = std::find_if(split.begin(), split.end(),
                               [&](const PartOfStep& each) { return each.session == session; });
      if (part == split.end()) part = split.insert(split.end(), {session, {.tokens = {}}, {}});
      const uint32_t count = EntryOr(step.token_counts, i, 1u);
      part->members.push_back(static_cast<uint32_t>(i));
      part->step.sequences.push_back(step.sequences[i]);
      part->step.token_counts.push_back(count);
      if (!step.computed_tokens.empty()) {
        part->step.computed_tokens.push_back(step.computed_tokens[i]);
      }
      part->step.known_losses.push_back(EntryOr(step.known_losses, i, 0u));
      part->step.tokens.insert(part->step.tokens.end(), step.tokens.begin() + token,
                               step.tokens.begin() + token + count);
      token += count;
    }
    for (PartOfStep& part : split) {
      parts.Add(part.session, place, std::move(part.step), std::move(part.members));
    }
  }

  void TakeResult(const Part& part, size_t i, const absl::StatusOr<OperationResult>& result,
                  absl::flat_hash_map<size_t, JoinedStep>& steps, BatchResult& whole) {
    const Operation& operation = part.operations[i];
    const size_t place = part.places[i];
    if (std::holds_alternative<AppendStep>(operation)) {
      JoinedStep& step = steps[place];
      absl::Status status = result.status();
      if (status.ok()) {
        status = step.Add(std::get<AppendedStep>(*result), part.members[i], info().windows.size());
      }
      if (!status.ok()) step.Fail(status, part.members[i]);
      return;
    }
    if (const auto* add = std::get_if<AddSequence>(&operation); add != nullptr && result.ok()) {
      Own(add->sequence, part.session);
    } else if (const auto* fork = std::get_if<ForkSequence>(&operation);
               fork != nullptr && result.ok()) {
      Own(fork->new_sequence, part.session);
    } else if (const auto* free = std::get_if<FreeSequence>(&operation)) {
      owners_.erase(free->sequence);
    }
    whole.results[place] = result;
  }
  // Sequences of the own session have no entry.
  void Own(SequenceId sequence, const SessionPtr& session) {
    if (session != sessions_->own()) owners_[sequence] = session;
  }

  const std::shared_ptr<TenantSessions> sessions_;
  // The sequences that the current batch opens: its later operations can name them.
  absl::flat_hash_map<SequenceId, SessionPtr> opening_;
  // The rests of the tenants whose last call was slow.
  absl::flat_hash_map<std::string, Rest> rests_;
  // The sequences of other sessions than the own one (invariant 2).
  absl::flat_hash_map<SequenceId, SessionPtr> owners_;
};

}  // namespace

absl::StatusOr<SessionPtr> TenantSessions::Get(const std::string& tenant,
                                               const std::string& token) {
  absl::MutexLock lock(&opening_);
  if (SessionPtr session = Use(tenant, token)) return session;
  if (absl::Status refused = Refused(tenant, token); !refused.ok()) return refused;
  SessionPtr session = Peek(tenant);
  if (session != nullptr) {
    if (absl::Status status = check_(tenant, token); !status.ok()) {
      return Refuse(tenant, token, std::move(status));
    }
  } else {
    absl::StatusOr<Session> opened = open_(tenant, token);
    if (!opened.ok()) return Refuse(tenant, token, opened.status());
    session = std::make_shared<Session>(*std::move(opened));
    session->tenant = tenant;
  }
  // The daemon knows the own session, so it is the daemon of that session, and so was the one that
  // answered before (invariant 1).
  if (absl::Status status = check_own_(); !status.ok()) return status;
  Keep(tenant, token, session);
  return session;
}

absl::Status TenantSessions::Refused(const std::string& tenant, const std::string& token) {
  const auto it = refusals_.find(std::pair(tenant, token));
  if (it == refusals_.end() || absl::Now() - it->second.time > kRefusalTime) {
    return absl::OkStatus();
  }
  return it->second.status;
}

absl::Status TenantSessions::Refuse(const std::string& tenant, const std::string& token,
                                    absl::Status status) {
  // A daemon that is away can be back at any time.
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return status;
  const absl::Time now = absl::Now();
  absl::erase_if(refusals_,
                 [&](const auto& each) { return now - each.second.time > kRefusalTime; });
  refusals_[std::pair(tenant, token)] = {status, now};
  return status;
}

TenantSessions::Entry* TenantSessions::OpenEntry(const std::string& tenant) {
  const auto it = tenants_.find(tenant);
  if (it == tenants_.end()) return nullptr;
  const SessionPtr& session = it->second.session;
  return session->is_over != nullptr && session->is_over() ? nullptr : &it->second;
}

SessionPtr TenantSessions::Use(const std::string& tenant, const std::string& token) {
  const absl::Time now = absl::Now();
  absl::MutexLock lock(&mutex_);
  Entry* const entry = OpenEntry(tenant);
  if (entry == nullptr) return nullptr;
  const auto taken = entry->tokens.find(token);
  if (taken == entry->tokens.end() || now - taken->second > kTokenTime) return nullptr;
  entry->last_use = now;
  return entry->session;
}

SessionPtr TenantSessions::Peek(const std::string& tenant) {
  absl::MutexLock lock(&mutex_);
  const Entry* const entry = OpenEntry(tenant);
  return entry == nullptr ? nullptr : entry->session;
}

void TenantSessions::Keep(const std::string& tenant, const std::string& token, SessionPtr session) {
  // The clients end without the lock: they call the daemon.
  std::vector<SessionPtr> ended;
  const absl::Time now = absl::Now();
  absl::MutexLock lock(&mutex_);
  Entry& entry = tenants_[tenant];
  if (entry.session != session) {
    ended.push_back(std::exchange(entry.session, std::move(session)));
    entry.tokens.clear();
  }
  entry.last_use = now;
  absl::erase_if(entry.tokens, [&](const auto& each) { return now - each.second > kTokenTime; });
  entry.tokens[token] = now;
  absl::erase_if(tenants_, [&](const auto& each) {
    const Entry& other = each.second;
    const bool is_idle = other.session.use_count() == 1 && now - other.last_use > kIdleTime;
    if (is_idle) ended.push_back(other.session);
    return is_idle;
  });
}

SessionPtr TenantSessions::Find(const std::string& tenant) const {
  if (tenant.empty()) return own_;
  absl::MutexLock lock(&mutex_);
  const auto it = tenants_.find(tenant);
  return it == tenants_.end() ? nullptr : it->second.session;
}

void TenantSessions::Forget(const std::string& tenant, const SessionPtr& session) {
  SessionPtr ended;  // Its client ends without the lock.
  absl::MutexLock lock(&mutex_);
  const auto it = tenants_.find(tenant);
  if (it == tenants_.end() || it->second.session != session) return;
  ended = std::move(it->second.session);
  tenants_.erase(it);
}

size_t TenantSessions::size() const {
  absl::MutexLock lock(&mutex_);
  return tenants_.size();
}

std::unique_ptr<CacheClient> TenantSessions::MakeClient() {
  return std::make_unique<AllSessions>(shared_from_this());
}

}  // namespace pagoda
