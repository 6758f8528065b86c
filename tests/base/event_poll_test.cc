#include "base/event_poll.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file_descriptor.h"

namespace pagoda {
namespace {

class EventPollTest : public ::testing::Test {
 protected:
  static FileDescriptor NewEvent(unsigned count = 0) {
    return FileDescriptor(eventfd(count, EFD_CLOEXEC | EFD_NONBLOCK));
  }
  std::vector<void*> Sources(absl::Duration timeout = absl::ZeroDuration()) {
    const EventPoll::Ready ready = poll_.Wait(timeout);
    EXPECT_FALSE(ready.is_woken);
    return {ready.sources.begin(), ready.sources.end()};
  }

  EventPoll poll_ = *EventPoll::Create();
  int first_ = 0;
  int second_ = 0;
};

TEST_F(EventPollTest, ADescriptorIsReadyAsLongAsItsEventLasts) {
  const FileDescriptor event = NewEvent();
  ASSERT_TRUE(poll_.Add(event.get(), EPOLLIN, &first_));
  EXPECT_TRUE(Sources().empty());
  eventfd_write(event.get(), 1);
  EXPECT_EQ(Sources(absl::InfiniteDuration()), std::vector<void*>{&first_});
  EXPECT_EQ(Sources(), std::vector<void*>{&first_});
  eventfd_t count = 0;
  eventfd_read(event.get(), &count);
  EXPECT_TRUE(Sources().empty());
}

TEST_F(EventPollTest, ChangeReplacesTheEventsAndTheSource) {
  const FileDescriptor event = NewEvent();
  ASSERT_TRUE(poll_.Add(event.get(), EPOLLIN, &first_));
  ASSERT_TRUE(poll_.Change(event.get(), EPOLLOUT, &second_));
  EXPECT_EQ(Sources(), std::vector<void*>{&second_});
  ASSERT_TRUE(poll_.Change(event.get(), 0, &second_));
  EXPECT_TRUE(Sources().empty());
}

TEST_F(EventPollTest, ARemovedDescriptorHasNoEventsEvenIfACopyLives) {
  FileDescriptor event = NewEvent(1);
  const FileDescriptor copy(dup(event.get()));
  ASSERT_TRUE(poll_.Add(event.get(), EPOLLIN, &first_));
  poll_.Remove(event.get());
  event = FileDescriptor();
  EXPECT_TRUE(Sources().empty());
}

TEST_F(EventPollTest, WhatTheSystemRefusesIsAnError) {
  const FileDescriptor event = NewEvent();
  EXPECT_FALSE(poll_.Change(event.get(), EPOLLIN, &first_)) << "not watched";
  ASSERT_TRUE(poll_.Add(event.get(), EPOLLIN, &first_));
  EXPECT_FALSE(poll_.Add(event.get(), EPOLLIN, &first_)) << "twice";
  EXPECT_FALSE(poll_.Add(-1, EPOLLIN, &first_));
}

TEST_F(EventPollTest, AWakeCountsOnceAndIsNoSource) {
  poll_.Wake();
  poll_.Wake();
  const EventPoll::Ready ready = poll_.Wait(absl::InfiniteDuration());
  EXPECT_TRUE(ready.is_woken);
  EXPECT_TRUE(ready.sources.empty());
  EXPECT_TRUE(Sources().empty());
}

TEST_F(EventPollTest, AnotherThreadWakesTheWait) {
  std::thread other([this] {
    absl::SleepFor(absl::Milliseconds(20));
    poll_.Wake();
  });
  EXPECT_TRUE(poll_.Wait(absl::InfiniteDuration()).is_woken);
  other.join();
}

TEST_F(EventPollTest, EventsAndAWakeComeTogether) {
  const FileDescriptor event = NewEvent(1);
  ASSERT_TRUE(poll_.Add(event.get(), EPOLLIN, &first_));
  poll_.Wake();
  const EventPoll::Ready ready = poll_.Wait(absl::InfiniteDuration());
  EXPECT_TRUE(ready.is_woken);
  ASSERT_EQ(ready.sources.size(), 1u);
  EXPECT_EQ(ready.sources[0], &first_);
}

TEST_F(EventPollTest, TheTimeoutIsRoundedUp) {
  for (const absl::Duration timeout : {absl::Microseconds(300), absl::Milliseconds(12)}) {
    const absl::Time start = absl::Now();
    EXPECT_TRUE(Sources(timeout).empty());
    EXPECT_GE(absl::Now() - start, timeout);
  }
  EXPECT_TRUE(Sources(-absl::InfiniteDuration()).empty()) << "no wait";
}

TEST_F(EventPollTest, MoreDescriptorsThanOneWaitReturnsHaveTheirTurn) {
  constexpr size_t kEvents = EventPoll::kMostSources + 5;
  std::vector<FileDescriptor> events;
  std::array<int, kEvents> seen = {};
  for (size_t i = 0; i < kEvents; ++i) {
    events.push_back(NewEvent(1));
    ASSERT_TRUE(poll_.Add(events.back().get(), EPOLLIN, &seen[i]));
  }
  for (int round = 0; round < 2; ++round) {
    const std::vector<void*> sources = Sources();
    EXPECT_LE(sources.size(), size_t{EventPoll::kMostSources});
    for (void* const source : sources) ++*static_cast<int*>(source);
  }
  for (const int count : seen) EXPECT_GE(count, 1);
}

TEST_F(EventPollTest, AMovedPollKeepsItsDescriptors) {
  const FileDescriptor event = NewEvent(1);
  ASSERT_TRUE(poll_.Add(event.get(), EPOLLIN, &first_));
  EventPoll moved = std::move(poll_);
  moved.Wake();
  const EventPoll::Ready ready = moved.Wait(absl::InfiniteDuration());
  EXPECT_TRUE(ready.is_woken);
  EXPECT_EQ(ready.sources.size(), 1u);
}

}  // namespace
}  // namespace pagoda
