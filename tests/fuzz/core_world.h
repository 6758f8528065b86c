// A small core and its clients, driven by bytes, with everything checked that must hold whatever
// clients send.
#ifndef PAGODA_TESTS_FUZZ_CORE_WORLD_H_
#define PAGODA_TESTS_FUZZ_CORE_WORLD_H_

#include <cstddef>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "manager/block_manager.h"
#include "manager/slot_journal.h"
#include "pagoda/v1/cache.pb.h"
#include "tests/events/shadow_tree.h"
#include "tests/fuzz/byte_reader.h"
#include "tests/fuzz/operation_decoder.h"

namespace pagoda::fuzz {

// After each step:
// 1. the core's own invariants hold;
// 2. the events, applied in order, are the core's trees (the events' law);
// 3. an operation that was refused has a reason, and left no trace;
// 4. the journal of slots names exactly the blocks of the trees.
class CoreWorld {
 public:
  // The first bytes say how the core is made.
  explicit CoreWorld(ByteReader& in);

  // A client's batch, or what happens beside them: time, copies, sessions that come and go.
  void Step();
  // Ends every copy, session, quarantine and pin, and forgets what is cached. Every block is free
  // then.
  void Finish();

 private:
  void SendBatch(Client& client, const v1::Batch& batch);
  // As the server does it: what is not served, then the wire's operation as the core's, then its
  // result as the wire's.
  void RunOperation(Client& client, const v1::Operation& proto, v1::OperationResult* out);
  // What a client remembers of an answer.
  static void Learn(Client& client, const v1::Operation& operation,
                    const v1::OperationResult& result);
  void OpenSession(Client& client);
  void ChangeSession(Client& client);
  // Ends one of the copies that may end now.
  void EndCopy(size_t choice, const absl::Status& status);
  // Takes the core's events, copies and changes of slots, and checks invariants 1, 2 and 4.
  void Follow();
  void FollowSlots();
  // Everything is let go, and nobody holds anything.
  void EndAll();

  ByteReader& in_;
  std::unique_ptr<BlockManager> core_;
  absl::Time now_ = absl::UnixEpoch();
  std::vector<Client> clients_;
  uint64_t opened_ = 0;            // Sessions.
  std::vector<CopyOrder> copies_;  // Ordered and not ended, by ticket.
  ShadowTree shadow_;
  // By the window's index, the tier and the slot.
  std::map<std::tuple<uint32_t, Tier, SlotIndex>, SlotContent> journal_;
};

}  // namespace pagoda::fuzz

#endif  // PAGODA_TESTS_FUZZ_CORE_WORLD_H_
