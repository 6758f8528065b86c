#include "clients/router/valkey_sink.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "manager/shared_manager.h"

namespace pagoda {
namespace {

using router_store::StoreNode;
using Command = StoreLink::Command;

constexpr absl::Duration kPace = absl::Milliseconds(20);
constexpr size_t kChangesAtOnce = 4096;
constexpr uint32_t kBucketsAtOnce = 8;
constexpr uint32_t kMaxBuckets = 1 << 28;
// A stream of an epoch that is over goes away by itself.
constexpr absl::Duration kStreamLife = absl::Hours(1);

// Deletes the fields whose value is still the given one.
constexpr char kDeleteIfEqual[] =
    "local n = 0 for i = 1, #ARGV, 2 do if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] "
    "then n = n + redis.call('HDEL', KEYS[1], ARGV[i]) end end return n";

// Never 0.
uint64_t NewGeneration() {
  absl::BitGen random;
  return absl::Uniform<uint64_t>(random) | 1;
}

absl::Status CheckReply(const resp::Value& reply) {
  if (reply.kind != resp::Kind::kError) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the store refuses: ", reply.text));
}

// The first error among replies.
absl::Status CheckReplies(const std::vector<resp::Value>& replies) {
  for (const resp::Value& reply : replies) {
    if (absl::Status valid = CheckReply(reply); !valid.ok()) return valid;
  }
  return absl::OkStatus();
}

std::string Text(absl::Duration duration) {
  return absl::StrCat(absl::ToInt64Milliseconds(duration));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ValkeySink>> ValkeySink::Create(const Options& options) {
  if (options.buckets == 0 || options.buckets > kMaxBuckets) {
    return InvalidArgument(absl::StrCat(options.buckets, " buckets"));
  }
  if (options.lease < absl::Milliseconds(100) || options.max_waiting == 0 ||
      options.purge_pause <= absl::ZeroDuration()) {
    return InvalidArgument("a lease below 100 ms, no room for changes, or no pause of the purge");
  }
  return std::unique_ptr<ValkeySink>(new ValkeySink(options));
}

ValkeySink::ValkeySink(const Options& options)
    : options_(options), backoff_(absl::Milliseconds(50), absl::Seconds(2)) {}

ValkeySink::~ValkeySink() { Stop(); }

absl::Status ValkeySink::Start(std::function<void(NodeId)> refresh) {
  refresh_ = std::move(refresh);
  return thread_.Start("pagoda-sink", [this] { Run(); });
}

void ValkeySink::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.Join();
}

ValkeySink::Figures ValkeySink::figures() const {
  absl::MutexLock lock(&mutex_);
  return figures_;
}

// --- What the router tells ---

void ValkeySink::Begin(NodeId id, const RouterNode& node) {
  absl::MutexLock lock(&mutex_);
  nodes_[id] = {.name = node.name,
                .peer_address = node.peer_address,
                .generation = NewGeneration(),
                .number = std::nullopt,
                .lease = {},
                .renewed = {}};
}

void ValkeySink::End(NodeId id) {
  absl::MutexLock lock(&mutex_);
  DropQueue(id);
  const auto node = nodes_.find(id);
  if (node == nodes_.end()) return;
  if (node->second.number.has_value()) ended_.push_back(*node->second.number);
  nodes_.erase(node);
}

absl::Status ValkeySink::Accept(NodeId, const ServedCache& cache) {
  const router_store::Meta meta = {
      .buckets = options_.buckets,
      .chunk_tokens = options_.chunk_tokens == 0 ? cache.tokens_per_block : options_.chunk_tokens,
      .tokens_per_block = cache.tokens_per_block,
      .model = cache.model_fingerprint};
  absl::MutexLock lock(&mutex_);
  if (meta_.has_value() && *meta_ != meta) {
    return InvalidArgument("the store holds the records of another model or block size");
  }
  meta_ = meta;
  return absl::OkStatus();
}

void ValkeySink::Apply(NodeId id, const NodeWatch::Position& position,
                       absl::Span<const NodeWatch::Change> changes) {
  absl::MutexLock lock(&mutex_);
  Node& node = nodes_[id];
  if (node.lost) return;
  node.live = true;
  if (changes.empty()) return;
  figures_.waiting += changes.size();
  queue_.push_back({id, position, {changes.begin(), changes.end()}});
  if (figures_.waiting > options_.max_waiting) Lose(id, node);
}

void ValkeySink::Forget(NodeId id) {
  absl::MutexLock lock(&mutex_);
  DropQueue(id);
  Node& node = nodes_[id];
  node.generation = NewGeneration();
  node.live = false;
  node.lost = false;
  node.logged = 0;
}

void ValkeySink::Hide(NodeId id) {
  absl::MutexLock lock(&mutex_);
  nodes_[id].hidden = true;
}

void ValkeySink::Show(NodeId id) {
  absl::MutexLock lock(&mutex_);
  nodes_[id].hidden = false;
}

void ValkeySink::Lose(NodeId id, Node& node) {
  DropQueue(id);
  node.generation = NewGeneration();
  node.live = false;
  node.lost = true;
  node.wants_refresh = true;
}

void ValkeySink::DropQueue(NodeId id) {
  std::erase_if(queue_, [&](const Batch& batch) {
    if (batch.id != id) return false;
    figures_.waiting -= batch.changes.size();
    return true;
  });
}

// --- The thread ---

void ValkeySink::Run() {
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(this, &ValkeySink::HasWork), kPace);
      if (stopping_) break;
    }
    const absl::Status done = Step();
    {
      absl::MutexLock lock(&mutex_);
      figures_.connected = done.ok();
      if (!done.ok()) figures_.error = done;
    }
    if (!done.ok()) {
      link_.reset();
      const absl::Duration pause = backoff_.Next();
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&stopping_), pause);
    }
  }
  DeleteLeases();
}

