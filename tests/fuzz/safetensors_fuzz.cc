// A safetensors file of arbitrary bytes, or of an arbitrary header with the right length before it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/checkpoint/files/mxfp4_pairs.h"
#include "engine/checkpoint/files/safetensors.h"
#include "tests/fuzz/byte_reader.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/tensor_checks.h"

namespace pagoda::fuzz {
namespace {

std::string Text(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string FileContent(ByteReader reader, size_t size) {
  if (reader.OneIn(8)) return Text(reader.Take(size));
  const size_t data_bytes = reader.Byte();
  const std::string data = Text(reader.Take(data_bytes));
  const std::string header = Text(reader.Take(size));
  std::string content;
  for (int i = 0; i < 8; ++i) content += static_cast<char>(uint64_t{header.size()} >> 8 * i);
  return content + header + data;
}

void Check(const std::string& content) {
  const MemoryFile memory(content);
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(memory.path());
  if (!file.ok()) return CheckRefusal(file.status(), memory.path());
  CheckTensors(file->tensors(), content.size());
  const absl::StatusOr<JoinedTensors> joined = JoinMxfp4Pairs(file->byte_tensors());
  if (!joined.ok()) {
    PAGODA_CHECK(ReasonOf(joined.status()) == Reason::kInvalidCheckpoint,
                 "a checkpoint is refused with INVALID_CHECKPOINT");
    return;
  }
  for (const auto& [name, tensor] : joined->tensors) {
    PAGODA_CHECK(ToFloats(tensor).size() == tensor.shape[0] * tensor.shape[1] * tensor.shape[2],
                 "a tensor has the elements of its shape");
  }
}

}  // namespace
}  // namespace pagoda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::fuzz::Check(pagoda::fuzz::FileContent(pagoda::fuzz::ByteReader({data, size}), size));
  return 0;
}
