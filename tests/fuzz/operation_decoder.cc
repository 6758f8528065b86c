#include "tests/fuzz/operation_decoder.h"

#include <array>
#include <limits>
#include <string>

#include "manager/sequences/running_sequences.h"
#include "manager/tree/sequence.h"
#include "wire/rows.h"

namespace pagoda::fuzz {
namespace {

constexpr uint32_t kSequenceIds = 5;
constexpr size_t kMaxOperations = 6;
// Numbers at which arithmetic and limits break.
constexpr std::array<uint32_t, 6> kExtremes = {0,
                                               1u << 16,
                                               1u << 28,
                                               1u << 31,
                                               std::numeric_limits<uint32_t>::max() - 1,
                                               std::numeric_limits<uint32_t>::max()};

// Mostly below `count`.
uint32_t Number(ByteReader& in, uint32_t count) {
  const uint8_t byte = in.Byte();
  return byte < 250 ? byte % count : kExtremes[byte - 250];
}

uint64_t DrawSequence(ByteReader& in) { return in.Below(kSequenceIds); }

// The beginning of a text that all clients share, then a few tokens of the client alone.
template <class Request>
void DrawTokens(ByteReader& in, Request* out) {
  const uint8_t shape = in.Byte();
  for (uint32_t i = 0; i < shape % 16; ++i) out->add_tokens(1 + i % 2);
  for (int i = 0; i < shape / 64; ++i) out->add_tokens(in.Below(3));
}

// Keys instead of the tokens, or in addition to them. A key can have no bytes, which is refused;
// one byte; the most bytes allowed; or one byte more.
enum class Tokens : uint8_t { kGo, kStay };
template <class Request>
void NameByKeys(Request* out, Tokens tokens) {
  constexpr std::array<size_t, 4> kSizes = {0, 1, 64, 65};
  for (const uint32_t token : out->tokens()) {
    out->add_keys(std::string(kSizes[token % kSizes.size()], 'k'));
  }
  if (tokens == Tokens::kGo) out->clear_tokens();
}

template <class Request>
void DrawNamespace(ByteReader& in, Request* out) {
  const uint8_t shape = in.Byte();
  if (shape < 192) return;
  if (shape & 1) out->mutable_namespace_()->set_cache_salt("salt");
  if (shape & 2) out->mutable_namespace_()->set_lora_id(shape & 4 ? 7 : 0);
  if (shape & 8) out->mutable_namespace_()->set_tenant(std::string(shape & 16 ? 200 : 1, 't'));
  if ((shape & 32) == 0) return;
  out->mutable_namespace_()->set_keyed(true);
  NameByKeys(out, shape & 16 ? Tokens::kStay : Tokens::kGo);
}

template <class Request>
void DrawExtras(ByteReader& in, Request* out) {
  const uint8_t shape = in.Byte();
  if (shape < 192) return;
  if (shape & 1) {
    const int ids = out->tokens_size() + (shape & 2 ? 1 : 0);
    for (int i = 0; i < ids; ++i) out->add_extra_token_ids(in.Below(2));
  }
  for (uint32_t i = 0, start = 0; i < (shape >> 2 & 3u); ++i) {
    v1::MultimodalItem* item = out->add_multimodal_items();
    item->set_digest(std::string(shape & 32 ? 31 : 32, static_cast<char>('a' + in.Below(2))));
    item->set_token_start(start + Number(in, 3));
    item->set_token_count(Number(in, 4));
    item->set_item_offset(Number(in, 3));
    start = item->token_start() + item->token_count();
  }
}

template <class Request>
void DrawRetention(ByteReader& in, Request* out) {
  const uint8_t shape = in.Byte();
  if (shape < 128) return;
  for (uint32_t i = 0, start = 0; i < (shape & 3u); ++i) {
    v1::RetentionRange* range = out->add_retention();
    range->set_token_start(start);
    start += 1 + Number(in, 6);
    if (i + 1 < (shape & 3u) || (shape & 4)) range->set_token_end(start);
    range->set_priority(Number(in, 101));
    if (shape & 8) range->set_duration_ms(Number(in, 100));
  }
}

// Makes the requests of one client.
class Decoder {
 public:
  Decoder(ByteReader& in, const BlockManager& core, const Client& client)
      : in_(in), core_(core), client_(client) {}

  // Operations are drawn by the amount of code behind them.
  v1::Operation Draw() {
    v1::Operation out;
    const uint32_t kind = in_.Below(kKinds);
    switch (kind) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        AddSequence(out.mutable_add_sequence());
        break;
      case 5:
      case 6:
      case 7:
        Extend(out.mutable_append_tokens());
        break;
      case 8:
        Step(out.mutable_append_step());
        break;
      case 9:
      case 10:
      case 11:
      case 12:
        Extend(out.mutable_commit_tokens());
        break;
      case 13:
      case 14:
      case 15:
        out.mutable_free_sequence()->set_sequence_id(DrawSequence(in_));
        break;
      case 16:
        out.mutable_reserve_tokens()->set_sequence_id(DrawSequence(in_));
        out.mutable_reserve_tokens()->set_count(Number(in_, 8));
        break;
      case 17:
      case 18:
        out.mutable_fork_sequence()->set_sequence_id(DrawSequence(in_));
        out.mutable_fork_sequence()->set_new_sequence_id(DrawSequence(in_));
        break;
      case 19:
      case 20:
        Truncate(out.mutable_truncate_sequence());
        break;
      default:
        DrawOfBlocks(kind, &out);
    }
    return out;
  }

