// What a window's file says of a block, in the record of the block's slot.
//
//   record    u64 write id, u64 write id of the copy of the block above it (0: it is the first of
//             its namespace), the content (content_codec.h)
//
// A write id names one writing of one block in one file, and is never used again there. A block
// names the writing of its parent and not the parent's slot, so a slot that was written again has
// no children until they are written again too.
#ifndef PAGODA_MANAGER_DISK_BLOCK_RECORD_H_
#define PAGODA_MANAGER_DISK_BLOCK_RECORD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "manager/content_codec.h"
#include "manager/slot_journal.h"

namespace pagoda {

// Grows from write to write in a file. 0 names none.
using WriteId = uint64_t;
inline constexpr WriteId kNoWrite = 0;
inline constexpr WriteId kMaxWrite = WriteId{1} << 62;

struct BlockRecord {
  WriteId write_id = kNoWrite;
  WriteId parent = kNoWrite;  // Less than write_id.
  CodedContent content;       // Its name_space is there where `parent` is kNoWrite.
};

// May be longer than slab::kMaxRecordBytes.
std::vector<std::byte> EncodeRecord(WriteId write_id, WriteId parent, const SlotContent& content);
// The first bytes of that record, which name it.
std::array<std::byte, sizeof(WriteId)> RecordPrefix(WriteId write_id);
// None where the bytes are no record of a block of at most that many tokens, or where the id is
// above kMaxWrite.
std::optional<BlockRecord> DecodeRecord(absl::Span<const std::byte> record,
                                        uint32_t tokens_per_block);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_DISK_BLOCK_RECORD_H_
