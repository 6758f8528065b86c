#include "clients/router/valkey_reader.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

using router_store::StoreNode;

constexpr uint32_t kMaxTokensPerBlock = 1024;

}  // namespace

absl::StatusOr<std::vector<resp::Value>> ValkeyReader::Run(
    const std::vector<StoreLink::Command>& commands) {
  if (link_ == nullptr) {
    absl::StatusOr<std::unique_ptr<StoreLink>> link = StoreLink::Connect(options_.store);
    if (!link.ok()) return link.status();
    link_ = *std::move(link);
  }
  absl::StatusOr<std::vector<resp::Value>> replies = link_->Run(commands);
  if (!replies.ok()) {
    link_.reset();
    meta_.reset();
    return replies;
  }
  for (const resp::Value& reply : *replies) {
    if (reply.kind == resp::Kind::kError) {
      return absl::FailedPreconditionError(absl::StrCat("the store refuses: ", reply.text));
    }
  }
  return replies;
}

absl::Status ValkeyReader::ReadMeta() {
  const auto replies = Run({{"HMGET", router_store::MetaKey(options_.prefix), "buckets",
                             "chunk_tokens", "tokens_per_block", "model"}});
  if (!replies.ok()) return replies.status();
  const std::vector<resp::Value>& values = replies->front().elements;
  router_store::Meta meta;
  if (values.size() != 4 || values[0].kind == resp::Kind::kNull) {
    return absl::NotFoundError(absl::StrCat("the store has no ", options_.prefix, ":meta"));
  }
  const bool is_valid = absl::SimpleAtoi(values[0].text, &meta.buckets) &&
                        absl::SimpleAtoi(values[1].text, &meta.chunk_tokens) &&
                        absl::SimpleAtoi(values[2].text, &meta.tokens_per_block) &&
                        meta.buckets > 0 && std::has_single_bit(meta.tokens_per_block) &&
                        meta.tokens_per_block <= kMaxTokensPerBlock && meta.chunk_tokens > 0 &&
                        meta.chunk_tokens % meta.tokens_per_block == 0;
  if (!is_valid) {
    return absl::FailedPreconditionError(
        absl::StrCat("the values of ", options_.prefix, ":meta make no sense"));
  }
  meta.model = values[3].text;
  meta_ = meta;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ValkeyReader::Match>> ValkeyReader::Find(const RoutedPrompt& prompt,
                                                                    size_t most) {
  absl::MutexLock lock(&mutex_);
  if (!meta_.has_value()) {
    if (absl::Status read = ReadMeta(); !read.ok()) return read;
  }
  const TokensPerBlock tokens_per_block(meta_->tokens_per_block);
  const std::vector<BlockHash> chunks = ChunkHashes(prompt, tokens_per_block, meta_->chunk_tokens);
  if (chunks.empty()) return std::vector<Match>();
  std::vector<StoreLink::Command> commands;
  for (const BlockHash chunk : chunks) {
    commands.push_back(
        {"HGETALL",
         router_store::BucketKey(options_.prefix, router_store::BucketOf(chunk, meta_->buckets))});
  }
  const auto buckets = Run(commands);
  if (!buckets.ok()) return buckets.status();
  // By chunk: the records of the nodes that have it.
  std::vector<std::map<StoreNode, router_store::Record>> records(chunks.size());
  std::set<StoreNode> nodes;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const std::vector<resp::Value>& elements = (*buckets)[i].elements;
    for (size_t e = 0; e + 1 < elements.size(); e += 2) {
      const auto record = router_store::ParseRecord(elements[e].text, elements[e + 1].text);
      if (!record.has_value() || record->chunk != chunks[i]) continue;
      records[i][record->node] = *record;
      nodes.insert(record->node);
    }
  }
  if (nodes.empty()) return std::vector<Match>();
  StoreLink::Command get = {"MGET"};
  for (const StoreNode node : nodes) get.push_back(router_store::LeaseKey(options_.prefix, node));
  const auto leases = Run({get});
  if (!leases.ok()) return leases.status();
  if (leases->front().elements.size() != nodes.size()) {
    return absl::FailedPreconditionError("the store answers MGET with another number of values");
  }
  std::vector<Match> matches;
  size_t next = 0;
  for (const StoreNode node : nodes) {
    const auto lease = router_store::ParseLease(leases->front().elements[next++].text);
    if (!lease.has_value() || lease->hidden) continue;
    // A node that has a chunk is taken to have those before it.
    for (size_t left = chunks.size(); left > 0; --left) {
      const auto record = records[left - 1].find(node);
      if (record == records[left - 1].end() || record->second.generation != lease->generation) {
        continue;
      }
      const size_t tokens = std::min(left * meta_->chunk_tokens, prompt.reusable(tokens_per_block));
      matches.push_back({.node = lease->name,
                         .peer_address = lease->peer_address,
                         .tokens = static_cast<uint32_t>(tokens),
                         .tier = record->second.tier});
      break;
    }
  }
  std::sort(matches.begin(), matches.end(), [](const Match& a, const Match& b) {
    return std::tie(b.tokens, a.tier, a.node) < std::tie(a.tokens, b.tier, b.node);
  });
  if (matches.size() > most) matches.resize(most);
  return matches;
}

}  // namespace pagoda
