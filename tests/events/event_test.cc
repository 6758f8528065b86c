#include "events/event.h"

#include <gtest/gtest.h>

#include <set>

namespace pagoda {
namespace {

TEST(EventTest, BytesCountWhatAnEventPointsTo) {
  const size_t bare = EventBytes({.what = StoredEvent{}});
  StoredEvent stored{.tokens = std::pmr::vector<TokenId>(100)};
  EXPECT_GE(EventBytes({.what = stored}), bare + 400);
  stored.extras.resize(100);
  EXPECT_GE(EventBytes({.what = stored}), bare + 400 + 100 * sizeof(TokenExtra));
  const StoredEvent named{.name_space = NamespaceKey{.cache_salt = std::string(200, 's'),
                                                     .tenant = std::string(100, 't')}};
  EXPECT_GE(EventBytes({.what = named}), bare + 300 - 2 * sizeof(std::string));
  EXPECT_GE(EventBytes({.what = RemovedEvent{.blocks = std::pmr::vector<BlockId>(10)}}),
            sizeof(Event) + 40);
}

TEST(EventTest, EveryReasonHasAName) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(RemovalReason::kLost); ++i) {
    names.insert(RemovalReasonName(static_cast<RemovalReason>(i)));
  }
  EXPECT_EQ(names.size(), 8u);
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(RemovalReasonName(RemovalReason::kLost), "lost");
}

}  // namespace
}  // namespace pagoda
