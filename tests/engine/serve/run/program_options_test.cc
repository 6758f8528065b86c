// The option set of pagoda-engine: each way to run takes its own options and refuses the others'.
#include "engine/serve/run/program_options.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Parses words behind the program's name. Returns the error; empty if there is none.
std::string Parse(const std::string& line, ProgramOptions& options) {
  CLI::App app;
  AddProgramOptions(app, options);
  std::vector<std::string> arguments = absl::StrSplit(line, ' ', absl::SkipEmpty());
  const std::vector<std::string> given = arguments;
  try {
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
    CheckProgramOptions(app, options, given);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

std::string ErrorOf(const std::string& line) {
  ProgramOptions options;
  return Parse(line, options);
}

TEST(ProgramOptionsTest, WithoutADaemonItChatsOrAnswersOnePrompt) {
  ProgramOptions chat;
  ASSERT_EQ(Parse("--local --model model.gguf --kv basic --backend reference --kv-dtype bfloat16 "
                  "--temperature 0.5 -o json",
                  chat),
            "");
  EXPECT_TRUE(chat.chats());
  EXPECT_EQ(chat.model_dir, "model.gguf");
  EXPECT_EQ(chat.kv, KvMode::kBasic);
  EXPECT_EQ(chat.backend, EngineBackend::kReference);
  EXPECT_EQ(chat.kv_dtype, DType::kBFloat16);
  EXPECT_EQ(chat.sampling.temperature, 0.5f);
  EXPECT_EQ(chat.output, OutputFormat::kJson);
  ProgramOptions ids;
  ASSERT_EQ(Parse("--local --model m --prompt-tokens 1,2", ids), "");
  EXPECT_FALSE(ids.chats());
  EXPECT_TRUE(ids.has_ids());
}

TEST(ProgramOptionsTest, OneSetHasTheSameDefaultsForEveryWay) {
  ProgramOptions local;
  ProgramOptions connected;
  ASSERT_EQ(Parse("--local --model m --prompt a", local), "");
  ASSERT_EQ(Parse("--model m --prompt a", connected), "");
  EXPECT_EQ(local.max_new_tokens, connected.max_new_tokens);
  EXPECT_EQ(local.tokens_per_block, connected.tokens_per_block);
  EXPECT_EQ(local.max_step_tokens, connected.max_step_tokens);
  EXPECT_EQ(local.kv_dtype, connected.kv_dtype);
}

TEST(ProgramOptionsTest, RefusesAnOptionOfAnotherWayAndNamesBoth) {
  for (const auto& [line, option, other] : {
           std::tuple("--local --model m --connect unix:/a", "--connect", "--local"),
           std::tuple("--local --model m --timeout 3", "--timeout", "--local"),
           std::tuple("--local --model m --salt s", "--salt", "--local"),
           std::tuple("--model m --prompt a --kv basic", "--kv", "--local"),
           std::tuple("--model m --prompt a --context 64", "--context", "--local"),
           std::tuple("--model m --prompt a --tokens-per-block 8", "--tokens-per-block",
                      "--open-cache"),
           std::tuple("--model m --prompt a --kv-dtype float16", "--kv-dtype", "--local"),
           std::tuple("--model m --requests - --seed 2", "--seed", "--requests"),
           std::tuple("--model m --requests - --regex a", "--regex", "--requests"),
           std::tuple("--model m --requests - --save-kv f", "--save-kv", "prompt"),
           std::tuple("--model m --prompt a --concurrency 2", "--concurrency", "--requests"),
           std::tuple("--model m --prompt a --system b", "--system", "chat"),
           std::tuple("--serve f --threads 2", "--threads", "--serve"),
           std::tuple("--serve f --seed 2", "--seed", "--serve"),
           std::tuple("--serve f --max-new-tokens 2", "--max-new-tokens", "--serve"),
           std::tuple("--serve f --local", "--local", "--serve"),
           std::tuple("--model m --prompt a --prompt-tokens 1", "--prompt", "--prompt-tokens"),
           std::tuple("--model m --requests - --serve f", "--requests", "--serve"),
           std::tuple("--model m --save-kv f --prompt a --use-adapter b", "--save-kv",
                      "--use-adapter"),
       }) {
    EXPECT_THAT(ErrorOf(line), AllOf(HasSubstr(option), HasSubstr(other))) << line;
  }
  EXPECT_EQ(ErrorOf("--model m --cache c --open-cache 50% --kv-dtype float16 --prompt a"), "");
  EXPECT_EQ(ErrorOf("--serve f --model m --connect unix:/a"), "");
  EXPECT_EQ(ErrorOf("--model m --requests - --load-kv f --salt s --max-new-tokens 3"), "");
}

TEST(ProgramOptionsTest, TheEnvironmentsDaemonDoesNotDisturbTheRunWithout) {
  ASSERT_EQ(setenv("PAGODA_ENDPOINT", "unix:/a", 1), 0);
  const std::string local = ErrorOf("--local --model m");
  const std::string both = ErrorOf("--local --model m --connect=unix:/a");
  unsetenv("PAGODA_ENDPOINT");
  EXPECT_EQ(local, "");
  EXPECT_THAT(both, HasSubstr("--connect"));
}

TEST(ProgramOptionsTest, RefusesBadValues) {
  for (const char* line :
       {"", "--local", "--local --model m --prompt-tokens a", "--local --model m --kv none",
        "--local --model m --priority 1", "--local --model m --tokens-per-block 0",
        "--model m --max-new-tokens 0", "--model m --adapter a", "--model m --open-cache 50%"}) {
    EXPECT_NE(ErrorOf(line), "") << line;
  }
}

}  // namespace
}  // namespace pagoda
