// Records launches, with everything that a captured graph keeps of them by value. Two steps whose
// records are equal can be run by one graph.
#ifndef PAGODA_KERNELS_CUDA_DEVICE_LAUNCH_RECORD_H_
#define PAGODA_KERNELS_CUDA_DEVICE_LAUNCH_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pagoda::kernels::cuda {

// A launch of a kernel, or other work that is put into a stream.
struct RecordedLaunch {
  std::string name;  // The name of the kernel's type, or of the work.
  uint64_t blocks = 0;
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;
  std::string arguments;  // Their bytes. Padding is zero.
  friend bool operator==(const RecordedLaunch&, const RecordedLaunch&) = default;
};
using LaunchRecord = std::vector<RecordedLaunch>;

// For people: the first difference, for example "launch 3, AddNormKernel<4>: byte 16 of its
// arguments". Empty if the records are equal.
std::string DifferenceOf(const LaunchRecord& one, const LaunchRecord& other);

// While it exists, the launches of its thread are appended to a record, whether they run at once or
// are captured. The thread's last one records.
class ScopedLaunchRecord {
 public:
  // `record` outlives it.
  explicit ScopedLaunchRecord(LaunchRecord* record);
  ~ScopedLaunchRecord();
  ScopedLaunchRecord(const ScopedLaunchRecord&) = delete;
  ScopedLaunchRecord& operator=(const ScopedLaunchRecord&) = delete;

 private:
  LaunchRecord* const before_;
};

// The record of this thread's launches; null: there is none.
LaunchRecord* CurrentLaunchRecord();

// So that equal values have equal bytes. Compilers without the builtin (Clang) leave the padding,
// and records can then differ although the values are equal.
template <class T>
void ClearPadding([[maybe_unused]] T* value) {
#ifdef __has_builtin
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(value);
#endif
#endif
}

// The type in `signature`, which is __PRETTY_FUNCTION__ of a template with the parameter Kernel.
constexpr std::string_view KernelIn(std::string_view signature) {
  constexpr std::string_view kParameter = "Kernel = ";
  const size_t at = signature.find(kParameter);
  if (at == std::string_view::npos) return signature;
  signature.remove_prefix(at + kParameter.size());
  return signature.substr(0, signature.find_first_of(";]"));
}

// Appends to the thread's record, if there is one. `arguments` are plain: numbers and pointers.
template <class Arguments>
void RecordLaunch(std::string_view name, uint64_t blocks, uint32_t threads, uint32_t shared_bytes,
                  const Arguments& arguments) {
  static_assert(std::is_trivially_copyable_v<Arguments>);
  LaunchRecord* const record = CurrentLaunchRecord();
  if (record == nullptr) return;
  // On the heap: some arguments are large.
  const auto copy = std::make_unique<Arguments>(arguments);
  ClearPadding(copy.get());
  record->push_back(
      {.name = std::string(name),
       .blocks = blocks,
       .threads = threads,
       .shared_bytes = shared_bytes,
       .arguments = std::string(reinterpret_cast<const char*>(copy.get()), sizeof(Arguments))});
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_DEVICE_LAUNCH_RECORD_H_
