#include "engine/gpu_self_test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/model/cuda/cuda_backend.h"

namespace pagoda {
namespace {

using Json = nlohmann::json;

constexpr char kFlag[] = "--gpu-self-test";
constexpr char kThisProgram[] = "/proc/self/exe";
// The most bytes of a process's output, many times the size of a normal test.
constexpr size_t kMostBytes = size_t{1} << 18;

std::atomic<bool> main_takes_part = false;

// --- The protocol of the two processes: the request is one argument. The answer is lines of the
// test's standard output: {"family": ...} before and after each family, then {"error": ...} or
// {"end": ...}. Both processes run the same program, so only types are checked. ---

Json JsonOf(const GpuKernelResult& result) {
  return {{"part", result.part},
          {"family", result.family},
          {"needed", result.needed},
          {"outcome", GpuOutcomeName(result.outcome)},
          {"error", result.error},  // null if it is not finite
          {"tolerance", result.tolerance},
          {"seconds", result.seconds},
          {"why", result.why}};
}

std::string TextAt(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}
double NumberAt(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>()
                                                   : std::numeric_limits<double>::infinity();
}
// 0 if there is none.
int IntAt(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<int>() : 0;
}
bool FlagAt(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_boolean() && found->get<bool>();
}

GpuKernelResult ResultOf(const Json& json) {
  return {.part = TextAt(json, "part"),
          .family = TextAt(json, "family"),
          .needed = FlagAt(json, "needed"),
          .outcome = GpuOutcomeFromName(TextAt(json, "outcome")),
          .error = NumberAt(json, "error"),
          .tolerance = NumberAt(json, "tolerance"),
          .seconds = NumberAt(json, "seconds"),
          .why = TextAt(json, "why")};
}

std::string RequestText(const GpuSelfTestOptions& options,
                        const std::vector<GpuKernelResult>& known) {
  Json results = Json::array();
  for (const GpuKernelResult& result : known) results.push_back(JsonOf(result));
  const Json request = {{"model_dir", options.model_dir},
                        {"device", options.device},
                        {"kv_type", static_cast<int>(options.kv_type)},
                        {"tokens_per_block", options.tokens_per_block},
                        {"compute", static_cast<int>(options.compute)},
                        {"attention", static_cast<int>(options.attention)},
                        {"known", std::move(results)}};
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<GpuSelfTestRequest> MakeRequest(const GpuSelfTestOptions& options) {
  absl::StatusOr<ModelConfig> config = LoadModelConfig(options.model_dir);
  if (!config.ok()) return config.status();
  return GpuSelfTestRequest{.device = options.device,
                            .config = *std::move(config),
                            .kv_type = options.kv_type,
                            .tokens_per_block = options.tokens_per_block,
                            .compute = options.compute,
                            .attention = options.attention,
                            .known = {}};
}

// --- The process that tests ---

void WriteLine(const Json& line) {
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void WriteError(const absl::Status& status) {
  WriteLine({{"error",
              {{"code", status.raw_code()},
               {"reason", std::string(ReasonName(ReasonOf(status)))},
               {"message", std::string(status.message())}}}});
}

int RunTest(const char* argument) {
  const Json json = Json::parse(argument, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("known")) return 2;
  // A hanging test must not outlive the process that started it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  absl::StatusOr<GpuSelfTestRequest> request =
      MakeRequest({.model_dir = TextAt(json, "model_dir"),
                   .device = IntAt(json, "device"),
                   .kv_type = static_cast<kernels::ElementType>(IntAt(json, "kv_type")),
                   .tokens_per_block = static_cast<uint32_t>(IntAt(json, "tokens_per_block")),
                   .compute = static_cast<ComputeType>(IntAt(json, "compute")),
                   .attention = static_cast<GpuAttention>(IntAt(json, "attention")),
                   .program = ""});
  if (!request.ok()) {
    WriteError(request.status());
    return 1;
  }
  for (const Json& result : json["known"]) request->known.push_back(ResultOf(result));
  size_t told = 0;
  const absl::StatusOr<GpuSelfTestReport> report =
      TestCudaKernels(*request, [&told](const GpuKernelResult& result) {
        WriteLine({{"family", JsonOf(result)}});
        if (result.outcome != GpuOutcome::kRunning) ++told;
      });
  if (!report.ok()) {
    WriteError(report.status());
    return 1;
  }
  WriteLine({{"end",
              {{"device", report->device},
               // False if the device was lost. It works again for another process.
               {"all_tested", told + request->known.size() >= report->results.size()}}}});
  // Skips destructors: those of a broken context could wait forever.
  _exit(0);
}

// --- The process that starts the test ---

// A child process and the pipe from its standard output.
class Child {
 public:
  ~Child() {
    if (pid_ > 0) Kill();
    if (output_ >= 0) close(output_);
  }
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  absl::Status Start(const std::string& program, const std::string& request) {
    int pipe_ends[2];
    if (pipe2(pipe_ends, O_CLOEXEC) != 0) return Failure("pipe", errno);
    output_ = pipe_ends[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
    // The child must not inherit blocked signals, so that signals can end it.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    std::string arguments[] = {program, kFlag, request};
    char* const argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), nullptr};
    const int error = posix_spawn(&pid_, program.c_str(), &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_ends[1]);
    if (error == 0) return absl::OkStatus();
    pid_ = -1;
    return Failure(program, error);
  }

  enum class Read : uint8_t { kLine, kEnd, kTimeout };
  // The next line of the output, without its line end. Returns kEnd also if the output is too long.
  Read ReadLine(absl::Time deadline, std::string* line) {
    for (;;) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        *line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return Read::kLine;
      }
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return Read::kTimeout;
      pollfd waiting = {.fd = output_, .events = POLLIN, .revents = 0};
      const int ready = poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
      if (ready < 0 && errno != EINTR) return Read::kEnd;
      if (ready <= 0) continue;
      std::array<char, 4096> bytes;
      const ssize_t size = read(output_, bytes.data(), bytes.size());
      if (size < 0 && errno == EINTR) continue;
      read_bytes_ += size > 0 ? static_cast<size_t>(size) : 0;
      if (size <= 0 || read_bytes_ > kMostBytes) return Read::kEnd;
      buffer_.append(bytes.data(), static_cast<size_t>(size));
    }
  }

