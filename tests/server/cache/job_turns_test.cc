#include "server/cache/job_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;

bool AddJob(JobTurns<int>& turns, size_t party, int job) { return turns.Add(party, job); }

std::vector<int> TakeAll(JobTurns<int>& turns) {
  std::vector<int> jobs;
  while (!turns.empty()) jobs.push_back(turns.Take());
  return jobs;
}

TEST(JobTurnsTest, ThePartiesTakeTurnsAndEachHasItsOrder) {
  JobTurns<int> turns(64, 3);
  for (const int job : {20, 21, 22}) EXPECT_TRUE(AddJob(turns, 2, job));
  for (const int job : {0, 1}) EXPECT_TRUE(AddJob(turns, 0, job));
  EXPECT_TRUE(AddJob(turns, 1, 10));
  EXPECT_THAT(TakeAll(turns), ElementsAre(10, 20, 0, 21, 1, 22));
}

TEST(JobTurnsTest, APartyThatTakesAllLeavesTheOthersTheirPart) {
  JobTurns<int> turns(/*most=*/12, /*parties=*/3);
  int added = 0;
  while (AddJob(turns, 0, added)) ++added;
  EXPECT_EQ(added, 8);
  EXPECT_EQ(turns.of(0), 8u);
  EXPECT_TRUE(AddJob(turns, 1, 100));
  EXPECT_EQ(turns.Take(), 100) << "it waits for no more than the job that runs";
  EXPECT_EQ(turns.Take(), 0);
  EXPECT_TRUE(AddJob(turns, 0, 8)) << "a job that was taken has no place";
  EXPECT_FALSE(AddJob(turns, 0, 9));
}

TEST(JobTurnsTest, AJobThatIsRefusedStaysWithItsCaller) {
  JobTurns<std::vector<int>> turns(1, 1);
  std::vector<int> first = {1}, second = {2};
  EXPECT_TRUE(turns.Add(0, first));
  EXPECT_FALSE(turns.Add(0, second));
  EXPECT_THAT(second, ElementsAre(2));
}

TEST(JobTurnsTest, RandomJobsAsAListOfQueuesTakesThem) {
  constexpr size_t kParties = 4, kMost = 20;
  std::mt19937 random(1);
  JobTurns<int> turns(kMost, kParties);
  std::vector<std::deque<int>> model(kParties);
  size_t last = 0;
  for (int i = 0; i < 50'000; ++i) {
    const size_t party = random() % kParties;
    if (random() % 2 == 0) {
      if (AddJob(turns, party, i)) model[party].push_back(i);
    } else if (!turns.empty()) {
      do last = (last + 1) % kParties;
      while (model[last].empty());
      ASSERT_EQ(turns.Take(), model[last].front());
      model[last].pop_front();
    }
    size_t waiting = 0;
    for (size_t p = 0; p < kParties; ++p) {
      waiting += model[p].size();
      ASSERT_EQ(turns.of(p), model[p].size());
    }
    ASSERT_EQ(turns.empty(), waiting == 0);
    ASSERT_LE(waiting, kMost);
  }
}

}  // namespace
}  // namespace pagoda::server
