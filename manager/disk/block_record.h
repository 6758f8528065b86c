// A block's record in the file of its window, beside the block's slot.
//
//   record    u64 write id, u64 write id of the copy of the block above it (0: it is the first of
//             its namespace), the content (content_codec.h)
//
// A write id names one write of one block in one file, and is never used again there. A block names
// the write of its parent, not the parent's slot. So a slot that was written again has no children
// until these are written again too.
#ifndef PAGODA_MANAGER_DISK_BLOCK_RECORD_H_
#define PAGODA_MANAGER_DISK_BLOCK_RECORD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "manager/restart/content_codec.h"
#include "manager/words/slot_journal.h"

namespace pagoda {

// Increases from write to write in a file. 0 names none.
using WriteId = uint64_t;
inline constexpr WriteId kNoWrite = 0;
inline constexpr WriteId kMaxWrite = WriteId{1} << 62;

struct BlockRecord {
  WriteId write_id = kNoWrite;
  WriteId parent = kNoWrite;  // Less than write_id.
  CodedContent content;       // It has a name_space if `parent` is kNoWrite.
};

// The result can be longer than slab::kMaxRecordBytes.
std::vector<std::byte> EncodeRecord(WriteId write_id, WriteId parent, const SlotContent& content);
// The first bytes of that record, which identify it.
std::array<std::byte, sizeof(WriteId)> RecordPrefix(WriteId write_id);
// Nothing if the bytes are not a record of a block of at most that many tokens, or if the id is
// above kMaxWrite.
std::optional<BlockRecord> DecodeRecord(absl::Span<const std::byte> record,
                                        uint32_t tokens_per_block);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_DISK_BLOCK_RECORD_H_