  // Kills it, and returns how it ended: "was killed by signal 11 (Segmentation fault)".
  std::string Kill() {
    // If it has already ended, the signal does nothing.
    kill(pid_, SIGKILL);
    return Reap();
  }
  // Waits until it has ended.
  std::string Reap() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    if (WIFSIGNALED(status)) {
      return absl::StrCat("was killed by signal ", WTERMSIG(status), " (",
                          strsignal(WTERMSIG(status)), ")");
    }
    return absl::StrCat("ended with status ", WEXITSTATUS(status));
  }

 private:
  static absl::Status Failure(const std::string& what, int error) {
    return absl::InternalError(absl::StrCat("the GPU's self-test could not be started: ", what,
                                            ": ", std::strerror(error)));
  }

  pid_t pid_ = -1;
  int output_ = -1;
  std::string buffer_;
  size_t read_bytes_ = 0;
};

// The output of one process.
struct Told {
  std::vector<GpuKernelResult> results;
  std::optional<GpuKernelResult> running;  // The family under test when it ended or was killed.
  std::string ended;                       // How it ended, if before the end of the test.
  bool timed_out = false;
  std::string device;
  bool all_tested = false;
};

absl::Status ErrorOf(const Json& json) {
  const std::string message = TextAt(json, "message");
  const Reason reason = ReasonFromName(TextAt(json, "reason"));
  if (reason != Reason::kNone) return MakeError(reason, message);
  return absl::Status(static_cast<absl::StatusCode>(IntAt(json, "code")), message);
}

absl::StatusOr<Told> RunProcess(const GpuSelfTestOptions& options, const std::string& program,
                                const std::vector<GpuKernelResult>& known) {
  Child child;
  absl::Status started = child.Start(program, RequestText(options, known));
  if (!started.ok()) return started;
  Told told;
  absl::Duration limit = options.start_timeout;
  absl::Time deadline = absl::Now() + limit;
  std::string line;
  for (;;) {
    const Child::Read read = child.ReadLine(deadline, &line);
    if (read == Child::Read::kTimeout) {
      child.Kill();
      told.timed_out = true;
      told.ended = absl::StrCat("did not end in ", absl::FormatDuration(limit));
      return told;
    }
    if (read == Child::Read::kEnd) {
      // Its output has ended. If the process is still running, it is killed.
      told.ended = child.Kill();
      return told;
    }
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) continue;  // Output of a library.
    if (json.contains("error")) return ErrorOf(json["error"]);
    if (json.contains("end")) {
      told.device = TextAt(json["end"], "device");
      told.all_tested = FlagAt(json["end"], "all_tested");
      return told;
    }
    if (!json.contains("family")) continue;
    GpuKernelResult result = ResultOf(json["family"]);
    if (result.outcome == GpuOutcome::kRunning) {
      told.running = std::move(result);
    } else {
      told.running.reset();
      told.results.push_back(std::move(result));
    }
    limit = options.family_timeout;
    deadline = absl::Now() + limit;
  }
}

absl::StatusOr<GpuSelfTestReport> RunProcesses(const GpuSelfTestOptions& options,
                                               const std::string& program) {
  GpuSelfTestReport report{.device = absl::StrCat("cuda:", options.device), .results = {}};
  for (;;) {
    absl::StatusOr<Told> told = RunProcess(options, program, report.results);
    if (!told.ok()) return told.status();
    const size_t before = report.results.size();
    std::move(told->results.begin(), told->results.end(), std::back_inserter(report.results));
    if (!told->device.empty()) report.device = told->device;
    if (told->all_tested) break;
    if (told->running.has_value()) {
      GpuKernelResult& failed = report.results.emplace_back(*std::move(told->running));
      failed.outcome = told->timed_out ? GpuOutcome::kTimeout : GpuOutcome::kFailed;
      failed.why = absl::StrCat("its process ", told->ended);
    }
    // Each process leaves fewer families to the next one.
    if (report.results.size() == before) {
      return absl::InternalError(absl::StrCat("the process of the GPU's self-test ",
                                              told->ended.empty() ? "tested nothing" : told->ended,
                                              " before it had tested anything"));
    }
  }
  report.Choose();
  return report;
}

}  // namespace

absl::StatusOr<GpuSelfTestReport> TestGpu(const GpuSelfTestOptions& options) {
  const std::string program =
      options.program.empty() && main_takes_part ? kThisProgram : options.program;
  if (!program.empty()) return RunProcesses(options, program);
  const absl::StatusOr<GpuSelfTestRequest> request = MakeRequest(options);
  if (!request.ok()) return request.status();
  return TestCudaKernels(*request, [](const GpuKernelResult&) {});
}

std::optional<int> GpuSelfTestMain(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], kFlag) == 0) return RunTest(argv[2]);
  main_takes_part = true;
  return std::nullopt;
}

}  // namespace pagoda