absl::Status ValkeySink::Step() {
  if (link_ == nullptr) {
    if (absl::Status connected = Connect(); !connected.ok()) return connected;
    backoff_ = Backoff(absl::Milliseconds(50), absl::Seconds(2));
  }
  std::vector<NodeId> refreshed;
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [id, node] : nodes_) {
      if (std::exchange(node.wants_refresh, false)) refreshed.push_back(id);
    }
    figures_.refreshes += refreshed.size();
  }
  for (const NodeId id : refreshed) refresh_(id);
  const absl::Time now = SharedManager::Now();
  if (absl::Status numbered = Number(); !numbered.ok()) return numbered;
  if (absl::Status leased = Lease(now); !leased.ok()) return leased;
  if (absl::Status written = Write(); !written.ok()) return written;
  return Purge(now);
}

absl::Status ValkeySink::Connect() {
  absl::StatusOr<std::unique_ptr<StoreLink>> link = StoreLink::Connect(options_.store);
  if (!link.ok()) return link.status();
  link_ = *std::move(link);
  const bool is_first = !std::exchange(was_connected_, true);
  absl::MutexLock lock(&mutex_);
  for (auto& [id, node] : nodes_) {
    // It can be another server now, or one that has lost what was written.
    node.number.reset();
    node.lease.clear();
    node.leased_generation = 0;
    if (!is_first) Lose(id, node);
  }
  return absl::OkStatus();
}

// All sinks of a prefix agree.
absl::Status ValkeySink::CheckMeta() {
  std::optional<router_store::Meta> meta;
  {
    absl::MutexLock lock(&mutex_);
    meta = meta_;
  }
  if (!meta.has_value()) return absl::OkStatus();
  const std::vector<std::string> fields = {"buckets",
                                           absl::StrCat(meta->buckets),
                                           "chunk_tokens",
                                           absl::StrCat(meta->chunk_tokens),
                                           "tokens_per_block",
                                           absl::StrCat(meta->tokens_per_block),
                                           "model",
                                           meta->model};
  std::vector<Command> commands;
  const std::string key = router_store::MetaKey(options_.prefix);
  for (size_t i = 0; i < fields.size(); i += 2) {
    commands.push_back({"HSETNX", key, fields[i], fields[i + 1]});
    commands.push_back({"HGET", key, fields[i]});
  }
  const absl::StatusOr<std::vector<resp::Value>> replies = link_->Run(commands);
  if (!replies.ok()) return replies.status();
  if (absl::Status valid = CheckReplies(*replies); !valid.ok()) return valid;
  for (size_t i = 0; i < fields.size(); i += 2) {
    const std::string& there = (*replies)[i + 1].text;
    if (there == fields[i + 1]) continue;
    return absl::FailedPreconditionError(absl::StrCat("the store has ", key, " ", fields[i], " ",
                                                      there, ", and this sink ", fields[i + 1]));
  }
  return absl::OkStatus();
}

