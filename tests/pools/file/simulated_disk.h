// A disk that loses unsynced writes when its power goes, and an engine over it that fails on
// demand. Completions run within Submit, so a seed always gives the same run.
#ifndef PAGODA_TESTS_POOLS_FILE_SIMULATED_DISK_H_
#define PAGODA_TESTS_POOLS_FILE_SIMULATED_DISK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "pools/file/file_engine.h"
#include "pools/file/slab_format.h"

namespace pagoda {

// Pages of 4 KiB are written whole or not at all. A power cut keeps any one of a page's writes
// since the last sync, or none of them: writes are dropped, reordered, and torn between pages.
class SimulatedDisk {
 public:
  explicit SimulatedDisk(uint64_t seed) : random_(seed) {}

  // Cuts the power at this step, counted from now. Each page write and each sync is a step.
  void CutAfter(uint64_t steps) { steps_left_ = steps; }
  bool is_cut() const { return is_cut_; }
  // Restores the power. Each page has one version that can have survived.
  void PowerUp();

  int Read(uint64_t page, std::byte* to);
  int Write(uint64_t page, const std::byte* from);
  int Sync();

 private:
  bool Step();

  std::mt19937_64 random_;
  std::map<uint64_t, slab::Page> current_;
  std::map<uint64_t, slab::Page> durable_;
  std::map<uint64_t, std::vector<slab::Page>> unsynced_;
  uint64_t steps_left_ = UINT64_MAX;
  bool is_cut_ = false;
};

class SimulatedEngine final : public FileEngine {
 public:
  // Called before each request. A result other than 0 fails the request; a failed write reaches the
  // disk in part.
  using Fault = std::function<int(const FileRequest& request)>;

  SimulatedEngine(std::shared_ptr<SimulatedDisk> disk, Fault fault)
      : disk_(std::move(disk)), fault_(std::move(fault)) {}

  void Submit(FileRequest request) override;
  void Stop() override {}
  std::string_view name() const override { return "simulated"; }

 private:
  int Run(const FileRequest& request);

  const std::shared_ptr<SimulatedDisk> disk_;
  const Fault fault_;
};

// Passes requests to another engine, fails them, or holds them back.
class FaultyEngine final : public FileEngine {
 public:
  using Fault = SimulatedEngine::Fault;

  FaultyEngine(std::unique_ptr<FileEngine> engine, Fault fault)
      : engine_(std::move(engine)), fault_(std::move(fault)) {}

  void Submit(FileRequest request) override {
    if (const int error = fault_(request); error != 0) {
      request.done(error);
    } else {
      engine_->Submit(std::move(request));
    }
  }
  void Stop() override { engine_->Stop(); }
  std::string_view name() const override { return engine_->name(); }

 private:
  const std::unique_ptr<FileEngine> engine_;
  const Fault fault_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_POOLS_FILE_SIMULATED_DISK_H_
