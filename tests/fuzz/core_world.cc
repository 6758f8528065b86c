#include "tests/fuzz/core_world.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/check.h"
#include "base/error.h"
#include "google/rpc/error_details.pb.h"
#include "manager/accounts/tenants.h"
#include "manager/policy/eviction_policy.h"
#include "manager/sequences/cached_prefixes.h"
#include "manager/sequences/running_sequences.h"
#include "manager/sequences/session_endings.h"
#include "tests/manager/fixtures/host_tiers.h"
#include "tests/wire/result_messages.h"
#include "wire/event_bytes.h"
#include "wire/operations.h"
#include "wire/results.h"
#include "wire/rows.h"
#include "wire/served_fields.h"

namespace pagoda::fuzz {
namespace {

constexpr size_t kClients = 3;
constexpr absl::Duration kLease = absl::Seconds(10);

BlockManager::Options DrawOptions(ByteReader& in) {
  const uint8_t shape = in.Byte();
  const CacheSpec spec = {
      .name = "fuzz",
      .tokens_per_block = 1u << (shape & 3) % 3,
      .layers = {{.window = WindowSize{1 + in.Below(8)}, .num_kv_heads = 1, .head_dim = 1},
                 {.window = kFullAttention, .num_kv_heads = 1, .head_dim = 1}}};
  BlockManager::Options options{.layout = *CacheLayout::Create(spec),
                                .tiers = HostTiers({4 + in.Below(5), 4 + in.Below(8)}),
                                .epoch = Epoch{1},
                                .journal_slots = true,
                                .max_sessions = kClients};
  if ((shape & 12) != 0) {
    const std::vector<uint32_t> lower = {in.Below(5), 1 + in.Below(6)};
    options.tiers = HostTiers(options.tiers.front().blocks, lower);
  }
  const auto& policies = EvictionPolicyNames();
  options.eviction_policy = policies[(shape >> 4 & 3) % policies.size()];
  if (shape & 64) options.tiers.front().watermark_permille = 300;
  if (shape & 128) options.max_holes = 2;
  options.pin_budget_permille = 500;
  if (in.OneIn(2)) {
    options.tenants = {{.name = "own", .quota_blocks = {3 + in.Below(4), 2}},
                       {.name = "sharing", .shares = true, .share = 1 + in.Below(3)}};
  }
  return options;
}

// The numbers of a core that change with every operation that has an effect.
struct Trace {
  Revision revision;
  Ticket last_ticket;
  uint64_t sessions = 0;
  uint64_t sequences = 0;
  uint64_t pins = 0;
  std::vector<uint64_t> numbers;
  friend bool operator==(const Trace&, const Trace&) = default;
};

Trace TraceOf(const BlockManager& core) {
  const ManagerStats stats = core.Stats();
  Trace trace{.revision = core.revision(),
              .last_ticket = core.last_ticket(),
              .sessions = stats.sessions,
              .sequences = stats.sequences,
              .pins = stats.pins};
  for (const WindowStats& window : stats.windows) {
    for (const TierOccupancy& tier : window.tiers) {
      trace.numbers.insert(trace.numbers.end(),
                           {tier.free, tier.cached, tier.active, tier.pinned, tier.in_flight});
    }
    trace.numbers.insert(trace.numbers.end(),
                         {window.holes, window.pinned_blocks, window.counters.allocated_blocks,
                          window.counters.freed_blocks, window.counters.prefix_lookup_tokens});
  }
  return trace;
}

// One ErrorInfo with one of the project's reasons, and the code of that reason.
void CheckError(const absl::Status& status, const v1::OperationResult& result) {
  const Reason reason = ReasonOf(status);
  PAGODA_CHECK(reason != Reason::kNone, "an operation is refused for a reason");
  PAGODA_CHECK(status.code() == ReasonCode(reason), "a reason has one code");
  google::rpc::ErrorInfo info;
  PAGODA_CHECK(result.has_error() && result.error().details_size() > 0 &&
                   result.error().details(0).UnpackTo(&info) && info.reason() == ReasonName(reason),
               "the wire's error says the reason");
}

}  // namespace

CoreWorld::CoreWorld(ByteReader& in)
    : in_(in), core_(*BlockManager::Create(DrawOptions(in))), clients_(kClients) {
  if (in.OneIn(8)) core_->endings().QuarantineFree(now_);  // After a warm restart.
  for (Client& client : clients_) OpenSession(client);
  Follow();
}

void CoreWorld::OpenSession(Client& client) {
  // The first client belongs to the default tenant, the others to the tenants, if there are any.
  const auto index = static_cast<uint16_t>(&client - clients_.data());
  const auto tenant = TenantId(static_cast<uint16_t>(index % core_->tenants().size()));
  const auto session =
      core_->OpenSession("fuzz", kLease, now_, tenant, SessionToken{++opened_, ~opened_});
  PAGODA_CHECK(session.ok() || ReasonOf(session.status()) == Reason::kTooManySessions,
               "a session opens while there is room for it");
  if (session.ok()) client = {.session = session->ref};
}

void CoreWorld::Step() {
  const uint8_t choice = in_.Byte();
  Client& client = clients_[choice % kClients];
  switch (choice / kClients % 16) {
    case 9: {
      const absl::Span<const uint8_t> bytes = in_.Take(in_.Byte());
      v1::Batch batch;
      if (batch.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
        SendBatch(client, batch);
      }
      break;
    }
    case 10:
      now_ += absl::Milliseconds(in_.Byte() * 20);
      core_->endings().ExpireSessions(now_);
      break;
    case 11:
    case 12:
    case 13:
      for (uint32_t i = in_.Below(4); i > 0; --i) {
        EndCopy(in_.Byte(), in_.OneIn(4) ? absl::InternalError("planned") : absl::OkStatus());
      }
      break;
    case 14:
      core_->Maintain(now_, in_.Below(4));
      break;
    case 15:
      ChangeSession(client);
      break;
    default:
      SendBatch(client, DecodeBatch(in_, *core_, client));
  }
  Follow();
}

void CoreWorld::ChangeSession(Client& client) {
  switch (in_.Below(10)) {
    case 0:
      // Refused if the lease has run out.
      (void)core_->endings().CloseSession(client.session, now_);
      OpenSession(client);
      break;
    case 1:
      OpenSession(client);
      break;
    case 2:
      if (core_->AttachStream(client.session).ok()) {
        now_ += kLease;
        core_->endings().ExpireSessions(now_);
        PAGODA_CHECK(core_->CheckSession(client.session).ok(), "a stream keeps its session alive");
        core_->DetachStream(client.session.id, now_);
      }
      break;
    case 3:
      client.session.token =
          SessionToken{client.session.token.low() ^ in_.Byte(), client.session.token.high()};
      break;
    case 4:
      core_->ResetPrefixCache(now_);
      break;
    case 5:
    case 6:
      (void)core_->NoteWriter(client.session);
      break;
    case 7:
      core_->NoteWriterGone(client.session.id);
      break;
    case 8:
      (void)core_->endings().EndSession(client.session.id, now_);
      break;
    case 9:
      (void)core_->endings().ReleaseQuarantine(SessionId{in_.Below(8)}, now_);
      break;
    default:
      (void)core_->KeepAlive(client.session, now_);
  }
}

void CoreWorld::SendBatch(Client& client, const v1::Batch& batch) {
  if (static_cast<size_t>(batch.operations_size()) > kMaxBatchOperations) return;
  if (!core_->KeepAlive(client.session, now_).ok()) return;
  const absl::Status begun = core_->BeginBatch(client.session.id, StepsFromProto(batch), now_);
  if (!begun.ok()) {
    PAGODA_CHECK(ReasonOf(begun) == Reason::kStepBackwards, "a batch of a living session begins");
    return;
  }
  client.step = batch.step();
  client.completed_step = batch.completed_step();
  v1::BatchResult answer;
  for (const v1::Operation& operation : batch.operations()) {
    RunOperation(client, operation, answer.add_results());
  }
  v1::BatchResult state;
  BatchStateToProto({.results = {},
                     .revision = core_->revision(),
                     .completed = core_->completed_ticket(),
                     .shortened = core_->sequences().Shortened(client.session.id)},
                    &state);
  for (const v1::ShortenedSequence& shortened : state.shortened()) {
    client.losses[shortened.sequence_id()] = shortened.losses();
  }
}

void CoreWorld::RunOperation(Client& client, const v1::Operation& proto, v1::OperationResult* out) {
  absl::Status status = CheckServed(proto);
  absl::StatusOr<Operation> operation = OperationFromProto(proto);
  if (status.ok()) status = operation.status();
  if (!status.ok()) {
    OperationResultToProto(status, out);
    return CheckError(status, *out);
  }
  core_->Maintain(now_, 0);  // Expiries are not effects of the operation.
  const Trace before = TraceOf(*core_);
  const absl::StatusOr<OperationResult> result =
      core_->Execute(client.session.id, *operation, now_);
  OperationResultToProto(result, out);
  if (!result.ok()) {
    CheckError(result.status(), *out);
    PAGODA_CHECK(TraceOf(*core_) == before, "a refused operation leaves no trace");
    return;
  }
  PAGODA_CHECK(!out->has_error() && out->result_case() != v1::OperationResult::RESULT_NOT_SET,
               "an operation that succeeds has a result");
  Learn(client, proto, *out);
}

void CoreWorld::Learn(Client& client, const v1::Operation& operation,
                      const v1::OperationResult& result) {
  if (operation.has_allocate_blocks()) {
    const auto handles = RowsFromBytes<BlockHandle>(result.allocate_blocks().blocks());
    PAGODA_CHECK(handles.has_value(), "an answer has whole rows");
    for (const BlockHandle& block : *handles) {
      client.raw_blocks.emplace_back(operation.allocate_blocks().window_size(), block.ref());
    }
  } else if (operation.has_fork_sequence()) {
    client.losses[operation.fork_sequence().new_sequence_id()] = result.fork_sequence().losses();
  } else if (operation.has_add_sequence()) {
    client.losses.erase(operation.add_sequence().sequence_id());
  } else if (operation.has_pin_prefix()) {
    client.pins.push_back(result.pin_prefix().pin_id());
  }
}

void CoreWorld::EndCopy(size_t choice, const absl::Status& status) {
  std::vector<size_t> startable;
  for (size_t i = 0; i < copies_.size(); ++i) {
    const bool waits = absl::c_any_of(copies_, [&](const Order& other) {
      return absl::c_linear_search(copies_[i].after, other.ticket);
    });
    if (!waits) startable.push_back(i);
  }
  if (startable.empty()) return;
  const auto copy = copies_.begin() + static_cast<ptrdiff_t>(startable[choice % startable.size()]);
  const Ticket ticket = copy->ticket;
  copies_.erase(copy);
  core_->Complete(Lane::kMemory, ticket, status, now_);
}

void CoreWorld::Follow() {
  for (const Order& copy : core_->TakeOrders()) {
    for (const Ticket after : copy.after) {
      PAGODA_CHECK(after < copy.ticket, "a copy waits for earlier ones");
    }
    copies_.push_back(copy);
  }
  for (const Event& event : core_->TakeEvents()) {
    const absl::Status status = shadow_.Apply(event);
    PAGODA_CHECK(status.ok(), std::string(status.message()).c_str());
    std::string bytes;
    AppendEncoded(event, &bytes);
    v1::WatchResponse message;
    PAGODA_CHECK(message.ParseFromString(bytes) && message.events_size() == 1 &&
                     message.events(0).revision() == event.revision.value(),
                 "an event keeps its revision");
  }
  core_->CheckInvariants();
  for (const CacheInfo::Window& window : core_->info().windows) {
    const absl::Status law = shadow_.Compare(window.window, core_->DumpTree(window.window));
    PAGODA_CHECK(law.ok(), std::string(law.message()).c_str());
  }
  FollowSlots();
}

void CoreWorld::FollowSlots() {
  for (SlotChange& change : core_->TakeSlotChanges()) {
    const auto place = std::make_tuple(change.window_index, change.slot.tier, change.slot.slot);
    journal_.erase(place);
    if (change.content.has_value()) journal_.emplace(place, *std::move(change.content));
  }
  const auto& windows = core_->info().windows;
  for (uint32_t w = 0; w < windows.size(); ++w) {
    std::map<BlockId, const SlotContent*> told;
    for (const auto& [place, content] : journal_) {
      if (std::get<0>(place) != w) continue;
      PAGODA_CHECK(told.emplace(content.block.id, &content).second, "a block has one slot");
    }
    const std::vector<TreeEntry> tree = core_->DumpTree(windows[w].window);
    PAGODA_CHECK(tree.size() == told.size(), "the journal has as many blocks as the tree");
    for (const TreeEntry& entry : tree) {
      const auto found = told.find(entry.id);
      PAGODA_CHECK(found != told.end() && found->second->tokens == entry.tokens,
                   "the journal says what the tree holds");
    }
  }
}

void CoreWorld::EndAll() {
  while (!copies_.empty()) EndCopy(0, absl::OkStatus());
  for (const Client& client : clients_) {
    // Sessions that a wrong token or a lease has ended are refused.
    (void)core_->endings().CloseSession(client.session, now_);
  }
  now_ += 2 * kLease;
  core_->endings().ExpireSessions(now_);
  for (const QuarantineInfo& quarantine : core_->endings().Quarantines()) {
    PAGODA_CHECK(core_->endings().ReleaseQuarantine(quarantine.session, now_).ok(),
                 "a quarantine that is listed can be ended");
  }
  core_->Maintain(now_, 0);  // Pins whose lease is over end without a call.
  for (const PinInfo& pin : core_->prefixes().ListPins().pins) {
    PAGODA_CHECK(core_->prefixes().Unpin(pin.pin, now_).ok(), "a pin that is listed can be ended");
  }
  Follow();
  while (!copies_.empty()) EndCopy(0, absl::OkStatus());
}

void CoreWorld::Finish() {
  EndAll();
  core_->ResetPrefixCache(now_);
  Follow();
  const ManagerStats stats = core_->Stats();
  PAGODA_CHECK(stats.sessions + stats.sequences + stats.pins + stats.copies_in_flight == 0,
               "everything has ended");
  for (const WindowStats& window : stats.windows) {
    for (const TierOccupancy& tier : window.tiers) {
      PAGODA_CHECK(tier.free == tier.capacity, "no block is leaked");
    }
  }
}

}  // namespace pagoda::fuzz
