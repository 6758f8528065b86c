#include "server/engine/engine_program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/error.h"
#include "wire/caches.h"

extern char** environ;

namespace pagoda::server {
namespace {

// The program's standard input and output, and the first descriptor that it gets besides the
// standard ones.
constexpr int kInput = 0;
constexpr int kOutput = 1;
constexpr int kFirstDescriptor = 3;
// A description of a model is far shorter.
constexpr size_t kMaxDescriptionBytes = size_t{16} << 20;

absl::Status NotStarted(int error) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot start ", EngineProgram(),
                   ", the program of the bundled engine: ", std::strerror(error)));
}

// Everything that the program writes until its output ends.
absl::StatusOr<std::string> ReadAll(int fd) {
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t bytes = read(fd, piece, sizeof(piece));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return text;
    text.append(piece, static_cast<size_t>(bytes));
    if (text.size() > kMaxDescriptionBytes) return absl::InternalError("its answer is too long");
  }
}

// The engine does not speak to the service manager in the daemon's name.
bool IsForTheServiceManager(absl::string_view variable) {
  return absl::StartsWith(variable, "NOTIFY_SOCKET=") || absl::StartsWith(variable, "WATCHDOG_");
}

absl::StatusOr<v1::ModelDescription> Ask(std::vector<std::string> arguments) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return NotStarted(errno);
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  arguments.insert(arguments.begin(), "--describe");
  const absl::StatusOr<pid_t> process = StartEngineProgram(arguments, {}, writing.get());
  if (!process.ok()) return process.status();
  writing = FileDescriptor();
  const absl::StatusOr<std::string> answer = ReadAll(reading.get());
  if (!answer.ok()) kill(*process, SIGKILL);
  int status = 0;
  while (waitpid(*process, &status, 0) < 0 && errno == EINTR) continue;
  v1::ModelDescription description;
  if (!answer.ok() || status != 0 || !description.ParseFromString(*answer)) {
    return absl::InternalError(
        absl::StrCat(EngineProgram(), " does not describe the model: ",
                     answer.ok() ? EndText(status) : std::string(answer.status().message())));
  }
  if (description.has_failure()) return StatusOf(description.failure());
  return description;
}

std::vector<std::string> ModelArguments(const std::string& model_dir, uint32_t tokens_per_block,
                                        DType kv_dtype) {
  return {"--model",
          model_dir,
          "--tokens-per-block",
          absl::StrCat(tokens_per_block),
          "--kv-dtype",
          std::string(DTypeName(kv_dtype))};
}

}  // namespace

std::string EngineProgram() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "" : (self.parent_path() / "pagoda-engine").string();
}

absl::StatusOr<pid_t> StartEngineProgram(const std::vector<std::string>& arguments,
                                         const std::vector<int>& descriptors, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  if (posix_spawn_file_actions_init(&actions) != 0) return NotStarted(ENOMEM);
  const absl::Cleanup end_actions = [&] { posix_spawn_file_actions_destroy(&actions); };
  if (posix_spawnattr_init(&attributes) != 0) return NotStarted(ENOMEM);
  const absl::Cleanup end_attributes = [&] { posix_spawnattr_destroy(&attributes); };

  // The copies lie above all targets, so that none replaces another.
  std::vector<FileDescriptor> copies;
  const int above = kFirstDescriptor + static_cast<int>(descriptors.size());
  for (const int fd : descriptors) {
    copies.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, above));
    if (!copies.back().valid()) return NotStarted(errno);
  }
  int failed = 0;
  failed = posix_spawn_file_actions_addopen(&actions, kInput, "/dev/null", O_RDONLY, 0);
  if (output >= 0 && failed == 0)
    failed = posix_spawn_file_actions_adddup2(&actions, output, kOutput);
  for (size_t i = 0; i < copies.size() && failed == 0; ++i) {
    failed = posix_spawn_file_actions_adddup2(&actions, copies[i].get(),
                                              kFirstDescriptor + static_cast<int>(i));
  }
  if (failed == 0) failed = posix_spawn_file_actions_addclosefrom_np(&actions, above);
  // The daemon's threads block the signals that end it.
  sigset_t none, pipe;
  sigemptyset(&none);
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  if (failed == 0) failed = posix_spawnattr_setsigmask(&attributes, &none);
  if (failed == 0) failed = posix_spawnattr_setsigdefault(&attributes, &pipe);
  // A group of its own: Ctrl-C in a terminal reaches the daemon alone, which ends the engine.
  if (failed == 0) failed = posix_spawnattr_setpgroup(&attributes, 0);
  if (failed == 0) {
    failed = posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  const std::string program = EngineProgram();
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!IsForTheServiceManager(*variable)) environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t process = 0;
  if (failed == 0) {
    failed = posix_spawn(&process, program.c_str(), &actions, &attributes, argv.data(),
                         environment.data());
  }
  if (failed != 0) return NotStarted(failed);
  return process;
}

std::string EndText(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return absl::StrCat("signal ", number, " (", strsignal(number), ")");
  }
  return absl::StrCat("exit status ", WEXITSTATUS(status));
}

absl::Status StatusOf(const v1::Failure& failure) {
  const Reason reason = ReasonFromName(failure.reason());
  if (reason != Reason::kNone) return MakeError(reason, failure.message());
  const auto code = static_cast<absl::StatusCode>(failure.code());
  return absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kInternal : code,
                      failure.message());
}

void FailureToProto(const absl::Status& status, v1::Failure* out) {
  const Reason reason = ReasonOf(status);
  if (reason != Reason::kNone) out->set_reason(std::string(ReasonName(reason)));
  out->set_code(static_cast<int32_t>(status.code()));
  out->set_message(std::string(status.message()));
}

absl::StatusOr<CacheSpec> DescribeModel(const std::string& model_dir, uint32_t tokens_per_block,
                                        DType kv_dtype) {
  const absl::StatusOr<v1::ModelDescription> description =
      Ask(ModelArguments(model_dir, tokens_per_block, kv_dtype));
  if (!description.ok()) return description.status();
  absl::StatusOr<OpenCacheCall> cache = OpenCacheFromProto(description->cache());
  if (!cache.ok()) return cache.status();
  return CacheSpec{.name = "",
                   .model_fingerprint = cache->identity.model,
                   .tokens_per_block = cache->tokens_per_block,
                   .layers = std::move(cache->layers)};
}

absl::StatusOr<v1::GpuSelfTest> TestEngineOnGpu(const GpuQuestion& question) {
  std::vector<std::string> arguments =
      ModelArguments(question.model_dir, question.tokens_per_block, question.kv_dtype);
  arguments.insert(arguments.end(), {"--test-gpu", absl::StrCat(question.device), "--compute",
                                     NameOf(ComputeTypes(), question.compute), "--gpu-attention",
                                     NameOf(GpuAttentions(), question.attention)});
  absl::StatusOr<v1::ModelDescription> description = Ask(std::move(arguments));
  if (!description.ok()) return description.status();
  return std::move(*description->mutable_gpu());
}

}  // namespace pagoda::server
