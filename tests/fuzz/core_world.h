// A small core and its clients, driven by bytes. It checks everything that must hold whatever
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
#include "manager/words/slot_journal.h"
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
  // The first bytes choose the core's options.
  explicit CoreWorld(ByteReader& in);

  // A client's batch, or another event: time, copies, sessions that open and close.
  void Step();
  // Ends every copy, session, quarantine and pin, and forgets what is cached. Every block is free
  // then.
  void Finish();

 private:
  void SendBatch(Client& client, const v1::Batch& batch);
  // In the server's steps: refuses unserved fields, converts the wire's operation to the core's,
  // and the result to the wire's.
  void RunOperation(Client& client, const v1::Operation& proto, v1::OperationResult* out);
  // Remembers the parts of an answer that a client uses later.
  static void Learn(Client& client, const v1::Operation& operation,
                    const v1::OperationResult& result);
  void OpenSession(Client& client);
  void ChangeSession(Client& client);
  // Ends one of the copies that can end now.
  void EndCopy(size_t choice, const absl::Status& status);
  // Takes the core's events, copies and changes of slots, and checks invariants 1, 2 and 4.
  void Follow();
  void FollowSlots();
  // Everything is released, and nothing has a holder.
  void EndAll();

  ByteReader& in_;
  std::unique_ptr<BlockManager> core_;
  absl::Time now_ = absl::UnixEpoch();
  std::vector<Client> clients_;
  uint64_t opened_ = 0;        // Sessions.
  std::vector<Order> copies_;  // Copies that are ordered and not ended, by ticket.
  ShadowTree shadow_;
  // By the window's index, the tier and the slot.
  std::map<std::tuple<uint32_t, Tier, SlotIndex>, SlotContent> journal_;
};

}  // namespace pagoda::fuzz

#endif  // PAGODA_TESTS_FUZZ_CORE_WORLD_H_
