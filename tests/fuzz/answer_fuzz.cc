// An answer to a batch of arbitrary bytes, as the Python package's extension reads it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "clients/python/native/answer_reader.h"
#include "pagoda/v1/cache.pb.h"
#include "tests/fuzz/planted.h"

namespace pagoda::python {
namespace {

using Tables = google::protobuf::RepeatedPtrField<v1::BlockTable>;

// What protobuf has read, in the reader's form.
SequenceResult Expected(const Tables& tables, uint64_t ready_ticket) {
  SequenceResult result{.ready_ticket = ready_ticket};
  for (const v1::BlockTable& table : tables) {
    BlockTable& made = result.tables.emplace_back();
    made.window_size = table.window_size();
    made.first_block = table.first_block();
    for (const v1::BlockHandle& block : table.blocks()) {
      made.blocks.push_back({block.block_id(), block.generation(), block.slot_index()});
    }
  }
  return result;
}

SequenceResult Expected(const v1::OperationResult& outcome) {
  SequenceResult result;
  switch (outcome.result_case()) {
    case v1::OperationResult::kAddSequence:
      result = Expected(outcome.add_sequence().tables(), outcome.add_sequence().ready_ticket());
      result.matched_tokens = outcome.add_sequence().matched_tokens();
      result.matched_below_tokens = outcome.add_sequence().matched_below_tokens();
      break;
    case v1::OperationResult::kReserveTokens:
      result = Expected(outcome.reserve_tokens().added(), outcome.reserve_tokens().ready_ticket());
      break;
    case v1::OperationResult::kCommitTokens:
      result.token_count = outcome.commit_tokens().token_count();
      break;
    case v1::OperationResult::kAppendTokens:
      result = Expected(outcome.append_tokens().added(), outcome.append_tokens().ready_ticket());
      result.token_count = outcome.append_tokens().token_count();
      break;
    case v1::OperationResult::kFreeSequence:
      break;
    case v1::OperationResult::kDescribeSequence: {
      const v1::DescribeSequenceResult& described = outcome.describe_sequence();
      result = Expected(described.tables(), described.ready_ticket());
      result.token_count = described.token_count();
      result.computed_tokens = described.computed_tokens();
      result.reserved_tokens = described.reserved_tokens();
      result.losses = described.losses();
      break;
    }
    case v1::OperationResult::kForkSequence: {
      const v1::ForkSequenceResult& forked = outcome.fork_sequence();
      result = Expected(forked.tables(), forked.ready_ticket());
      result.token_count = forked.token_count();
      result.computed_tokens = forked.computed_tokens();
      result.losses = forked.losses();
      break;
    }
    case v1::OperationResult::kTruncateSequence: {
      const v1::TruncateSequenceResult& cut = outcome.truncate_sequence();
      result = Expected(cut.tables(), cut.ready_ticket());
      result.token_count = cut.token_count();
      result.computed_tokens = cut.computed_tokens();
      break;
    }
    default:
      PAGODA_CHECK(false, "the reader reads only results of sequences");
  }
  return result;
}

void Check(std::string_view bytes) {
  Answer answer;
  if (!ReadAnswer(bytes, &answer)) return;
  if (fuzz::Planted("LostTicket") && !answer.results.empty()) answer.results[0].ready_ticket = 0;
  v1::SessionResponse message;
  PAGODA_CHECK(message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())),
               "protobuf reads what the reader reads");
  const v1::BatchResult& result = message.result();
  Answer expected;
  expected.revision = result.revision();
  expected.completed_ticket = result.completed_ticket();
  expected.completed_fetch_ticket = result.completed_fetch_ticket();
  expected.completed_backup_ticket = result.completed_backup_ticket();
  for (const v1::OperationResult& outcome : result.results()) {
    PAGODA_CHECK(!outcome.has_error(), "an answer with an error is protobuf's");
    expected.results.push_back(Expected(outcome));
  }
  PAGODA_CHECK(result.shortened().empty(), "an answer with losses is protobuf's");
  PAGODA_CHECK(answer == expected, "the reader reads what protobuf reads");
}

}  // namespace
}  // namespace pagoda::python

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::python::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
