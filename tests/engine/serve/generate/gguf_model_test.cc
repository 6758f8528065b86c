// A daemon whose engine runs a GGUF file alone: texts and conversations by the file's metadata.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/engine/text/small_vocabulary.h"
#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

// A golden model with a vocabulary and a template, in a file.
class WholeFile {
 public:
  WholeFile()
      : path_(std::filesystem::path(testing::TempDir()) /
              absl::StrCat("whole-", getpid(), ".gguf")) {
    std::ifstream in(absl::StrCat(GOLDEN_MODEL, "/../llama3_tiny_f16_gguf/model.gguf"),
                     std::ios::binary);
    const std::string content(std::istreambuf_iterator<char>(in), {});
    std::ofstream(path_, std::ios::binary) << SmallVocabulary::Chat().AddTo(content);
  }
  ~WholeFile() { std::filesystem::remove(path_); }
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  const std::filesystem::path path_;
};

class GgufModelTest : private WholeFile, public DaemonTest {
 protected:
  GgufModelTest() : DaemonTest(ConfigFor(path())) {}

  static Config ConfigFor(const std::filesystem::path& file) {
    Config config = TestConfig();
    config.cache.tokens_per_block = 16;
    config.cache.primary = BlockBudget{{64}};
    config.engine.model_dir = file;
    return config;
  }

  struct Answer {
    std::string text;
    v1::GenerateReport report;
  };
  Answer Generate(v1::GenerateRequest request) {
    request.set_max_new_tokens(6);
    const auto stub = v1::EngineService::NewStub(EngineChannel());
    const auto context = NewContext();
    const auto reader = stub->Generate(context.get(), request);
    Answer answer;
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      answer.text += response.text();
      if (response.has_report()) answer.report = response.report();
    }
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return answer;
  }
};

TEST_F(GgufModelTest, TakesTextsAndConversations) {
  v1::GenerateRequest request;
  request.set_prompt_text("hi hi");
  const Answer text = Generate(request);
  EXPECT_EQ(text.report.prompt_tokens(), 3u);  // "hi", the space, "hi".
  EXPECT_FALSE(text.text.empty());

  request.clear_prompt_text();
  v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.set_content("hi");
  // <|im_start|> u s e r \n hi <|im_end|> \n <|im_start|> a s s i s t a n t. Jinja drops the line
  // end at the end of a template.
  EXPECT_EQ(Generate(request).report.prompt_tokens(), 19u);
}

}  // namespace
}  // namespace pagoda::server
