#include "manager/restart/slot_stamper.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/manager/restart/warm_cache.h"

namespace pagoda {
namespace {

using Step = SlotStamper::Step;

constexpr SlotRef Primary(uint32_t slot) { return {kPrimaryTier, SlotIndex{slot}}; }

// A content without a parent, in the window of full attention.
SlotChange Content(SlotRef slot, uint32_t id, Ticket ready = {}, uint32_t generation = 1) {
  return {.window_index = 1,
          .slot = slot,
          .ready = ready,
          .content = SlotContent{.block = {BlockId{id}, Generation{generation}},
                                 .tokens = {id, generation, 1, 1}}};
}

SlotChange Child(SlotRef slot, uint32_t id, BlockRef parent) {
  SlotChange change = Content(slot, id);
  change.content->parent = parent;
  return change;
}

class SlotStamperTest : public testing::Test {
 protected:
  ~SlotStamperTest() override {
    cache_.reset();
    WarmCache::Remove(instance_);
  }
  WarmCache& Cache(SlotStamper::Options options = {}) {
    cache_ = std::make_unique<WarmCache>(instance_, 1, std::move(options));
    return *cache_;
  }
  bool Valid(SlotRef slot) const { return cache_->stamps().Find(1, slot.tier)->IsValid(slot.slot); }

