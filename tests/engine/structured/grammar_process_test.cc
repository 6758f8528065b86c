// A grammar that ends the process that compiles it is refused, and the next one compiles.
#include "engine/structured/grammar_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/structured/grammar_compiler.h"
#include "engine/structured/grammar_library.h"
#include "engine/structured/work_budget.h"

namespace pagoda {
namespace {

using ::testing::HasSubstr;
using Kind = StructuredOutput::Kind;

const AnswerVocabulary kVocabulary = {.bytes = {"a", "b", "ab", "", "\xc3"}, .not_first = {}};
const StructuredOutput kRight = {Kind::kGrammar, "root ::= \"a\" root | \"b\""};
// CheckGrammarText would refuse it. The library recurses without end.
const StructuredOutput kDeadly = {Kind::kGrammar, "root ::= root{0,1}"};

// With VocabularyOfWords this takes the most time that a compilation may take: the tokens that are
// allowed differ after each of its many repetitions.
StructuredOutput LongGrammar() {
  std::string text = "root ::= ";
  for (int i = 0; i < 1000; ++i) {
    text += "[^" + std::string(1, static_cast<char>('a' + i % 26)) + "\\n]* ";
  }
  return {Kind::kGrammar, text + "\"x\""};
}

AnswerVocabulary VocabularyOfWords() {
  AnswerVocabulary vocabulary = kVocabulary;
  for (int i = 0; i < 20'000; ++i) {
    std::string word;
    for (int rest = 26 + i; rest > 0; rest /= 26) word += static_cast<char>('a' + rest % 26);
    vocabulary.bytes.push_back(word);
  }
  return vocabulary;
}

class GrammarProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasStructuredOutput()) GTEST_SKIP() << "this build has no structured output";
  }

  GrammarProcess process_{[] { return kVocabulary; }};
};

TEST_F(GrammarProcessTest, BytesAreTheGrammarThatThisProcessWouldCompile) {
  const auto library = MakeGrammarLibrary(kVocabulary);
  const absl::StatusOr<std::string> bytes = process_.Compile(kRight);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto read = library->FromBytes(*bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  const auto compiled = library->Compile(kRight);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  auto one = read->grammar->NewMatcher({});
  auto other = compiled->grammar->NewMatcher({});
  for (const TokenId token : {0, 0, 2}) {
    EXPECT_EQ(**one->Mask(), **other->Mask());
    EXPECT_TRUE(one->Accept(token).ok());
    EXPECT_TRUE(other->Accept(token).ok());
  }
  EXPECT_TRUE(one->has_ended());
  EXPECT_EQ(process_.Compile({Kind::kRegex, "(a"}).status().message(),
            library->Compile({Kind::kRegex, "(a"}).status().message());
}

TEST_F(GrammarProcessTest, AGrammarThatEndsTheProcessIsRefusedAndTheNextOneCompiles) {
  ASSERT_TRUE(process_.Compile(kRight).ok());
  for (int i = 0; i < 3; ++i) {
    const pid_t before = process_.pid();
    const absl::Status refused = process_.Compile(kDeadly).status();
    EXPECT_EQ(ReasonOf(refused), Reason::kInvalidArgument) << refused;
    EXPECT_THAT(refused.message(), HasSubstr("the process that compiled it was killed by signal"));
    EXPECT_THAT(refused.message(), HasSubstr("simplify the grammar"));
    EXPECT_TRUE(process_.Compile(kRight).ok());
    EXPECT_NE(process_.pid(), before);
  }
  const pid_t one = process_.pid();
  EXPECT_TRUE(process_.Compile(kRight).ok());
  EXPECT_EQ(process_.pid(), one) << "a process compiles many grammars";
}

TEST_F(GrammarProcessTest, AnIdleProcessThatWasKilledIsNoGrammarsFault) {
  ASSERT_TRUE(process_.Compile(kRight).ok());
  const pid_t killed = process_.pid();
  kill(killed, SIGKILL);
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(killed), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(process_.Compile(kRight).ok());
  EXPECT_NE(process_.pid(), killed);
}

TEST_F(GrammarProcessTest, AProcessThatDoesNotAnswerIsKilled) {
  ASSERT_TRUE(process_.Start().ok());
  GrammarProcess silent([] { return kVocabulary; }, {.timeout = absl::Milliseconds(300)});
  ASSERT_TRUE(silent.Start().ok());
  const pid_t stopped = silent.pid();
  kill(stopped, SIGSTOP);
  const absl::Status refused = silent.Compile(kRight).status();
  EXPECT_THAT(refused.message(), HasSubstr("did not answer in 300ms"));
  EXPECT_EQ(kill(stopped, 0), -1) << "it was reaped";
}

TEST_F(GrammarProcessTest, TheProcessHasNoDescriptorsOfThisOne) {
  ASSERT_TRUE(process_.Compile(kRight).ok());
  std::vector<std::string> descriptors;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process_.pid()) + "/fd")) {
    descriptors.push_back(entry.path().filename());
  }
  EXPECT_THAT(descriptors, ::testing::UnorderedElementsAre("0", "1", "2"));
}

