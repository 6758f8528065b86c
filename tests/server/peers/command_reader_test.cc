#include "server/peers/command_reader.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "pools/store/resp.h"

namespace pagoda::server {
namespace {

using Command = std::vector<std::string>;

constexpr CommandReader::Limits kLimits = {.arguments = 8, .argument_bytes = 1 << 20};

std::string Encode(const Command& command) {
  std::string bytes;
  resp::AppendCommand(std::vector<absl::string_view>(command.begin(), command.end()), bytes);
  return bytes;
}

// The commands in `bytes`, which come in parts of at most `part` bytes. What the reader has
// not taken comes again, like in a connection.
absl::StatusOr<std::vector<Command>> ReadAll(const std::string& bytes, size_t part) {
  CommandReader reader;
  std::vector<Command> commands;
  std::string left;
  for (size_t at = 0; at < bytes.size(); at += part) {
    left += bytes.substr(at, part);
    absl::string_view input = left;
    while (true) {
      const absl::StatusOr<bool> complete = reader.Next(input, kLimits);
      if (!complete.ok()) return complete.status();
      if (!*complete) break;
      commands.push_back(reader.arguments());
      EXPECT_FALSE(reader.is_cut());
    }
    left = std::string(input);
    EXPECT_LT(left.size(), resp::kMaxLineBytes) << "only the beginning of a line is left";
  }
  EXPECT_EQ(left, "");
  return commands;
}

TEST(CommandReaderTest, CommandsComeInPartsOfAnyLength) {
  const std::vector<Command> commands = {
      {"PING"}, {"GET", "name"}, {"SET", "", "value\r\n$3\r\n"}, {"EXISTS", "a", "b", "c"}};
  std::string bytes;
  for (const Command& command : commands) bytes += Encode(command);
  for (size_t part = 1; part <= bytes.size(); ++part) EXPECT_EQ(*ReadAll(bytes, part), commands);
}

TEST(CommandReaderTest, RandomCommandsComeBackAsTheyWere) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Command> commands(random() % 20 + 1);
    std::string bytes;
    for (Command& command : commands) {
      command.resize(random() % kLimits.arguments + 1);
      for (std::string& argument : command) {
        argument.resize(random() % (random() % 10 == 0 ? 20'000 : 20));
        for (char& c : argument) c = static_cast<char>(random());
      }
      bytes += Encode(command);
    }
    EXPECT_EQ(*ReadAll(bytes, random() % 5000 + 1), commands);
  }
}

TEST(CommandReaderTest, WhatIsTooLongToKeepIsSkipped) {
  const std::string large(CommandReader::kKeptBytes + 1000, 'x');
  const std::string bytes = Encode({"SET", "name", large, "PX"}) + Encode({"PING"});
  CommandReader reader;
  absl::string_view input = bytes;
  ASSERT_TRUE(*reader.Next(input, kLimits));
  EXPECT_TRUE(reader.is_cut());
  ASSERT_EQ(reader.arguments().size(), 4u);
  EXPECT_EQ(reader.arguments()[1], "name");
  EXPECT_EQ(reader.arguments()[2].size(), CommandReader::kKeptBytes - 7);
  ASSERT_TRUE(*reader.Next(input, kLimits));
  EXPECT_EQ(reader.arguments(), Command{"PING"});
  EXPECT_FALSE(reader.is_cut());
}

TEST(CommandReaderTest, WhatIsNoCommandIsAnError) {
  for (const char* bytes :
       {"PING\r\n", "GET / HTTP/1.1\r\n", "$4\r\nPING\r\n", "*1\r\n:1\r\n", "*1\r\n*1\r\n",
        "*1\r\n$-1\r\n", "*x\r\n", "*9\r\n", "*1\r\n$1048577\r\n", "*1\r\n$-2\r\n", "\r\n"}) {
    EXPECT_EQ(ReadAll(bytes, 100).status().code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
  EXPECT_FALSE(ReadAll("*" + std::string(9000, '1'), 10'000).ok()) << "a line without an end";
  EXPECT_EQ(*ReadAll("*0\r\n*-1\r\n" + Encode({"PING"}), 3), std::vector<Command>{{"PING"}})
      << "an empty array is no command";
}

TEST(CommandReaderTest, RandomBytesNeverCrash) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    const size_t size = random() % 400;
    for (size_t i = 0; i < size; ++i) {
      bytes += random() % 3 == 0 ? static_cast<char>(random()) : "*$0123\r\n-:"[random() % 11];
    }
    CommandReader reader;
    absl::string_view input = bytes;
    int commands = 0;
    while (true) {
      const absl::StatusOr<bool> complete = reader.Next(input, kLimits);
      if (!complete.ok() || !*complete) break;
      ASSERT_LT(++commands, 400) << "each command takes bytes";
      EXPECT_LE(reader.arguments().size(), kLimits.arguments);
    }
  }
}

}  // namespace
}  // namespace pagoda::server