// Gives a number to each node that has records and no number.
absl::Status ValkeySink::Number() {
  std::vector<std::pair<NodeId, std::string>> unnumbered;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, node] : nodes_) {
      if (node.live && !node.number.has_value()) unnumbered.emplace_back(id, node.name);
    }
  }
  if (unnumbered.empty()) return absl::OkStatus();
  if (absl::Status agreed = CheckMeta(); !agreed.ok()) return agreed;
  const std::string ids = router_store::IdsKey(options_.prefix);
  for (const auto& [id, name] : unnumbered) {
    const auto next = link_->Run({{"INCR", router_store::NextNodeKey(options_.prefix)}});
    if (!next.ok()) return next.status();
    if (absl::Status valid = CheckReplies(*next); !valid.ok()) return valid;
    // An earlier sink may have numbered the node. Then the new number stays unused.
    const auto number = link_->Run(
        {{"HSETNX", ids, name, absl::StrCat(next->front().integer)}, {"HGET", ids, name}});
    if (!number.ok()) return number.status();
    if (absl::Status valid = CheckReplies(*number); !valid.ok()) return valid;
    StoreNode given = 0;
    if (!absl::SimpleAtoi((*number)[1].text, &given)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the store has the number \"", (*number)[1].text, "\" of a node"));
    }
    absl::MutexLock lock(&mutex_);
    const auto node = nodes_.find(id);
    if (node != nodes_.end() && node->second.name == name) node->second.number = given;
  }
  return absl::OkStatus();
}

