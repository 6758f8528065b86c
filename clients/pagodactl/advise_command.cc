// pagodactl advise: what more memory would bring.
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "clients/pagodactl/admin_client.h"
#include "clients/pagodactl/advice_text.h"
#include "clients/pagodactl/command.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;
using Stub = AdminClient::Stub;

// The rows of the table.
constexpr double kFactors[] = {0.5, 1, 1.5, 2, 3, 4, 8, 16};
// The daemon answers 64 factors.
constexpr size_t kMaxQuestions = 16;

struct AdviseOptions {
  std::vector<std::string> host_memory;
  std::vector<std::string> disk;
};

absl::StatusOr<std::vector<AdviceQuestion>> QuestionsOf(const v1::GetStatusResponse& status,
                                                        const AdviseOptions& options) {
  std::vector<AdviceQuestion> questions;
  for (const std::string& size : options.host_memory) {
    absl::StatusOr<AdviceQuestion> question = AskHostMemory(status, size);
    if (!question.ok()) return question.status();
    questions.push_back(*std::move(question));
  }
  for (const std::string& size : options.disk) {
    absl::StatusOr<AdviceQuestion> question = AskDisk(status, size);
    if (!question.ok()) return question.status();
    questions.push_back(*std::move(question));
  }
  if (questions.empty()) questions.push_back(DefaultQuestion(status));
  return questions;
}

absl::StatusOr<std::vector<Advice>> AdviceFor(AdminClient& admin,
                                              const v1::GetStatusResponse& status,
                                              const AdviseOptions& options) {
  absl::StatusOr<std::vector<AdviceQuestion>> questions = QuestionsOf(status, options);
  if (!questions.ok()) return questions.status();
  v1::GetHitRateCurveRequest request;
  request.set_cache(status.cache().name());
  for (const double factor : kFactors) request.add_capacity_factors(factor);
  for (const AdviceQuestion& question : *questions) request.add_capacity_factors(question.factor);
  const absl::StatusOr<v1::GetHitRateCurveResponse> curves =
      admin.Call(&Stub::GetHitRateCurve, std::move(request));
  if (!curves.ok()) return curves.status();
  std::vector<Advice> all;
  for (const v1::WindowHitRateCurve& curve : curves->windows()) {
    all.push_back({.cache = status.cache().name(), .curve = curve, .questions = *questions});
  }
  return all;
}

absl::Status RunAdvise(const GlobalOptions& globals, const AdviseOptions& options) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  const absl::StatusOr<std::vector<v1::GetStatusResponse>> statuses = admin->Statuses();
  if (!statuses.ok()) return statuses.status();
  std::string text;
  Json windows = Json::array();
  for (const v1::GetStatusResponse& status : *statuses) {
    if (!status.has_cache()) continue;
    const absl::StatusOr<std::vector<Advice>> all = AdviceFor(*admin, status, options);
    if (!all.ok()) return all.status();
    for (const Advice& advice : *all) {
      if (!text.empty()) text += "\n";
      text += AdviceText(advice);
      windows.push_back(AdviceJson(advice));
    }
  }
  if (text.empty()) text = "the daemon has no cache; it waits for clients that open one\n";
  if (globals.output == OutputFormat::kJson) {
    std::cout << Json({{"windows", windows}}).dump() << std::endl;
  } else {
    std::cout << text << std::flush;
  }
  return absl::OkStatus();
}

}  // namespace

void AddAdviseCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* advise =
      app.add_subcommand("advise", "Tells the hit rate that more or less memory would bring");
  const auto options = std::make_shared<AdviseOptions>();
  advise
      ->add_option("--host-memory", options->host_memory,
                   "Host memory instead of today's: a size, or a multiple such as 2x")
      ->type_name("SIZE")
      ->expected(1, static_cast<int>(kMaxQuestions));
  advise
      ->add_option("--disk", options->disk,
                   "A disk tier instead of today's, or a new one: a size, or a multiple")
      ->type_name("SIZE")
      ->expected(1, static_cast<int>(kMaxQuestions));
  advise->footer(
      "The daemon follows a sample of the blocks, also after their eviction. Each number has the\n"
      "error of the sample. It is about the requests so far: those that come later can differ.\n"
      "Hit rates count whole blocks of prompts. The capacity is that of all tiers together. A "
      "disk\n"
      "gives its hits only to clients that prefetch prefixes.\n"
      "Examples:\n"
      "  pagodactl advise\n"
      "  pagodactl advise --host-memory 256GiB 512GiB\n"
      "  pagodactl advise --disk 500GiB -o json | jq '.windows[0].answers'");
  advise->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunAdvise(globals, *options); };
  });
}

}  // namespace pagoda