 private:
  static constexpr uint32_t kKinds = 36;  // The last three only look.

  // Raw blocks and prefixes.
  void DrawOfBlocks(uint32_t kind, v1::Operation* out) {
    switch (kind) {
      case 21:
        out->mutable_allocate_blocks()->set_window_size(DrawWindow());
        out->mutable_allocate_blocks()->set_count(Number(in_, 5));
        break;
      case 22:
        FreeBlocks(out->mutable_free_blocks());
        break;
      case 31:
        Fill(out->mutable_fill_blocks());
        break;
      case 32:
        Describe(out->mutable_describe_blocks());
        break;
      default:
        DrawOfPrefix(kind, out);
    }
  }

  void DrawOfPrefix(uint32_t kind, v1::Operation* out) {
    switch (kind) {
      case 23:
      case 24:
        Prefix(out->mutable_offload_prefix());
        break;
      case 25:
      case 26:
        Prefix(out->mutable_prefetch_prefix());
        break;
      case 27:
        Prefix(out->mutable_pin_prefix());
        if (in_.OneIn(2)) out->mutable_pin_prefix()->set_lease_ms(Number(in_, 100));
        break;
      case 28:
        out->mutable_unpin_prefix()->set_pin_id(
            client_.pins.empty() ? in_.Below(4) : client_.pins[in_.Byte() % client_.pins.size()]);
        break;
      case 29:
        Prefix(out->mutable_set_retention());
        DrawRetention(in_, out->mutable_set_retention());
        break;
      case 30:
        Prefix(out->mutable_invalidate_prefix());
        break;
      default:
        Look(out);
    }
  }

  // What changes nothing.
  void Look(v1::Operation* out) {
    switch (in_.Below(6)) {
      case 0:
        Prefix(out->mutable_match_prefix());
        DrawExtras(in_, out->mutable_match_prefix());
        break;
      case 1:
        out->mutable_describe_sequence()->set_sequence_id(DrawSequence(in_));
        break;
      case 2:
        out->mutable_query_capacity()->set_sequence_id(DrawSequence(in_));
        Prefix(out->mutable_query_capacity());
        out->mutable_query_capacity()->set_max_new_tokens(Number(in_, 20));
        break;
      case 3:
        out->mutable_list_pins();
        break;
      case 4:
        out->mutable_wait_for_ticket()->set_ticket(Number(in_, 20));
        break;
      default:
        out->mutable_describe_pools();
    }
  }

  void AddSequence(v1::AddSequenceRequest* out) {
    out->set_sequence_id(DrawSequence(in_));
    Prefix(out);
    if (in_.OneIn(4)) out->set_reserved_tokens(Number(in_, 20));
    DrawExtras(in_, out);
    DrawRetention(in_, out);
    if (in_.OneIn(8)) out->set_generated_priority(Number(in_, 101));
    if (in_.OneIn(8)) out->set_generated_duration_ms(Number(in_, 100));
  }

  // More tokens. All or some of them are computed.
  template <class Request>
  void Extend(Request* out) {
    out->set_sequence_id(DrawSequence(in_));
    const uint8_t shape = in_.Byte();
    for (int i = 0; i < shape % 4; ++i) out->add_tokens(in_.Below(3));
    if (const auto found = client_.losses.find(out->sequence_id()); found != client_.losses.end()) {
      out->set_known_losses(found->second);
    }
    const auto sequence =
        core_.sequences().FindSequence(client_.session.id, SequenceId{out->sequence_id()});
    const uint32_t tokens = sequence.ok() ? (*sequence)->token_count : 0;
    auto added = static_cast<uint32_t>(out->tokens_size());
    const bool keyed = sequence.ok() && (*sequence)->keyed;
    // Usually of the sequence's kind.
    if constexpr (requires { out->keys(); }) {
      if (keyed != (shape >> 2 & 15) < 1) {
        NameByKeys(out, Tokens::kGo);
        added *= core_.info().tokens_per_block;
      }
    }
    if (shape < 128) {
      out->set_computed_tokens(tokens + added);
    } else if (shape < 192) {
      out->set_computed_tokens(tokens);
    } else if (shape < 224) {
      out->set_computed_tokens(Number(in_, 20));
    }
  }

