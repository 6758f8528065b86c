// The tokenizer, compared with llama.cpp on the vocabularies that its sources have. They are too
// large for this repository: PAGODA_LLAMA_VOCABULARIES names the folder `models` of its sources.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/error.h"
#include "engine/text/model_text.h"

namespace pagoda {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// Files with other kinds of tokenizers, and their kinds.
const std::map<std::string, std::string>& OtherKinds() {
  static const auto* const kinds = new std::map<std::string, std::string>{
      {"ggml-vocab-bert-bge.gguf", "'bert'"},
      {"ggml-vocab-nomic-bert-moe.gguf", "'t5'"},
  };
  return *kinds;
}

std::string ReadText(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// The texts of a file `.inp`.
std::vector<std::string> Inputs(const std::string& file) {
  std::vector<std::string> inputs = absl::StrSplit(ReadText(file), "\n__ggml_vocab_test__\n");
  if (inputs.back().empty()) inputs.pop_back();
  return inputs;
}

// The ids in each line of a file `.out`.
std::vector<std::vector<TokenId>> Outputs(const std::string& file) {
  std::vector<std::vector<TokenId>> outputs;
  for (const absl::string_view line : absl::StrSplit(ReadText(file), '\n')) {
    std::vector<TokenId>& ids = outputs.emplace_back();
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      EXPECT_TRUE(absl::SimpleAtoi(word, &ids.emplace_back())) << word;
    }
  }
  return outputs;
}

TEST(LlamaVocabulariesTest, GivesTheIdsOfLlamaCpp) {
  const char* const folder = std::getenv("PAGODA_LLAMA_VOCABULARIES");
  if (folder == nullptr) {
    GTEST_SKIP() << "PAGODA_LLAMA_VOCABULARIES does not name llama.cpp's folder `models`";
  }
  int files = 0;
  int with_inputs = 0;
  size_t texts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path());
    ++files;
    const ModelText model = ModelText::Load(entry.path());
    if (const auto kind = OtherKinds().find(entry.path().filename()); kind != OtherKinds().end()) {
      EXPECT_EQ(ReasonOf(model.tokenizer.status()), Reason::kInvalidCheckpoint);
      EXPECT_THAT(std::string(model.tokenizer.status().message()), HasSubstr(kind->second));
      continue;
    }
    ASSERT_TRUE(model.tokenizer.ok()) << model.tokenizer.status();
    const std::string input_file = absl::StrCat(entry.path().string(), ".inp");
    if (!std::filesystem::exists(input_file)) continue;
    ++with_inputs;
    const std::vector<std::string> inputs = Inputs(input_file);
    const std::vector<std::vector<TokenId>> outputs =
        Outputs(absl::StrCat(entry.path().string(), ".out"));
    ASSERT_GE(inputs.size(), 40);
    ASSERT_GE(outputs.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto ids = (*model.tokenizer)->Encode(inputs[i], SpecialTokens::kLeaveOut);
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_THAT(*ids, ElementsAreArray(outputs[i])) << inputs[i];
      ++texts;
    }
  }
  EXPECT_GE(with_inputs, 14);
  std::cout << files << " files; " << with_inputs << " with inputs, " << texts << " texts\n";
}

}  // namespace
}  // namespace pagoda
