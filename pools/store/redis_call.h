// A command of a store, on its way to a server and back.
#ifndef PAGODA_POOLS_STORE_REDIS_CALL_H_
#define PAGODA_POOLS_STORE_REDIS_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "pools/store/resp.h"
#include "pools/store/store.h"
#include "pools/store/stored_value.h"

namespace pagoda {

class RedisConnection;
struct RedisBatch;

// kGet, kPut and kExists are keys of a batch. The others are the client's own.
enum class RedisCommand : uint8_t { kGet, kPut, kExists, kAuth, kReadOnly, kPing, kClusterSlots };

struct RedisCall {
  RedisCommand command = RedisCommand::kPing;
  uint16_t hash_slot = 0;                 // The hash slot of the key's name in the store.
  int moves = 0;                          // How often it went to another server or connection.
  bool is_asking = false;                 // An ASK sent it here: ASKING precedes it.
  uint32_t replies_before = 0;            // Replies that come before its own: to ASKING.
  RedisConnection* connection = nullptr;  // The connection that it was sent on.

  // The batch that waits for it. Null: its memory must not be touched any more.
  RedisBatch* batch = nullptr;
  uint32_t index = 0;  // In the batch.

  // What is sent: `head`, then for a put the header, the pieces and `tail`.
  std::string head;
  std::string tail;
  StoreKey key;
  StoredHeader header = {};
  bool has_header = false;  // Made when it is sent first.
  std::vector<absl::Span<const std::byte>> pieces;

  // kGet: takes the value.
  std::unique_ptr<StoredValueReader> reader;

  // The reply; for a value that the reader took, kind is kBulk and there is no text.
  resp::Value reply;
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_STORE_REDIS_CALL_H_
