// The form of messages as JSON.
#include "wire/message_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/time/clock.h"
#include "pagoda/v1/admin.pb.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

TEST(JsonOfTest, HasTheProtosNamesAndEveryFieldThatIsNoMessage) {
  v1::QuarantineInfo info;
  EXPECT_EQ(*JsonOf(info),
            R"({"session_id":"0","client_name":"","tenant":"","blocks":0,"writer_pids":[]})");
  info.set_session_id(std::numeric_limits<uint64_t>::max());
  info.set_client_name("engine \"0\"");
  info.mutable_since()->set_seconds(1'700'000'000);
  info.mutable_since()->set_nanos(500'000'000);
  info.add_writer_pids(7);
  EXPECT_EQ(*JsonOf(info),
            R"({"session_id":"18446744073709551615","client_name":"engine \"0\"","tenant":"",)"
            R"("blocks":0,"writer_pids":[7],"since":"2023-11-14T22:13:20.500Z"})");
}

TEST(JsonOfTest, LeavesOutOptionalFieldsThatAreNotSet) {
  v1::TenantUse use;
  EXPECT_EQ(*JsonOf(use),
            R"({"window_size":0,"tier":"TIER_UNSPECIFIED","used_blocks":0,"cached_blocks":0,)"
            R"("tier_name":""})");
  use.set_tier(v1::TIER_SECOND);
  use.set_quota_blocks(0);
  EXPECT_THAT(*JsonOf(use), HasSubstr(R"("tier":"TIER_SECOND")"));
  EXPECT_THAT(*JsonOf(use), HasSubstr(R"("quota_blocks":0)"));
}

TEST(JsonOfTest, HasDurationsAndNumbersThatJsonLacks) {
  v1::GpuSelfTest::Kernel kernel;
  kernel.set_error(std::numeric_limits<double>::infinity());
  kernel.set_tolerance(0.1);
  EXPECT_THAT(*JsonOf(kernel), HasSubstr(R"("error":"Infinity","tolerance":0.1)"));
  v1::TransferDirection direction;
  direction.mutable_busy_time()->set_nanos(1'500'000);
  EXPECT_THAT(*JsonOf(direction), HasSubstr(R"("busy_time":"0.001500s")"));
}

TEST(JsonOfTest, MarksBytesThatAreNotUtf8) {
  const std::string mark = "\xEF\xBF\xBD";
  v1::ListQuarantinesResponse list;
  list.add_quarantines()->set_client_name("a\xff\xc3");                 // No character; cut off.
  list.add_quarantines()->set_client_name("\xed\xa0\x80");              // A surrogate.
  list.add_quarantines()->set_client_name("\xc0\xaf\xf4\x90\x80\x80");  // Overlong; too large.
  list.add_quarantines()->set_client_name("caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
  const std::string before = list.SerializePartialAsString();
  const std::string json = *JsonOf(list);
  EXPECT_THAT(json, HasSubstr("\"a" + mark + mark + "\""));
  EXPECT_THAT(json, HasSubstr("\"" + mark + mark + mark + "\""));
  EXPECT_THAT(json, HasSubstr("\"" + mark + mark + mark + mark + mark + mark + "\""));
  EXPECT_THAT(json, HasSubstr("\"caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\""));
  EXPECT_EQ(list.SerializePartialAsString(), before) << "the message itself stays as it is";
  v1::StoreStatus store;
  store.add_servers("\xff");
  EXPECT_THAT(*JsonOf(store), HasSubstr("\"servers\":[\"" + mark + "\"]"));
}

TEST(JsonOfTest, BytesAreBase64) {
  v1::InspectPrefixRequest request;
  request.add_keys(std::string("\xff\x00\x01", 3));
  EXPECT_THAT(*JsonOf(request), HasSubstr(R"("keys":["/wAB"])"));
}

TEST(JsonOfTest, ATimeWithoutAFormIsAnError) {
  v1::QuarantineInfo info;
  info.mutable_since()->set_seconds(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(JsonOf(info).status().code(), absl::StatusCode::kInternal);
}

TEST(JsonOfTest, TakesTimeInProportionToTheMessage) {
  const auto seconds_for = [](int sessions) {
    v1::ListSessionsResponse list;
    for (int i = 0; i < sessions; ++i) list.add_sessions()->set_client_name("\xff of a client");
    absl::Duration least = absl::InfiniteDuration();
    for (int i = 0; i < 3; ++i) {
      const absl::Time begin = absl::Now();
      EXPECT_TRUE(JsonOf(list).ok());
      least = std::min(least, absl::Now() - begin);
    }
    return absl::ToDoubleSeconds(least);
  };
  // Ten times the rows take ten times as long; a quadratic form would take a hundred times.
  EXPECT_LT(seconds_for(20'000), 40 * seconds_for(2'000));
}

}  // namespace
}  // namespace pagoda
