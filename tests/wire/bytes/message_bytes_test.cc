#include "wire/bytes/message_bytes.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#include "google/protobuf/arena.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {
namespace {

using google::protobuf::Arena;

bool IsMapped(const void* address) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t page = reinterpret_cast<uintptr_t>(address) / page_bytes * page_bytes;
  unsigned char resident;
  if (mincore(reinterpret_cast<void*>(page), 1, &resident) == 0) return true;
  EXPECT_EQ(errno, ENOMEM);  // Nothing is mapped there.
  return false;
}

TEST(WireMessageTest, ALargeMessageLeavesNoMemoryToMalloc) {
  constexpr int kRanges = 200'000;
  Arena arena(MessageArenaOptions());
  auto* const message = Arena::CreateMessage<v1::SetRetentionRequest>(&arena);
  for (int i = 0; i < kRanges; ++i) message->add_retention();
  const void* const middle = &message->retention(kRanges / 2);
  const void* const last = &message->retention(kRanges - 1);
  // In malloc's heap this memory would lie above the message, and malloc gives back only the top.
  const std::vector<std::vector<char>> later(100, std::vector<char>(4096));
  ASSERT_TRUE(IsMapped(middle) && IsMapped(last));
  arena.Reset();
  EXPECT_FALSE(IsMapped(middle));
  EXPECT_FALSE(IsMapped(last));
}

TEST(WireMessageTest, AnArenaServesLargeAndSmallMessagesByTurns) {
  Arena arena(MessageArenaOptions());
  for (const uint32_t count : {1u, 300'000u, 10u, 5'000u}) {
    auto* const message = Arena::CreateMessage<v1::SetRetentionRequest>(&arena);
    for (uint32_t i = 0; i < count; ++i) message->add_retention()->set_token_start(i);
    for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(message->retention(i).token_start(), i);
    arena.Reset();
  }
}

}  // namespace
}  // namespace pagoda
