#include "clients/pagodactl/command/further_counts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "pagoda/v1/admin.pb.h"

namespace pagoda {
namespace {

using Store = v1::StoreStatus;

TEST(FurtherCountsTest, NameFieldsBehindTheLastKnownOne) {
  Store store;
  store.set_read_bytes_total(1000);
  store.set_written_bytes_total(7);
  store.set_redirections_total(12345);
  store.set_disconnects_total(2);
  store.set_last_error("no count");
  EXPECT_EQ(FurtherCounts(store, Store::kWrittenBytesTotalFieldNumber),
            "redirections 12,345, disconnects 2");
  EXPECT_EQ(FurtherCounts(store, Store::kLastErrorFieldNumber), "");
}

TEST(FurtherCountsTest, ListsAreInBracketsAndOtherFieldsAreNoCounters) {
  Store store;
  store.add_servers("no count");
  store.set_up(true);
  store.set_nodes(3);
  for (const auto& [name, count] : {std::pair("ok", 12), std::pair("timed_out", 1)}) {
    v1::NamedCount* const one = store.add_gets_total();
    one->set_name(name);
    one->set_count(static_cast<uint64_t>(count));
  }
  EXPECT_EQ(FurtherCounts(store, 0), "gets (ok 12, timed out 1)");
}

}  // namespace
}  // namespace pagoda
