#include "manager/disk/block_record.h"

#include <cstring>
#include <utility>

#include "base/byte_codec.h"

namespace pagoda {

std::vector<std::byte> EncodeRecord(WriteId write_id, WriteId parent, const SlotContent& content) {
  std::vector<std::byte> record;
  record.reserve(64 + content.tokens.size() * sizeof(TokenId));
  ByteWriter out(&record);
  out.Put(write_id);
  out.Put(parent);
  PutContent(parent == kNoWrite ? &content.name_space : nullptr, content.priority, content.key(),
             out);
  return record;
}

std::array<std::byte, sizeof(WriteId)> RecordPrefix(WriteId write_id) {
  std::array<std::byte, sizeof(WriteId)> prefix;
  std::memcpy(prefix.data(), &write_id, prefix.size());
  return prefix;
}

std::optional<BlockRecord> DecodeRecord(absl::Span<const std::byte> record,
                                        uint32_t tokens_per_block) {
  ByteReader in(record);
  BlockRecord block;
  block.write_id = in.Get<WriteId>();
  block.parent = in.Get<WriteId>();
  std::optional<CodedContent> content = GetContent(in, tokens_per_block);
  if (!content.has_value() || !in.at_end()) return std::nullopt;
  if (block.write_id > kMaxWrite || block.parent >= block.write_id) return std::nullopt;
  if (content->name_space.has_value() != (block.parent == kNoWrite)) return std::nullopt;
  block.content = *std::move(content);
  return block;
}

}  // namespace pagoda