  // A few of these in one step. Sometimes the arrays' lengths do not fit together.
  void Step(v1::AppendStepRequest* out) {
    const uint32_t count = in_.Below(5);
    for (uint32_t i = 0; i < count; ++i) {
      v1::AppendTokensRequest one;
      Extend(&one);
      out->add_sequence_ids(one.sequence_id());
      out->mutable_tokens()->Add(one.tokens().begin(), one.tokens().end());
      out->add_token_counts(static_cast<uint32_t>(one.tokens_size()));
      out->add_computed_tokens(one.computed_tokens());
      out->add_known_losses(one.known_losses());
    }
    const uint8_t shape = in_.Byte();
    if (shape < 16) out->add_token_counts(Number(in_, 8));
    if (shape >= 240) out->clear_known_losses();
  }

  void Truncate(v1::TruncateSequenceRequest* out) {
    out->set_sequence_id(DrawSequence(in_));
    const auto sequence =
        core_.sequences().FindSequence(client_.session.id, SequenceId{out->sequence_id()});
    const uint32_t tokens = sequence.ok() ? (*sequence)->token_count : 4;
    out->set_token_count(Number(in_, tokens + 1));
  }

  // Mostly a raw block of the session, whose window the request then names.
  template <class Request>
  BlockRef RawBlock(Request* out) {
    if (client_.raw_blocks.empty() || in_.OneIn(8)) {
      const BlockId id{Number(in_, 16)};
      return {id, Generation{in_.Below(4)}};
    }
    const auto& [window, known] = client_.raw_blocks[in_.Byte() % client_.raw_blocks.size()];
    out->set_window_size(window);
    return known;
  }

  template <class Request>
  std::vector<BlockRef> RawBlocks(Request* out) {
    std::vector<BlockRef> blocks(in_.Below(4));
    for (BlockRef& block : blocks) block = RawBlock(out);
    return blocks;
  }

  // Sometimes the bytes of the rows end within a row.
  template <class Row>
  std::string Rows(const std::vector<Row>& rows) {
    std::string bytes = RowsToBytes<Row>(rows);
    if (!bytes.empty() && in_.OneIn(16)) {
      bytes.resize(in_.Below(static_cast<uint32_t>(bytes.size())));
    }
    return bytes;
  }

  void FreeBlocks(v1::FreeBlocksRequest* out) {
    out->set_window_size(DrawWindow());
    out->set_blocks(Rows(RawBlocks(out)));
  }

  void Fill(v1::FillBlocksRequest* out) {
    out->set_window_size(DrawWindow());
    std::vector<std::array<uint32_t, 4>> rows(in_.Below(4));
    for (auto& row : rows) {
      const BlockRef block = RawBlock(out);
      row = {block.id.value(), block.generation.value(), Number(in_, 6), in_.OneIn(4) ? 1u : 0u};
      if (in_.OneIn(16)) row[3] = Number(in_, 3);
    }
    out->set_blocks(Rows(rows));
  }

  // Raw blocks, and blocks of a sequence.
  void Describe(v1::DescribeBlocksRequest* out) {
    out->set_window_size(DrawWindow());
    std::vector<BlockRef> blocks = RawBlocks(out);
    const auto sequence =
        core_.sequences().FindSequence(client_.session.id, SequenceId{DrawSequence(in_)});
    for (size_t w = 0; sequence.ok() && w < (*sequence)->windows.size(); ++w) {
      if (core_.info().windows[w].window.value() != out->window_size()) continue;
      for (const BlockHandle& block : (*sequence)->windows[w].table) blocks.push_back(block.ref());
    }
    out->set_blocks(Rows(blocks));
  }

  template <class Request>
  void Prefix(Request* out) {
    DrawTokens(in_, out);
    DrawNamespace(in_, out);
  }

  // A window of the cache, or another size.
  uint32_t DrawWindow() {
    const auto& windows = core_.info().windows;
    const uint32_t index = in_.Below(static_cast<uint32_t>(windows.size()) + 1);
    if (index == windows.size()) return Number(in_, 16);
    return windows[index].window == kFullAttention ? 0 : windows[index].window.value();
  }

  ByteReader& in_;
  const BlockManager& core_;
  const Client& client_;
};

}  // namespace

v1::Operation DecodeOperation(ByteReader& in, const BlockManager& core, const Client& client) {
  return Decoder(in, core, client).Draw();
}

v1::Batch DecodeBatch(ByteReader& in, const BlockManager& core, Client& client) {
  v1::Batch batch;
  const uint8_t shape = in.Byte();
  if (shape & 1) {
    client.step += shape >> 1 & 3;
    client.completed_step = std::min(client.step, client.completed_step + (shape >> 3 & 3));
  }
  batch.set_step(client.step);
  batch.set_completed_step(client.completed_step);
  const size_t count = 1 + (shape >> 5) % kMaxOperations;
  for (size_t i = 0; i < count && !in.empty(); ++i) {
    *batch.add_operations() = DecodeOperation(in, core, client);
  }
  return batch;
}

}  // namespace pagoda::fuzz