TEST_F(GrammarProcessTest, AProgramThatCannotBeStartedIsNoGrammarsFault) {
  GrammarProcess missing([] { return kVocabulary; }, {.program = "/nowhere"});
  const absl::Status failed = missing.Compile(kRight).status();
  EXPECT_TRUE(absl::IsResourceExhausted(failed)) << failed;
}

// The processor time of this program's processes that compile grammars.
absl::Duration CompilersTime() {
  int64_t ticks = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    for (pid_t pid; children >> pid;) {
      std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
      std::string field;
      for (int i = 1; i < 14; ++i) stat >> field;
      int64_t user = 0;
      if (stat >> user) ticks += user;
    }
  }
  return absl::Seconds(1) * ticks / sysconf(_SC_CLK_TCK);
}

TEST_F(GrammarProcessTest, ALongCompilationHoldsUpNoShortOne) {
  if (!WorkBudget::kIsEnforced) GTEST_SKIP() << "no compilation is ended";
  GrammarCompiler compiler(VocabularyOfWords);
  const absl::Duration before = CompilersTime();
  std::atomic<bool> has_ended = false;
  std::thread caller([&] {
    const absl::Status refused = compiler.Compile(LongGrammar()).status();
    has_ended = true;
    EXPECT_THAT(refused.message(), HasSubstr("time or memory"));
  });
  while (!has_ended && CompilersTime() - before < absl::Milliseconds(100)) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  int compiled = 0;
  while (compiled < 20 && !has_ended) {
    const auto one = compiler.Compile({Kind::kRegex, "a" + std::string(compiled + 1, 'b')});
    EXPECT_TRUE(one.ok()) << one.status();
    if (!has_ended) ++compiled;
  }
  EXPECT_EQ(compiled, 20) << "as many as wait for nothing";
  caller.join();
}

// The process is not trusted to answer with a grammar.
TEST_F(GrammarProcessTest, DamagedBytesAreRefused) {
  const auto library = MakeGrammarLibrary(kVocabulary);
  absl::StatusOr<std::string> bytes = library->CompileToBytes(kRight);
  ASSERT_TRUE(bytes.ok());
  for (size_t size = 0; size < bytes->size(); ++size) {
    EXPECT_FALSE(library->FromBytes(bytes->substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(library->FromBytes(*bytes + "a").ok());
  for (size_t i = 0; i < bytes->size(); ++i) {
    std::string damaged = *bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    const auto read = library->FromBytes(damaged);
    if (!read.ok()) continue;
    // What passes the checks can be another grammar. It does not end this process.
    auto matcher = read->grammar->NewMatcher({});
    for (int step = 0; step < 4 && !matcher->has_ended() && matcher->Mask().ok(); ++step) {
      const TokenMask mask = **matcher->Mask();
      for (TokenId token = 0; token < kVocabulary.bytes.size(); ++token) {
        if (!Allows(mask, token)) continue;
        (void)matcher->Accept(token);
        break;
      }
    }
  }
}

}  // namespace
}  // namespace pagoda
