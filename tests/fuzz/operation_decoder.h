// Turns bytes into operations that a client could send. Most are valid, so that they reach the code
// behind the checks of arguments.
#ifndef PAGODA_TESTS_FUZZ_OPERATION_DECODER_H_
#define PAGODA_TESTS_FUZZ_OPERATION_DECODER_H_

#include <cstdint>
#include <map>
#include <vector>

#include "manager/block_manager.h"
#include "pagoda/v1/cache.pb.h"
#include "tests/fuzz/byte_reader.h"

namespace pagoda::fuzz {

// A client's session, and the contents of its answers.
struct Client {
  SessionRef session;
  uint64_t step = 0;
  uint64_t completed_step = 0;
  std::vector<std::pair<uint32_t, BlockRef>> raw_blocks;  // With their windows, as on the wire.
  std::vector<uint64_t> pins;
  std::map<uint64_t, uint32_t> losses;  // By sequence.
};

// One operation of any kind on the wire. `core` and `client` know which numbers are valid.
v1::Operation DecodeOperation(ByteReader& in, const BlockManager& core, const Client& client);

// A few operations under the client's step or a later one.
v1::Batch DecodeBatch(ByteReader& in, const BlockManager& core, Client& client);

}  // namespace pagoda::fuzz

#endif  // PAGODA_TESTS_FUZZ_OPERATION_DECODER_H_
