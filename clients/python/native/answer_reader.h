// The answers of a session's frequent batches, without protobuf.
#ifndef PAGODA_CLIENTS_PYTHON_NATIVE_ANSWER_READER_H_
#define PAGODA_CLIENTS_PYTHON_NATIVE_ANSWER_READER_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace pagoda::python {

// A v1::BlockHandle.
struct BlockHandle {
  uint32_t block_id = 0;
  uint32_t generation = 0;
  uint32_t slot_index = 0;

  friend bool operator==(const BlockHandle&, const BlockHandle&) = default;
};

// A v1::BlockTable.
struct BlockTable {
  uint32_t window_size = 0;
  uint32_t first_block = 0;
  std::vector<BlockHandle> blocks;

  friend bool operator==(const BlockTable&, const BlockTable&) = default;
};

// The result of an operation on one sequence: AddSequence, ReserveTokens, CommitTokens,
// AppendTokens, FreeSequence, DescribeSequence, ForkSequence or TruncateSequence. A field that the
// operation's result does not have is 0.
struct SequenceResult {
  uint32_t matched_tokens = 0;
  uint32_t matched_below_tokens = 0;
  uint32_t token_count = 0;
  uint32_t computed_tokens = 0;
  uint32_t reserved_tokens = 0;
  uint32_t losses = 0;
  uint64_t ready_ticket = 0;
  std::vector<BlockTable> tables;  // Or the `added` of the result.

  friend bool operator==(const SequenceResult&, const SequenceResult&) = default;
};

// A v1::BatchResult without errors and without shortened sequences.
struct Answer {
  std::vector<SequenceResult> results;
  uint64_t revision = 0;
  uint64_t completed_ticket = 0;
  uint64_t completed_fetch_ticket = 0;
  uint64_t completed_backup_ticket = 0;

  friend bool operator==(const Answer&, const Answer&) = default;
};

// Reads a serialized ExecuteResponse or SessionResponse. False if it has anything that an Answer
// has no place for: an error, the result of another operation, an unknown field, or damage. Then
// protobuf must read it. The bytes can be anything.
bool ReadAnswer(std::string_view bytes, Answer* answer);

}  // namespace pagoda::python

#endif  // PAGODA_CLIENTS_PYTHON_NATIVE_ANSWER_READER_H_
