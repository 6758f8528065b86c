#include "server/http/shared_answers.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"

namespace pagoda::server {
namespace {

class SharedAnswersTest : public testing::Test {
 protected:
  // The answer, whose text is how many were made before.
  std::string Get(const std::string& key) {
    return shared_.Get(key, [this] { return absl::StrCat(made_++); }).value();
  }

  SharedAnswers shared_{absl::InfiniteDuration()};
  int made_ = 0;
};

TEST_F(SharedAnswersTest, AnAnswerIsMadeOnceInItsInterval) {
  EXPECT_EQ(Get("a"), "0");
  EXPECT_EQ(Get("a"), "0");
  EXPECT_EQ(Get("b"), "1");
  EXPECT_EQ(Get("a"), "0");
  SharedAnswers always{absl::ZeroDuration()};
  for (const std::string text : {"1", "2"}) {
    EXPECT_EQ(always.Get("a", [&] { return text; }).value(), text);
  }
}

TEST_F(SharedAnswersTest, TheLeastRecentlyRequestedAnswerIsDroppedFirst) {
  const int most = SharedAnswers::kMostAnswers;
  for (int i = 0; i < most; ++i) Get(absl::StrCat(i));
  EXPECT_EQ(Get("0"), "0");
  Get("one more");
  EXPECT_EQ(Get("0"), "0");
  EXPECT_EQ(Get("2"), "2");
  EXPECT_EQ(Get("1"), absl::StrCat(most + 1)) << "it was dropped";
}

TEST_F(SharedAnswersTest, ErrorsAreNotKept) {
  for (size_t i = 0; i < SharedAnswers::kMostAnswers; ++i) Get(absl::StrCat(i));
  Get("0");
  for (size_t i = 0; i < 2 * SharedAnswers::kMostAnswers; ++i) {
    const auto refused = shared_.Get(absl::StrCat("unknown ", i),
                                     [] { return absl::NotFoundError("there is none"); });
    EXPECT_TRUE(absl::IsNotFound(refused.status()));
  }
  EXPECT_EQ(Get("0"), "0") << "they displaced one answer, not all";
  EXPECT_EQ(shared_.Get("unknown 0", [] { return "there now"; }).value(), "there now");
}

TEST_F(SharedAnswersTest, ASlowAnswerHoldsUpOnlyItsOwnReaders) {
  absl::Notification begun, end;
  const auto slow = [&]() -> std::string {
    begun.Notify();
    end.WaitForNotification();
    return "slow";
  };
  std::string first, second;
  std::thread maker([&] { first = shared_.Get("a", slow).value(); });
  begun.WaitForNotification();
  std::thread reader([&] { second = Get("a"); });
  EXPECT_EQ(Get("b"), "0");
  end.Notify();
  maker.join();
  reader.join();
  EXPECT_EQ(first, "slow");
  EXPECT_EQ(second, "slow");
}

}  // namespace
}  // namespace pagoda::server
