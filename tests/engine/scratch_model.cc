#include "tests/engine/scratch_model.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "tests/engine/golden.h"

namespace pagoda {
namespace {

constexpr char kTensors[] = "model.safetensors";

uint64_t HeaderLength(const std::string& content) {
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(content[i]);
  return length;
}

}  // namespace

ScratchModel::ScratchModel(const std::string& golden_name) {
  std::string pattern = (std::filesystem::temp_directory_path() / "pagoda-model-XXXXXX").string();
  PAGODA_CHECK(mkdtemp(pattern.data()) != nullptr, "a temporary folder can be made");
  dir_ = pattern;
  std::filesystem::copy(GoldenDir(golden_name), dir_);
}

ScratchModel::~ScratchModel() { std::filesystem::remove_all(dir_); }

std::string ScratchModel::Read(const std::string& file) const {
  std::ifstream in(dir_ + "/" + file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void ScratchModel::Write(const std::string& file, const std::string& content) const {
  std::ofstream(dir_ + "/" + file, std::ios::binary) << content;
}

void ScratchModel::EditJson(const std::string& file, const Edit& edit) const {
  nlohmann::json root = nlohmann::json::parse(Read(file));
  edit(root);
  Write(file, root.dump());
}

void ScratchModel::EditHeader(const Edit& edit) const {
  const std::string content = Read(kTensors);
  const uint64_t length = HeaderLength(content);
  nlohmann::json header = nlohmann::json::parse(content.substr(8, length));
  edit(header);
  Write(kTensors, SafetensorsContent(header.dump(), content.substr(8 + length)));
}

std::string SafetensorsContent(const std::string& header, const std::string& data) {
  std::string content;
  for (int i = 0; i < 8; ++i) content += static_cast<char>(header.size() >> 8 * i);
  return content + header + data;
}

}  // namespace pagoda
