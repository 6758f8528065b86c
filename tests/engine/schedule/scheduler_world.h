// A scheduler over a real manager, real pools and real copies, with a model whose answers can be
// predicted.
#ifndef PAGODA_TESTS_ENGINE_SCHEDULE_SCHEDULER_WORLD_H_
#define PAGODA_TESTS_ENGINE_SCHEDULE_SCHEDULER_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/schedule/scheduler.h"
#include "manager/accounts/tenants.h"
#include "tests/engine/fixtures/test_cache.h"
#include "tests/engine/schedule/arithmetic_model.h"

namespace pagoda {

// A client that counts the operations, and fails on request.
class WatchedClient : public CacheClient {
 public:
  explicit WatchedClient(std::unique_ptr<CacheClient> client) : client_(std::move(client)) {}

  const CacheInfo& info() const override { return client_->info(); }
  using CacheClient::Execute;
  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations,
                                      StepRange steps) override;
  absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(MemoryAccess access) override {
    return client_->MapPools(access);
  }

  uint64_t capacity_queries() const { return capacity_queries_; }
  uint64_t match_queries() const { return match_queries_; }
  uint64_t batches() const { return batches_; }
  std::vector<std::string> SlowTenants() override { return slow_tenants_; }
  void SetSlowTenants(std::vector<std::string> tenants) { slow_tenants_ = std::move(tenants); }
  // While this is an error, batches fail as a whole and do not run.
  void FailWith(absl::Status status) { failure_ = std::move(status); }

 private:
  const std::unique_ptr<CacheClient> client_;
  uint64_t capacity_queries_ = 0;
  uint64_t match_queries_ = 0;
  uint64_t batches_ = 0;
  absl::Status failure_;
  std::vector<std::string> slow_tenants_;
};

class SchedulerWorld {
 public:
  static constexpr uint32_t kTokensPerBlock = 8;

  struct Setting {
    std::vector<WindowSize> windows = {kFullAttention};
    TestCache::Sizes blocks = {.primary_blocks = 64};
    Scheduler::Options options;
    std::function<absl::Status(const Order&)> before_copy = nullptr;
    uint32_t period = 0;  // See ArithmeticModel.
    std::vector<TenantOptions> tenants;
    // Behind this position, some of the model's logits are NaN: one of them, a different one each
    // time, or all.
    std::optional<int32_t> no_numbers_at;
    bool all_are_none = false;
    absl::Duration time_per_token = {};  // The model's time.
    // If set, the model draws the tokens itself where it may, as a GPU does. It spoils the logits
    // of these rows.
    std::function<uint32_t(const TokenDraw&, absl::Span<const float>)> draw = nullptr;
  };
  struct Outcome {
    std::vector<std::vector<TokenId>> samples;
    absl::StatusOr<GenerateReport> report = absl::UnknownError("not ended");
    bool ended = false;
    uint64_t ended_in_step = 0;
    std::weak_ptr<ActiveRequest> request;
  };
  // Whether Scheduler::Prepared is still to come.
  enum class Preparation : uint8_t { kEnded, kGoesOn };

  explicit SchedulerWorld(Setting setting);

  // The outcome is filled in as the scheduler runs.
  Outcome& Add(const GenerateRequest& request, Preparation preparation = Preparation::kEnded);
  void RunUntilIdle();
  void RunSteps(int count);
  // Called after each step.
  void SetBetweenSteps(std::function<void()> between) { between_steps_ = std::move(between); }

  void ExpectSoloAnswer(const GenerateRequest& request, const Outcome& outcome);
  // All of them at once.
  void ExpectSoloAnswers(const std::vector<GenerateRequest>& requests);

  TestCache& cache() { return cache_; }
  WatchedClient& client() { return client_; }
  ArithmeticModel& model() { return model_; }
  Scheduler& scheduler() { return scheduler_; }
  const SchedulerStats& stats() const { return scheduler_.stats(); }

 private:
  absl::StatusOr<absl::Span<const float>> Forward(const ModelInput& input);
  absl::StatusOr<ModelOutput> ForwardWithDraws(const ModelInput& input);

  const std::vector<WindowSize> windows_;
  const uint32_t period_;
  const std::optional<int32_t> no_numbers_at_;
  const bool all_are_none_;
  const absl::Duration time_per_token_;
  const std::function<uint32_t(const TokenDraw&, absl::Span<const float>)> draw_;
  std::vector<uint32_t> drawn_;
  std::vector<float> undrawn_logits_;
  std::vector<float> spoilt_logits_;
  size_t spoilt_ = 0;
  TestCache cache_;
  WatchedClient client_;
  ArithmeticModel model_;
  uint64_t steps_ = 0;
  std::function<void()> between_steps_ = [] {};
  std::vector<std::unique_ptr<Outcome>> outcomes_;
  Scheduler scheduler_;  // Last, because its destructor reports the outcomes.
};

// A prepared request that arrives now.
std::shared_ptr<ActiveRequest> Arrived(const GenerateRequest& request, TokenCallback on_token,
                                       EndCallback on_end);

std::vector<TokenId> RandomTokens(std::mt19937_64& random, size_t count, uint32_t vocabulary);

GenerateRequest RandomRequest(uint64_t seed, size_t prompt_tokens, uint32_t max_new_tokens);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_SCHEDULE_SCHEDULER_WORLD_H_
