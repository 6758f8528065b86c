// Device memory and launches of one test, written as a script: after the first failure nothing more
// is done.
#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_BED_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_BED_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/model/cuda/device/compute_device.h"
#include "kernels/cuda/device/runtime.h"

namespace pagoda::cuda {

// Thread-compatible. Frees its memory when it is destroyed. After a failure it returns null
// pointers.
class TestBed {
 public:
  // `device` outlives it.
  explicit TestBed(ComputeDevice* device)
      : device_(*device), pinned_(device, MemorySide::kPinned), status_(device->MakeCurrent()) {}

  const absl::Status& status() const { return status_; }
  ComputeDevice& device() { return device_; }
  kernels::cuda::Stream stream() const { return device_.stream(); }

  // Device memory, uninitialised, aligned to 64 bytes.
  template <class T>
  T* Allocate(uint64_t size) {
    if (!status_.ok()) return nullptr;
    DeviceBuffer buffer(&device_, MemorySide::kDevice);
    Keep([&] { return buffer.Reserve(std::max<uint64_t>(size, 1) * sizeof(T)); });
    if (!status_.ok()) return nullptr;
    return memory_.emplace_back(std::move(buffer)).template as<T>();
  }
  // A copy of the host's array on the device.
  template <class T>
  T* Bring(const std::vector<T>& host) {
    T* const allocated = Allocate<T>(host.size());
    Overwrite(allocated, host);
    return status_.ok() ? allocated : nullptr;
  }
  // Replaces the content of an array of the device.
  template <class T>
  void Overwrite(T* device, const std::vector<T>& host) {
    const uint64_t bytes = host.size() * sizeof(T);
    if (bytes == 0) return;
    Keep([&] { return pinned_.Reserve(bytes); });
    if (!status_.ok()) return;
    std::memcpy(pinned_.data(), host.data(), bytes);
    Keep([&] { return device_.Copy(device, pinned_.data(), bytes); });
    Wait();
  }
  // Waits for all earlier work, and returns an array of the device. Empty after a failure.
  template <class T>
  std::vector<T> Take(const T* device, uint64_t size) {
    const uint64_t bytes = size * sizeof(T);
    Keep([&] { return pinned_.Reserve(bytes); });
    Keep([&] { return device_.Copy(pinned_.data(), device, bytes); });
    Wait();
    if (!status_.ok()) return {};
    std::vector<T> host(size);
    std::memcpy(host.data(), pinned_.data(), bytes);
    return host;
  }

  template <class Work>
  void Keep(const Work& work) {
    if (status_.ok()) status_ = work();
  }
  // The same for a launch, which returns 0 or CUDA's error.
  template <class Launch>
  void Run(const char* what, const Launch& launch) {
    Keep([&] { return kernels::cuda::StatusOf(what, launch()); });
  }
  // The shortest of a few runs, in seconds on the device. A first run, which loads the code, is not
  // counted. 0 after a failure.
  double SecondsOf(const std::function<absl::Status()>& work) {
    constexpr int kRuns = 3;
    Keep(work);
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < kRuns && status_.ok(); ++run) {
      const absl::StatusOr<double> seconds = device_.SecondsOf(work);
      status_ = seconds.status();
      if (seconds.ok()) best = std::min(best, *seconds);
    }
    return status_.ok() ? best : 0;
  }

 private:
  // Waits after a failure too, because started work could still use the memory.
  void Wait() {
    const absl::Status ended = device_.Wait();
    Keep([&] { return ended; });
  }

  ComputeDevice& device_;
  DeviceBuffer pinned_;
  std::vector<DeviceBuffer> memory_;
  absl::Status status_;
};

// Random numbers, the same on every machine.
class TestNumbers {
 public:
  explicit TestNumbers(uint32_t seed) : random_(seed) {}
  // Uniform from -range to range.
  float Next(float range) { return range * (static_cast<float>(random_() >> 8) * 0x1p-23f - 1.0f); }
  std::vector<float> Many(uint64_t size, float range) {
    std::vector<float> numbers(size);
    for (float& number : numbers) number = Next(range);
    return numbers;
  }

 private:
  std::mt19937 random_;
};

// The largest error of a row relative to the row's norm. Infinity if a number is not finite, or one
// is missing.
inline double RowError(absl::Span<const float> actual, absl::Span<const double> expected,
                       uint64_t columns) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kSmall = 1e-6;  // The least norm, per column.
  if (actual.size() != expected.size()) return kInfinity;
  double worst = 0;
  for (uint64_t first = 0; first < actual.size(); first += columns) {
    double error = 0;
    double norm = 0;
    for (uint64_t i = first; i < first + columns; ++i) {
      error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    const double relative = std::sqrt(error / std::max(norm, kSmall * kSmall * columns));
    if (!std::isfinite(relative)) return kInfinity;
    worst = std::max(worst, relative);
  }
  return worst;
}

// The largest error of a number, relative to 1 + its magnitude.
inline double NumberError(absl::Span<const float> actual, absl::Span<const double> expected) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (actual.size() != expected.size()) return kInfinity;
  double worst = 0;
  for (uint64_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]) / (1 + std::abs(expected[i]));
    if (!std::isfinite(error)) return kInfinity;
    worst = std::max(worst, error);
  }
  return worst;
}

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_BED_H_