  const std::string instance_ = absl::StrCat("test-", getpid(), "-stamper");
  std::unique_ptr<WarmCache> cache_;
};

TEST_F(SlotStamperTest, AContentIsStampedAndLosesItsStampAtOnce) {
  SlotStamper& stamper = Cache().stamper();
  stamper.Apply({Content(Primary(0), 1)});
  stamper.Flush();
  EXPECT_TRUE(Valid(Primary(0)));
  EXPECT_EQ(stamper.stats().stamped, 1u);
  stamper.Apply({{.window_index = 1, .slot = Primary(0)}});
  EXPECT_FALSE(Valid(Primary(0)));
}

TEST_F(SlotStamperTest, NewContentInvalidatesTheOldOneAtOnce) {
  absl::Notification go_on;
  absl::Mutex mutex;
  int checksums = 0;
  SlotStamper& stamper = Cache({.at_step = [&](Step step, uint32_t, SlotRef) {
                           if (step != Step::kBeforeChecksum) return;
                           absl::MutexLock lock(&mutex);
                           if (++checksums == 2) go_on.WaitForNotification();
                         }}).stamper();
  stamper.Apply({Content(Primary(0), 1)});
  stamper.Flush();
  ASSERT_TRUE(Valid(Primary(0)));
  stamper.Apply({Content(Primary(0), 2)});
  EXPECT_FALSE(Valid(Primary(0)));
  go_on.Notify();
  stamper.Flush();
  EXPECT_TRUE(Valid(Primary(0)));
}

TEST_F(SlotStamperTest, ASlotInvalidatedAtAnyStepIsNotPublished) {
  for (const Step last : {Step::kBeforeChecksum, Step::kBodyWritten, Step::kBeforePublish}) {
    SCOPED_TRACE(static_cast<int>(last));
    WarmCache::Remove(instance_);
    absl::Notification reached, go_on;
    SlotStamper& stamper = Cache({.at_step = [&](Step step, uint32_t, SlotRef slot) {
                             if (step != last || slot != Primary(0)) return;
                             reached.Notify();
                             go_on.WaitForNotification();
                           }}).stamper();
    stamper.Apply({Content(Primary(0), 1)});
    reached.WaitForNotification();
    stamper.Apply({{.window_index = 1, .slot = Primary(0)}});
    go_on.Notify();
    stamper.Flush();
    EXPECT_FALSE(Valid(Primary(0)));
    EXPECT_EQ(stamper.stats().outdated, 1u);
    EXPECT_EQ(stamper.stats().stamped, 0u);
    cache_.reset();
  }
}

TEST_F(SlotStamperTest, AContentWaitsForItsCopiesAndHoldsUpNoOther) {
  SlotStamper& stamper = Cache().stamper();
  stamper.Apply({Content(Primary(0), 1, Ticket{7}), Content(Primary(1), 2)});
  stamper.Flush();
  EXPECT_FALSE(Valid(Primary(0)));
  EXPECT_TRUE(Valid(Primary(1)));
  EXPECT_EQ(stamper.stats().pending, 1u);
  stamper.CopiesDone(Ticket{6});
  stamper.Flush();
  EXPECT_FALSE(Valid(Primary(0)));
  stamper.CopiesDone(Ticket{7});
  stamper.Flush();
  EXPECT_TRUE(Valid(Primary(0)));
  EXPECT_EQ(stamper.stats().pending, 0u);
}

TEST_F(SlotStamperTest, AChildOfAContentThatWasNotToldIsNotStamped) {
  SlotStamper& stamper = Cache().stamper();
  stamper.Apply({Content(Primary(0), 1, {}, 2), Child(Primary(1), 3, {BlockId{1}, Generation{2}}),
                 Child(Primary(2), 4, {BlockId{1}, Generation{1}}),
                 Child(Primary(3), 5, {BlockId{9}, Generation{1}})});
  stamper.Flush();
  EXPECT_TRUE(Valid(Primary(1)));
  EXPECT_FALSE(Valid(Primary(2))) << "an earlier life of block 1";
  EXPECT_FALSE(Valid(Primary(3)));
  EXPECT_EQ(stamper.stats().orphaned, 2u);
}

TEST_F(SlotStamperTest, AFullQueueDropsContentsAndNoInvalidation) {
  absl::Notification reached, go_on;
  SlotStamper& stamper = Cache({.max_queued_bytes = 3000,
                                .at_step =
                                    [&](Step step, uint32_t, SlotRef slot) {
                                      if (step != Step::kBeforeChecksum || slot != Primary(1))
                                        return;
                                      reached.Notify();
                                      go_on.WaitForNotification();
                                    }})
                             .stamper();
  stamper.Apply({Content(Primary(0), 1)});
  stamper.Flush();
  stamper.Apply({Content(Primary(1), 2)});
  reached.WaitForNotification();
  for (uint32_t i = 0; i < 20; ++i) stamper.Apply({Content(Primary(i == 19 ? 0 : 2), 3 + i)});
  EXPECT_FALSE(Valid(Primary(0)));
  const SlotStamper::Stats stats = stamper.stats();
  EXPECT_GT(stats.dropped, 3u);
  EXPECT_GT(stats.pending, 2u);
  EXPECT_EQ(stats.dropped + stats.pending, 21u);
  go_on.Notify();
  stamper.Flush();
  EXPECT_FALSE(Valid(Primary(0)));
  stamper.Apply({Content(Primary(0), 50)});
  stamper.Flush();
  EXPECT_TRUE(Valid(Primary(0))) << "there is room again";
}

TEST_F(SlotStamperTest, ARecoveredSlotKeepsItsStampAndItsChildrenAreStamped) {
  Cache().stamper().Apply({Content(Primary(0), 1), Content(Primary(1), 2)});
  cache_->Flush();
  cache_.reset();
  SlotStamper& stamper = Cache().stamper();  // Recovers both, and reports them as blocks 0 and 1.
  stamper.Flush();
  EXPECT_EQ(stamper.stats().kept, 2u);
  EXPECT_EQ(stamper.stats().stamped, 0u);
  EXPECT_TRUE(Valid(Primary(0)));
  stamper.Apply({Child(Primary(2), 3, {BlockId{0}, Generation{1}})});
  stamper.Flush();
  EXPECT_TRUE(Valid(Primary(2)));
  // Once it is reported again, it is like any other.
  stamper.Apply({Content(Primary(0), 7), {.window_index = 1, .slot = Primary(1)}});
  EXPECT_FALSE(Valid(Primary(1)));
  stamper.Flush();
  EXPECT_EQ(stamper.stats().stamped, 2u);
}

TEST_F(SlotStamperTest, StepsComeInTheirOrder) {
  absl::Mutex mutex;
  std::vector<Step> steps;
  SlotStamper& stamper = Cache({.at_step = [&](Step step, uint32_t w, SlotRef slot) {
                           EXPECT_EQ(w, 1u);
                           EXPECT_EQ(slot, Primary(4));
                           absl::MutexLock lock(&mutex);
                           steps.push_back(step);
                         }}).stamper();
  stamper.Apply({Content(Primary(4), 1)});
  stamper.Flush();
  absl::MutexLock lock(&mutex);
  EXPECT_EQ(steps, (std::vector{Step::kInvalidated, Step::kBeforeChecksum, Step::kBodyWritten,
                                Step::kBeforePublish, Step::kPublished}));
}

TEST_F(SlotStamperTest, ItsEndDoesNotWaitForCopies) {
  Cache().stamper().Apply({Content(Primary(0), 1, Ticket{7})});
  cache_.reset();
  EXPECT_TRUE(Cache().recovery().windows[1].blocks.empty());
}

}  // namespace
}  // namespace pagoda
