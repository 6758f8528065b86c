// One ring: a writer and a reader, and a writer or a reader that means harm.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#include "wire/ring/ring_memory.h"
#include "wire/ring/ring_reader.h"
#include "wire/ring/ring_wake.h"
#include "wire/ring/ring_writer.h"

namespace pagoda::ring {
namespace {

constexpr uint32_t kBytes = kMinBytes;

class RingTest : public testing::Test {
 protected:
  Positions& positions() { return memory_->control().requests; }
  char* data() { return memory_->requests(); }
  // Says that so many bytes were written, whatever they are.
  void Claim(uint64_t written) { positions().written.store(written); }
  void PutHeader(uint64_t position, MessageHeader header) {
    std::memcpy(data() + position % kBytes, &header, sizeof(header));
  }
  Reader::Outcome Read() {
    Kind kind;
    return reader_.Read(&kind, &message_);
  }

  FileDescriptor fd_;
  const std::unique_ptr<Memory> memory_ = Memory::Create(kBytes, &fd_);
  Writer writer_{&positions(), data(), kBytes};
  Reader reader_{&positions(), data(), kBytes};
  std::string message_;
};

std::string RandomMessage(std::mt19937& random, size_t most) {
  std::string message(random() % (most + 1), '\0');
  for (char& byte : message) byte = static_cast<char>(random());
  return message;
}

TEST_F(RingTest, MessagesOfAllSizesComeOutInOrder) {
  std::mt19937 random(1);
  std::deque<std::string> expected;
  uint64_t bytes = 0;
  size_t refused = 0;
  size_t read = 0;
  for (int i = 0; i < 200'000; ++i) {
    if (random() % 2 == 0) {
      // Mostly short ones, so that several fit at once.
      const std::string message =
          RandomMessage(random, random() % 8 == 0 ? MaxMessageBytes(kBytes) : 100);
      const bool fits = bytes + PaddedBytes(message.size()) <= kBytes;
      const std::string_view whole = message;
      const size_t first = random() % (whole.size() + 1);
      const size_t second = first + random() % (whole.size() - first + 1);
      const std::array<std::string_view, 3> pieces = {
          whole.substr(0, first), whole.substr(first, second - first), whole.substr(second)};
      const Writer::Outcome outcome = writer_.Write(Kind::kRequest, pieces);
      ASSERT_EQ(outcome, fits ? Writer::Outcome::kWritten : Writer::Outcome::kNoRoom);
      if (fits) bytes += PaddedBytes(message.size());
      if (fits) expected.push_back(message);
      refused += fits ? 0 : 1;
    } else {
      Kind kind = Kind::kAnswer;
      ASSERT_EQ(reader_.HasMessage(), !expected.empty());
      const Reader::Outcome outcome = reader_.Read(&kind, &message_);
      ASSERT_EQ(outcome, expected.empty() ? Reader::Outcome::kEmpty : Reader::Outcome::kMessage);
      if (expected.empty()) continue;
      ASSERT_EQ(kind, Kind::kRequest);
      ASSERT_EQ(message_, expected.front());
      bytes -= PaddedBytes(message_.size());
      expected.pop_front();
      ++read;
    }
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(read, 50'000u);
}

TEST_F(RingTest, TheLongestMessageFillsTheRing) {
  const std::string longest(MaxMessageBytes(kBytes), 'x');
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(writer_.Write(Kind::kAnswer, longest + "x"), Writer::Outcome::kTooLarge);
    ASSERT_EQ(writer_.Write(Kind::kAnswer, longest), Writer::Outcome::kWritten);
    EXPECT_EQ(writer_.Write(Kind::kAnswer, ""), Writer::Outcome::kNoRoom);
    ASSERT_EQ(Read(), Reader::Outcome::kMessage);
    EXPECT_EQ(message_, longest);
  }
}

TEST_F(RingTest, TwoThreadsWithSleepsLoseNothing) {
  constexpr int kMessages = 200'000;
  FileDescriptor writers_end;
  FileDescriptor readers_end;
  ASSERT_TRUE(MakeWakeSockets(&writers_end, &readers_end));
  // Blocks, so that a lost wake-up hangs the test.
  std::thread reader([&] {
    std::mt19937 random(2);
    for (int i = 0; i < kMessages; ++i) {
      Kind kind;
      std::string message;
      while (reader_.Read(&kind, &message) == Reader::Outcome::kEmpty) {
        if (!reader_.BeginWait()) continue;
        char wake;
        ASSERT_EQ(read(readers_end.get(), &wake, 1), 1);
        reader_.EndWait();
      }
      ASSERT_EQ(message, RandomMessage(random, 60)) << "message " << i;
    }
  });
  std::mt19937 random(2);
  size_t wakes = 0;
  for (int i = 0; i < kMessages; ++i) {
    const std::string message = RandomMessage(random, 60);
    while (writer_.Write(Kind::kRequest, message) == Writer::Outcome::kNoRoom) {
      std::this_thread::yield();
    }
    if (!writer_.ReaderWaits()) continue;
    Wake(writers_end.get());
    ++wakes;
  }
  reader.join();
  EXPECT_GT(wakes, 0u);
}

TEST_F(RingTest, APositionThatNoWriterHasIsDamage) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  for (const uint64_t written : {uint64_t{1}, uint64_t{7}, uint64_t{kBytes} + 8, kMost, kMost - 7,
                                 uint64_t{1} << 63, uint64_t{1} << 32}) {
    Claim(written);
    EXPECT_EQ(Read(), Reader::Outcome::kCorrupt) << written;
  }
  PutHeader(0, {.bytes = 0, .kind = 1});
  for (const uint64_t written : {9, 12, 15}) {
    Claim(written);
    EXPECT_EQ(Read(), Reader::Outcome::kCorrupt) << written;
  }
  EXPECT_EQ(positions().read.load(), 0u);
}

TEST_F(RingTest, AReaderWithAMessageDoesNotWait) {
  EXPECT_TRUE(reader_.BeginWait());
  EXPECT_TRUE(writer_.ReaderWaits());
  ASSERT_EQ(writer_.Write(Kind::kRequest, ""), Writer::Outcome::kWritten);
  EXPECT_TRUE(writer_.ReaderWaits());
  EXPECT_FALSE(reader_.BeginWait());
  EXPECT_FALSE(writer_.ReaderWaits());
}

TEST_F(RingTest, ALengthBeyondWhatWasWrittenIsDamage) {
  for (const uint32_t bytes : {9u, 16u, kBytes - 8, kBytes, kBytes + 1, 0x7fffffffu, 0xfffffff8u,
                               std::numeric_limits<uint32_t>::max()}) {
    PutHeader(0, {.bytes = bytes, .kind = 1});
    Claim(16);
    EXPECT_EQ(Read(), Reader::Outcome::kCorrupt) << bytes;
  }
  PutHeader(0, {.bytes = 8, .kind = 1});
  EXPECT_EQ(Read(), Reader::Outcome::kMessage);
}

TEST_F(RingTest, AWriterCannotTakeBackWhatWasRead) {
  ASSERT_EQ(writer_.Write(Kind::kRequest, "0123456789"), Writer::Outcome::kWritten);
  ASSERT_EQ(Read(), Reader::Outcome::kMessage);
  Claim(0);
  EXPECT_EQ(Read(), Reader::Outcome::kCorrupt);
  positions().read.store(0);  // The reader does not read its own position there.
  Claim(24);
  EXPECT_EQ(Read(), Reader::Outcome::kEmpty);
}

TEST_F(RingTest, AReaderThatIsAheadOfTheWriterIsDamage) {
  ASSERT_EQ(writer_.Write(Kind::kAnswer, "answer"), Writer::Outcome::kWritten);
  positions().read.store(24);
  EXPECT_EQ(writer_.Write(Kind::kAnswer, "answer"), Writer::Outcome::kCorrupt);
  positions().read.store(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(writer_.Write(Kind::kAnswer, std::string(kBytes - 16, 'x')), Writer::Outcome::kNoRoom);
}

// Whatever the memory holds: the reader ends, and never returns more than was there.
TEST_F(RingTest, RandomMemoryNeverLeadsOutOfTheRing) {
  std::mt19937_64 random(3);
  size_t messages = 0;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t before = positions().read.load();
    for (int j = 0; j < 64; ++j) {
      const uint32_t bytes = static_cast<uint32_t>(random()) >> (random() % 32);
      PutHeader(8 * (random() % (kBytes / 8)),
                {.bytes = bytes, .kind = static_cast<uint32_t>(random())});
    }
    Claim(before + (random() % 4 == 0 ? random() : 8 * (random() % (kBytes / 4))));
    int reads = 0;
    while (Read() == Reader::Outcome::kMessage) {
      ASSERT_LE(message_.size(), MaxMessageBytes(kBytes));
      ASSERT_LE(++reads, static_cast<int>(kBytes / 8));
      ++messages;
    }
  }
  EXPECT_GT(messages, 1000u);
}

// What a writer does in the middle of a Read: the message's second page cannot be read, and the
// handler of that signal changes the length in the first page.
MessageHeader* changed_header = nullptr;
char* hidden_page = nullptr;
size_t page_bytes = 0;

void ChangeLength(int /*signal*/) {
  changed_header->bytes = 4000;
  mprotect(hidden_page, page_bytes, PROT_READ | PROT_WRITE);
}

TEST(RingReader, ALengthThatChangesMeanwhileIsLookedAtOnce) {
  page_bytes = static_cast<size_t>(getpagesize());
  const auto bytes = static_cast<uint32_t>(2 * page_bytes);
  FileDescriptor fd;
  const std::unique_ptr<Memory> memory = Memory::Create(bytes, &fd);
  Positions& positions = memory->control().requests;
  Writer writer(&positions, memory->requests(), bytes);
  Reader reader(&positions, memory->requests(), bytes);
  // The second header is at the end of the first page.
  const std::string first(page_bytes - 2 * sizeof(MessageHeader), 'x');
  ASSERT_EQ(writer.Write(Kind::kRequest, first), Writer::Outcome::kWritten);
  ASSERT_EQ(writer.Write(Kind::kRequest, "message"), Writer::Outcome::kWritten);
  Kind kind;
  std::string message;
  ASSERT_EQ(reader.Read(&kind, &message), Reader::Outcome::kMessage);

  hidden_page = memory->requests() + page_bytes;
  changed_header = reinterpret_cast<MessageHeader*>(hidden_page - sizeof(MessageHeader));
  ASSERT_EQ(changed_header->bytes, 7u);
  struct sigaction change = {};
  struct sigaction before;
  change.sa_handler = ChangeLength;
  ASSERT_EQ(sigaction(SIGSEGV, &change, &before), 0);
  ASSERT_EQ(mprotect(hidden_page, page_bytes, PROT_NONE), 0);
  const Reader::Outcome outcome = reader.Read(&kind, &message);
  ASSERT_EQ(sigaction(SIGSEGV, &before, nullptr), 0);
  ASSERT_EQ(changed_header->bytes, 4000u) << "the length has changed";
  EXPECT_EQ(outcome, Reader::Outcome::kMessage);
  EXPECT_EQ(message, "message");
  EXPECT_EQ(positions.read.load(), positions.written.load());
  EXPECT_EQ(reader.Read(&kind, &message), Reader::Outcome::kEmpty);
}

TEST(RingWake, NeverWaitsAndSeesTheEnd) {
  FileDescriptor first;
  FileDescriptor second;
  ASSERT_TRUE(MakeWakeSockets(&first, &second));
  EXPECT_EQ(TakeWakes(second.get()), Taken::kNothing);
  for (int i = 0; i < 10'000; ++i) Wake(first.get());  // More than the socket can hold.
  EXPECT_EQ(TakeWakes(second.get()), Taken::kWakes);
  while (TakeWakes(second.get()) == Taken::kWakes) {
  }
  first = FileDescriptor();
  EXPECT_EQ(TakeWakes(second.get()), Taken::kClosed);
  Wake(second.get());  // Without SIGPIPE.
}

TEST(RingSpin, GoesOnWhileItHelpsAndEndsWhenItDoesNot) {
  Spin spin(Spin::kMost);
  spin.Learn(Spin::End::kAfterSleep, Spin::kMost);
  EXPECT_EQ(spin.budget(), Spin::kMost / 2);
  for (int i = 0; i < 10; ++i) spin.Learn(Spin::End::kWhileSpinning, Spin::kMost);
  EXPECT_EQ(spin.budget(), Spin::kMost);
  for (int i = 0; i < 10; ++i) spin.Learn(Spin::End::kAfterSleep, 2 * Spin::kMost);
  EXPECT_EQ(spin.budget(), Clock::duration::zero());
  // Long sleeps give no reason to spin.
  for (int i = 0; i < 1000; ++i) spin.Learn(Spin::End::kAfterSleep, 2 * Spin::kMost);
  EXPECT_EQ(spin.budget(), Clock::duration::zero());
}

// Both sides share one processor: sleeps are short, and a spin never helps.
TEST(RingSpin, TriesAgainEverLessOften) {
  Spin spin(Spin::kMost);
  int spins = 0;
  for (int i = 0; i < 10'000; ++i) {
    spins += spin.budget() > Clock::duration::zero() ? 1 : 0;
    spin.Learn(Spin::End::kAfterSleep, Spin::kMost / 4);
  }
  EXPECT_GT(spins, 10);
  EXPECT_LT(spins, 10'000 / 30);
  // It helps again.
  while (spin.budget() == Clock::duration::zero()) spin.Learn(Spin::End::kAfterSleep, Spin::kMost);
  for (int i = 0; i < 10; ++i) spin.Learn(Spin::End::kWhileSpinning, Spin::kMost);
  EXPECT_EQ(spin.budget(), Spin::kMost);
}

// Otherwise every step that begins new blocks would end with a sleep, and the next spin be shorter.
TEST(RingSpin, AnAnswerIsWaitedForAsLongAsAStepWithNewBlocksTakes) {
  Spin spin = Spin::ForAnswers();
  if (std::thread::hardware_concurrency() == 1) {
    EXPECT_EQ(spin.budget(), Clock::duration::zero());
    return;
  }
  EXPECT_EQ(spin.budget(), Spin::kMostForAnswer);
  spin.Learn(Spin::End::kAfterSleep, Spin::kMostForAnswer);
  for (int i = 0; i < 10; ++i) spin.Learn(Spin::End::kWhileSpinning, Spin::kMostForAnswer);
  EXPECT_EQ(spin.budget(), Spin::kMostForAnswer);
  EXPECT_EQ(Spin().budget(), Spin::kMost);
}

TEST(RingSpin, ASideThatMayNotSpinNeverDoes) {
  Spin none{Clock::duration::zero()};
  for (int i = 0; i < 1000; ++i) {
    none.Learn(i % 2 == 0 ? Spin::End::kAfterSleep : Spin::End::kWhileSpinning,
               Clock::duration::zero());
  }
  EXPECT_EQ(none.budget(), Clock::duration::zero());
}

}  // namespace
}  // namespace pagoda::ring