// Writes, renews and deletes leases.
absl::Status ValkeySink::Lease(absl::Time now) {
  std::vector<Command> commands;
  std::vector<NodeId> renewals;  // Of the command with the same index; of others any.
  {
    absl::MutexLock lock(&mutex_);
    for (const StoreNode number : std::exchange(ended_, {})) {
      commands.push_back({"DEL", router_store::LeaseKey(options_.prefix, number)});
    }
    renewals.resize(commands.size());
    for (auto& [id, node] : nodes_) {
      if (!node.number.has_value()) continue;
      const std::string wanted = node.live
                                     ? router_store::LeaseText({.generation = node.generation,
                                                                .name = node.name,
                                                                .peer_address = node.peer_address,
                                                                .hidden = node.hidden})
                                     : "";
      const bool is_same = wanted == node.lease;
      if (is_same && (wanted.empty() || now - node.renewed < options_.lease / 3)) continue;
      const std::string key = router_store::LeaseKey(options_.prefix, *node.number);
      if (wanted.empty()) {
        commands.push_back({"DEL", key});
      } else {
        commands.push_back({"SET", key, wanted, "PX", Text(options_.lease)});
        // A lease that has expired means that records may have been purged meanwhile.
        if (is_same) commands.back().push_back("XX");
      }
      renewals.resize(commands.size(), id);
      node.lease = wanted;
      node.leased_generation = wanted.empty() ? 0 : node.generation;
      node.renewed = now;
    }
  }
  if (commands.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<resp::Value>> replies = link_->Run(commands);
  if (!replies.ok()) return replies.status();
  if (absl::Status valid = CheckReplies(*replies); !valid.ok()) return valid;
  absl::MutexLock lock(&mutex_);
  for (size_t i = 0; i < replies->size(); ++i) {
    if ((*replies)[i].kind != resp::Kind::kNull) continue;
    const auto node = nodes_.find(renewals[i]);
    if (node != nodes_.end()) Lose(node->first, node->second);
  }
  return absl::OkStatus();
}

void ValkeySink::AppendChanges(const Batch& batch, Node& node, std::vector<Command>* commands) {
  std::string added, removed;
  for (const NodeWatch::Change& change : batch.changes) {
    const std::string key = router_store::BucketKey(
        options_.prefix, router_store::BucketOf(change.chunk, options_.buckets));
    const std::string field = router_store::FieldOf(change.chunk, *node.number);
    if (change.kind == NodeWatch::Change::Kind::kAdd) {
      const std::string value = router_store::ValueOf(node.generation, change.tier);
      commands->push_back({"HSET", key, field, value});
      absl::StrAppend(&added, field.substr(0, 8), value.substr(8));
    } else {
      commands->push_back({"HDEL", key, field});
      absl::StrAppend(&removed, field.substr(0, 8));
    }
  }
  const bool is_logged = options_.stream_entries > 0 && !batch.position.in_snapshot;
  if (!is_logged || batch.position.revision <= node.logged) return;
  const std::string events =
      router_store::EventsKey(options_.prefix, *node.number, batch.position.epoch);
  commands->push_back({"XADD", events, "MAXLEN", "~", absl::StrCat(options_.stream_entries),
                       absl::StrCat(batch.position.revision, "-0"), "previous",
                       absl::StrCat(node.logged), "added", added, "removed", removed});
  commands->push_back({"PEXPIRE", events, Text(kStreamLife)});
  node.logged = batch.position.revision;
}

absl::Status ValkeySink::Write() {
  for (;;) {
    std::vector<Command> commands;
    size_t changes = 0;
    {
      absl::MutexLock lock(&mutex_);
      while (!queue_.empty() && changes < kChangesAtOnce) {
        Node& node = nodes_[queue_.front().id];
        // It came after Number or Lease. Records whose generation has no lease could be purged.
        if (!node.number.has_value() || node.leased_generation != node.generation) break;
        changes += queue_.front().changes.size();
        figures_.waiting -= queue_.front().changes.size();
        AppendChanges(queue_.front(), node, &commands);
        queue_.pop_front();
      }
    }
    if (commands.empty()) return absl::OkStatus();
    const absl::StatusOr<std::vector<resp::Value>> replies = link_->Run(commands);
    if (!replies.ok()) return replies.status();
    for (const resp::Value& reply : *replies) {
      // The entry of a stream is there already: its reply was lost.
      const bool is_there =
          reply.kind == resp::Kind::kError && absl::StrContains(reply.text, "equal or smaller");
      if (is_there) continue;
      if (absl::Status valid = CheckReply(reply); !valid.ok()) return valid;
    }
    absl::MutexLock lock(&mutex_);
    figures_.written += changes;
    if (changes < kChangesAtOnce) return absl::OkStatus();
  }
}

// Removes records of a few buckets that do not count any more.
absl::Status ValkeySink::Purge(absl::Time now) {
  if (now < next_purge_) return absl::OkStatus();
  next_purge_ = now + options_.purge_pause;
  std::vector<Command> reads;
  for (uint32_t i = 0; i < std::min(kBucketsAtOnce, options_.buckets); ++i) {
    reads.push_back({"HGETALL", router_store::BucketKey(options_.prefix, purge_bucket_)});
    purge_bucket_ = (purge_bucket_ + 1) % options_.buckets;
  }
  const absl::StatusOr<std::vector<resp::Value>> buckets = link_->Run(reads);
  if (!buckets.ok()) return buckets.status();
  std::set<StoreNode> nodes;
  for (const resp::Value& bucket : *buckets) {
    for (size_t i = 0; i + 1 < bucket.elements.size(); i += 2) {
      const auto record =
          router_store::ParseRecord(bucket.elements[i].text, bucket.elements[i + 1].text);
      if (record.has_value()) nodes.insert(record->node);
    }
  }
  if (nodes.empty()) return absl::OkStatus();
  // The leases are read after the records. A generation that a node has drawn since then has no
  // records among those that were read.
  Command get = {"MGET"};
  for (const StoreNode node : nodes) get.push_back(router_store::LeaseKey(options_.prefix, node));
  const absl::StatusOr<std::vector<resp::Value>> leases = link_->Run({get});
  if (!leases.ok()) return leases.status();
  if (absl::Status valid = CheckReplies(*leases); !valid.ok()) return valid;
  if (leases->front().elements.size() != nodes.size()) {
    return absl::FailedPreconditionError("the store answers MGET with another number of values");
  }
  std::map<StoreNode, uint64_t> generations;
  size_t next = 0;
  for (const StoreNode node : nodes) {
    const auto lease = router_store::ParseLease(leases->front().elements[next++].text);
    if (lease.has_value()) generations[node] = lease->generation;
  }
  std::vector<Command> deletes;
  for (size_t b = 0; b < buckets->size(); ++b) {
    Command command = {"EVAL", kDeleteIfEqual, "1", reads[b][1]};
    const std::vector<resp::Value>& elements = (*buckets)[b].elements;
    for (size_t i = 0; i + 1 < elements.size(); i += 2) {
      const auto record = router_store::ParseRecord(elements[i].text, elements[i + 1].text);
      if (!record.has_value()) continue;
      const auto current = generations.find(record->node);
      if (current != generations.end() && current->second == record->generation) continue;
      command.push_back(elements[i].text);
      command.push_back(elements[i + 1].text);
    }
    if (command.size() > 4) deletes.push_back(std::move(command));
  }
  if (deletes.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<resp::Value>> deleted = link_->Run(deletes);
  if (!deleted.ok()) return deleted.status();
  if (absl::Status valid = CheckReplies(*deleted); !valid.ok()) return valid;
  absl::MutexLock lock(&mutex_);
  for (const resp::Value& reply : *deleted) {
    figures_.purged += static_cast<uint64_t>(reply.integer);
  }
  return absl::OkStatus();
}

void ValkeySink::DeleteLeases() {
  if (link_ == nullptr) return;
  std::vector<Command> commands;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, node] : nodes_) {
      if (!node.number.has_value() || node.lease.empty()) continue;
      commands.push_back({"DEL", router_store::LeaseKey(options_.prefix, *node.number)});
    }
  }
  // Else they expire.
  if (!commands.empty()) static_cast<void>(link_->Run(commands));
}

}  // namespace pagoda
