#include "engine/structured/grammar_process.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/structured/grammar_library.h"
#include "engine/structured/large_stack.h"
#include "engine/structured/work_budget.h"

namespace pagoda {
namespace {

constexpr char kCompileFlag[] = "--compile-grammars";
// An answer is at most as large as what a compilation may allocate, and a sign.
constexpr uint64_t kMostMessageBytes = uint64_t{256} << 20;
// What the process may map beyond its program and the vocabulary: the stack, the heap of a
// compilation, and room for the allocator.
constexpr uint64_t kAddressSpaceBytes = uint64_t{1} << 30;
// Beyond the budget of a compilation. It ends what loops without allocating.
constexpr rlim_t kMoreProcessorSeconds = 2;

std::atomic<bool> grammar_main_takes_part = false;

// --- The protocol: messages of a length and so many bytes. The first one is the vocabulary: for
// each token its length and its bytes. Then each request, a kind and a text, has an answer: '+' and
// the grammar's bytes, or '-' and why it is refused. ---

std::string VocabularyMessage(const AnswerVocabulary& vocabulary) {
  std::string message;
  for (const std::string& token : vocabulary.bytes) {
    const auto size = static_cast<uint32_t>(token.size());
    message.append(reinterpret_cast<const char*>(&size), sizeof(size));
    message += token;
  }
  return message;
}

AnswerVocabulary VocabularyIn(absl::string_view message) {
  AnswerVocabulary vocabulary;
  uint32_t size = 0;
  while (message.size() >= sizeof(size)) {
    std::memcpy(&size, message.data(), sizeof(size));
    message.remove_prefix(sizeof(size));
    vocabulary.bytes.emplace_back(message.substr(0, size));
    message.remove_prefix(std::min<size_t>(size, message.size()));
  }
  return vocabulary;
}

// Waits until the socket can be read (POLLIN) or written (POLLOUT), or its other end is closed.
bool AwaitSocket(int socket, short events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    pollfd waiting = {.fd = socket, .events = events, .revents = 0};
    const int64_t milliseconds = absl::ToInt64Milliseconds(std::min(left, absl::Minutes(1))) + 1;
    const int ready = poll(&waiting, 1, static_cast<int>(milliseconds));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

// False at the deadline, and if the other end is closed.
bool SendBytes(int socket, const char* bytes, size_t size, absl::Time deadline) {
  while (size > 0) {
    const ssize_t sent = send(socket, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes += sent;
      size -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      if (!AwaitSocket(socket, POLLOUT, deadline)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool ReceiveBytes(int socket, char* bytes, size_t size, absl::Time deadline) {
  while (size > 0) {
    const ssize_t got = recv(socket, bytes, size, MSG_DONTWAIT);
    if (got > 0) {
      bytes += got;
      size -= static_cast<size_t>(got);
      continue;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    if (errno == EAGAIN && !AwaitSocket(socket, POLLIN, deadline)) return false;
  }
  return true;
}

bool SendMessage(int socket, absl::string_view message, absl::Time deadline) {
  const uint64_t size = message.size();
  return SendBytes(socket, reinterpret_cast<const char*>(&size), sizeof(size), deadline) &&
         SendBytes(socket, message.data(), message.size(), deadline);
}

bool ReceiveMessage(int socket, std::string* message, absl::Time deadline) {
  uint64_t size = 0;
  if (!ReceiveBytes(socket, reinterpret_cast<char*>(&size), sizeof(size), deadline)) return false;
  if (size > kMostMessageBytes) return false;
  message->resize(size);
  return ReceiveBytes(socket, message->data(), size, deadline);
}

// --- The process that compiles ---

void Limit(int resource, rlim_t most) {
  rlimit limit;
  if (getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = std::min(most, limit.rlim_max);
  setrlimit(resource, &limit);
}

rlim_t UsedProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<rlim_t>(now.tv_sec);
}

uint64_t MappedBytes() {
  uint64_t pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%lu", &pages) != 1) pages = 0;
  std::fclose(file);
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string AnswerTo(absl::string_view request, GrammarLibrary& library,
                     const GrammarLimits& limits) {
  if (request.empty()) return "-an empty request";
  const StructuredOutput wanted = {.kind = static_cast<StructuredOutput::Kind>(request[0]),
                                   .text = std::string(request.substr(1))};
  // The time is counted from the process's start, and the second in progress is not known.
  Limit(RLIMIT_CPU, UsedProcessorSeconds() + 1 + kMoreProcessorSeconds +
                        static_cast<rlim_t>(absl::ToInt64Seconds(
                            absl::Ceil(limits.compilation.processor_time, absl::Seconds(1)))));
  absl::StatusOr<std::string> bytes = library.CompileToBytes(wanted);
  if (!bytes.ok()) return absl::StrCat("-", bytes.status().message());
  if (bytes->size() >= kMostMessageBytes) return "-grammar: it takes too much time or memory";
  return absl::StrCat("+", *bytes);
}

int ServeGrammars() {
  const int socket = STDIN_FILENO;
  prctl(PR_SET_NAME, "pagoda-grammar");
  Limit(RLIMIT_CORE, 0);
  std::string message;
  if (!ReceiveMessage(socket, &message, absl::InfiniteFuture())) return 1;
  const GrammarLimits limits;
  const std::unique_ptr<GrammarLibrary> library = MakeGrammarLibrary(VocabularyIn(message), limits);
  if (library == nullptr) return 1;
  // A sanitizer maps terabytes.
  const uint64_t mapped = MappedBytes();
  if (WorkBudget::kIsEnforced && mapped > 0) Limit(RLIMIT_AS, mapped + kAddressSpaceBytes);
  const absl::Status ran = RunWithLargeStack([&] {
    while (ReceiveMessage(socket, &message, absl::InfiniteFuture())) {
      if (!SendMessage(socket, AnswerTo(message, *library, limits), absl::InfiniteFuture())) break;
    }
  });
  // Skips destructors: nobody needs what they would free.
  _exit(ran.ok() ? 0 : 1);
}

}  // namespace

// --- The process that asks ---

bool GrammarProcess::IsAvailable() { return grammar_main_takes_part; }

GrammarProcess::GrammarProcess(std::function<AnswerVocabulary()> vocabulary)
    : GrammarProcess(std::move(vocabulary), Options()) {}

GrammarProcess::GrammarProcess(std::function<AnswerVocabulary()> vocabulary, Options options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {}

GrammarProcess::~GrammarProcess() {
  if (pid_ > 0) End();
}

absl::Status GrammarProcess::Start() {
  if (pid_ > 0) return absl::OkStatus();
  const auto failure = [](int error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no process to compile a grammar: ", std::strerror(error)));
  };
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return failure(errno);
  FileDescriptor own(ends[0]);
  FileDescriptor theirs(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // It ends by the usual signals, and not by those of this program's terminal.
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::string arguments[] = {options_.program, kCompileFlag};
  char* const argv[] = {arguments[0].data(), arguments[1].data(), nullptr};
  const int error =
      posix_spawn(&pid_, options_.program.c_str(), &actions, &attributes, argv, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  theirs = FileDescriptor();
  if (error != 0) {
    pid_ = -1;
    return failure(error);
  }
  socket_ = std::move(own);
  if (SendMessage(socket_.get(), VocabularyMessage(vocabulary_()),
                  absl::Now() + options_.timeout)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("the process that compiles grammars ", End(), " at its start"));
}

absl::StatusOr<std::string> GrammarProcess::Compile(const StructuredOutput& wanted) {
  // Somebody can have ended an idle process. That is not this grammar's fault.
  char byte = 0;
  if (pid_ > 0 && (recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN))
    End();
  if (absl::Status started = Start(); !started.ok()) return started;
  const absl::Time deadline = absl::Now() + options_.timeout;
  const std::string request =
      absl::StrCat(std::string(1, static_cast<char>(wanted.kind)), wanted.text);
  std::string answer;
  if (!SendMessage(socket_.get(), request, deadline) ||
      !ReceiveMessage(socket_.get(), &answer, deadline) || answer.empty()) {
    const bool late = absl::Now() >= deadline;
    const std::string ended = End();
    return InvalidArgument(absl::StrCat(
        "grammar: the process that compiled it ",
        late ? absl::StrCat("did not answer in ", absl::FormatDuration(options_.timeout)) : ended,
        "; simplify the grammar"));
  }
  if (answer[0] != '+') return InvalidArgument(answer.substr(1));
  answer.erase(0, 1);
  return answer;
}

std::string GrammarProcess::End() {
  // If it has ended already, the signal does nothing.
  kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  socket_ = FileDescriptor();
  if (WIFSIGNALED(status)) {
    return absl::StrCat("was killed by signal ", WTERMSIG(status), " (",
                        strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("ended with status ", WEXITSTATUS(status));
}

std::optional<int> GrammarProcessMain(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], kCompileFlag) == 0) return ServeGrammars();
  grammar_main_takes_part = true;
  return std::nullopt;
}

}  // namespace pagoda
