#include "engine/serve/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "clients/pagodactl/admin/cache_spec.h"
#include "clients/pagodactl/command/command.h"
#include "clients/pagodactl/command/number_check.h"
#include "clients/pagodactl/command/tokens.h"
#include "clients/pagodactl/terminal/format.h"
#include "clients/pagodactl/terminal/interrupt.h"
#include "clients/pagodactl/terminal/printable_output.h"
#include "engine/serve/connected_engine.h"
#include "engine/serve/describe.h"
#include "engine/serve/doors.h"
#include "engine/serve/line_reader.h"
#include "engine/serve/request_line.h"
#include "engine/serve/workers.h"
#include "server/log/log.h"

namespace pagoda {
namespace {

constexpr char kProgram[] = "pagoda-engine";

constexpr char kFooter[] = R"(Examples:
  pagoda-engine --model DIR --random-prompt 64 --seed 7
  pagoda-engine --connect unix:/run/pagoda.sock --model DIR --token 1,2,3 --max-new-tokens 40
  echo '{"id": 1, "prompt": [1, 2, 3]}' | pagoda-engine --model DIR --requests -

A request is one line of JSON. Only "prompt" is required:
  {"id": ..., "prompt": [ids], "max_new_tokens": N, "stop_tokens": [ids], "cache_salt": "text",
   "temperature": T, "top_k": K, "top_p": P, "repetition_penalty": R, "seed": S,
   "num_samples": N, "max_draft_tokens": N, "priority": N, "beam_width": N,
   "length_penalty": X, "early_stopping": true, "adapter": "name"}
Its answer is one line of JSON:
  {"id": ..., "tokens": [ids], "prompt_tokens": N, "reused_tokens": N,
   "reused_secondary_tokens": N, "generated_tokens": N,
   "finish_reason": "length" or "stop token", "time_to_first_token_ms": T, "queue_ms": T,
   "total_ms": T, "tokens_per_second": R, "preemptions": N, "drafted_tokens": N,
   "accepted_draft_tokens": N}
or, if the request failed:
  {"id": ..., "error": {"reason": ..., "message": ...}}

The daemon's cache must be for this model. There are two ways:
  * Start pagodad with cache.model_dir or engine.model_dir on the same folder.
  * Start pagodad --memory 8GiB, and this program with --cache NAME --open-cache 4GiB.
If the daemon goes away, running requests start again when a daemon is back. Tokens that are still
cached are not computed again.

Exit codes: 0 success, 1 a generation failed, 2 bad usage, 3 no daemon answers.
SIGINT and SIGTERM end the program; running requests are answered with CANCELLED.)";

struct ProgramOptions {
  std::string endpoint = "127.0.0.1:7070";
  std::string model_dir;
  std::string cache;
  std::string open_cache;  // How much host memory; empty: do not open a cache.
  uint32_t tokens_per_block = 16;
  std::string client_name = kProgram;
  OutputFormat output = OutputFormat::kTable;
  CredentialFiles credentials;
  double timeout_seconds = 10;
  double reconnect_seconds = 60;
  double lease_seconds = 0;
  uint32_t max_step_tokens = 512;
  KvMode kv = KvMode::kPaged;
  EngineBackend backend = EngineBackend::kAuto;
  GpuAttention gpu_attention = GpuAttention::kAuto;
  GpuGraphs gpu_graphs = GpuGraphs::kAuto;
  ComputeType compute = ComputeType::kAuto;
  uint32_t threads = 0;
  std::vector<std::string> adapters;  // NAME=PATH.

  std::string prompt_tokens;
  std::string prompt_file;
  uint32_t random_prompt = 0;  // Its length.
  std::string requests;        // A file, or "-".
  std::string serve;           // A configuration file.
  bool describe = false;
  std::string kv_dtype;  // With `describe`. Likewise the next one.
  std::optional<int> test_gpu;
  uint32_t concurrency = 1;
  uint64_t seed = 1;
  uint32_t max_new_tokens = 20;
  std::string stop_tokens;
  std::string salt;
  std::string adapter;
  std::string load_kv;
  std::string save_kv;
};

void Say(const std::string& what) { std::cerr << kProgram << ": " << what << std::endl; }

void AddConnectionOptions(CLI::App& app, ProgramOptions& options) {
  app.add_option("--connect", options.endpoint, "The daemon: host:port or unix:/path")
      ->envname("PAGODA_ENDPOINT")
      ->capture_default_str();
  app.add_option("--cache", options.cache,
                 "The name of the daemon's cache; not needed if the daemon has only one");
  CLI::Option* cache = app.get_option("--cache");
  app.add_option(
         "--open-cache", options.open_cache,
         "Open the cache that --cache names, for this model, if it does not exist. The value is "
         "how much of the daemon's host memory for caches it takes, such as 8GiB or 50%")
      ->needs(cache);
  app.add_option("--tokens-per-block", options.tokens_per_block,
                 "Tokens per block of the cache that --open-cache opens")
      ->capture_default_str();
  app.add_option("--model", options.model_dir,
                 "A Hugging Face folder or a GGUF file of a model of the Llama family; required, "
                 "unless --serve names it");
  app.add_option("--timeout", options.timeout_seconds,
                 "Seconds to wait for the connection, and for each of the daemon's answers")
      ->check(AboveZero())
      ->capture_default_str();
  app.add_option("--reconnect-seconds", options.reconnect_seconds,
                 "Seconds to look for a daemon that went away; 0: do not look")
      ->check(NotNegative())
      ->capture_default_str();
  app.add_option("--lease-seconds", options.lease_seconds,
                 "Seconds that the session outlives this process; 0: the daemon's default")
      ->check(NotNegative())
      ->capture_default_str();
  AddCredentialOptions(app, options.credentials);
  app.add_option("--name", options.client_name, "This engine's name, as operators see it")
      ->capture_default_str();
}

template <class Choice>
void AddChoice(CLI::App& app, const std::string& name, Choice& field,
               const Choices<Choice>& choices, const std::string& help) {
  std::string words;
  for (const auto& [word, value] : choices) absl::StrAppend(&words, words.empty() ? "" : "|", word);
  app.add_option(name, field, help)
      ->transform(CLI::CheckedTransformer(choices))
      ->option_text(absl::StrCat(words, " [", NameOf(choices, field), "]"));
}

void AddEngineOptions(CLI::App& app, ProgramOptions& options) {
  AddChoice(
      app, "--kv", options.kv, KvModes(),
      "Where the KV is: paged is in the daemon's blocks; basic is in this process, to compare");
  AddChoice(app, "--backend", options.backend, EngineBackends(),
            "Where the model computes; auto computes where the daemon's primary pools are");
  AddChoice(app, "--gpu-attention", options.gpu_attention, GpuAttentions(),
            "Which attention kernels a GPU runs; auto takes the fastest ones that the self-test "
            "found correct");
  AddChoice(app, "--gpu-graphs", options.gpu_graphs, GpuGraphChoices(),
            "Whether a GPU runs a decode step as one CUDA graph; auto does it if the self-test "
            "found that correct; check compares each step with its graph first");
  AddChoice(app, "--compute", options.compute, ComputeTypes(), "The type of matrix products");
  app.add_option("--threads", options.threads, "CPU threads; 0: one per processor")
      ->capture_default_str();
  app.add_option("--adapter", options.adapters,
                 "A LoRA adapter that requests can name, and its folder; can be repeated")
      ->type_name("NAME=PATH")
      ->check([](const std::string& text) {
        const size_t equals = text.find('=');
        const bool good = equals != std::string::npos && equals != 0 && equals + 1 != text.size();
        return good ? std::string() : "must be NAME=PATH, not " + text;
      });
  app.add_option("--max-step-tokens", options.max_step_tokens,
                 "The most tokens that go through the model in one step")
      ->check(AboveZero())
      ->capture_default_str();
}

void AddRequestOptions(CLI::App& app, ProgramOptions& options) {
  CLI::Option_group* what = app.add_option_group("requests", "Exactly one of");
  CLI::Option* serve = what->add_option(
      "--serve", options.serve,
      "Serve OpenAI's API over HTTP and Generate over gRPC, until a signal. The value is a YAML "
      "file with the daemon's keys: engine, server, tenants, operators and log. A daemon whose "
      "configuration has engine.model_dir starts this program itself");
  for (const char* name : {"--kv", "--backend", "--gpu-attention", "--gpu-graphs", "--compute",
                           "--threads", "--adapter", "--max-step-tokens"}) {
    app.get_option(name)->excludes(serve);  // The file has them.
  }
  what->add_option("--requests", options.requests,
                   "A file of requests, one line of JSON each; - is standard input");
  app.add_option("--concurrency", options.concurrency,
                 "With --requests: how many run at once; each is answered when it is done")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  what->add_option("--prompt-tokens,--token", options.prompt_tokens, "Token ids: 1,2,3")
      ->check(CheckTokens);
  what->add_option("--prompt-file", options.prompt_file,
                   "A file of token ids, separated by commas or whitespace; - is standard input");
  what->add_option("--random-prompt", options.random_prompt,
                   "A prompt of this many random token ids")
      ->check(AboveZero());
  // For a daemon alone: --help does not list them. See also main.cc.
  what->add_flag("--describe", options.describe)->group("");
  app.add_option("--kv-dtype", options.kv_dtype)->group("");
  app.add_option("--test-gpu", options.test_gpu)->group("");
  what->require_option(1);
  app.add_option("--seed", options.seed, "The seed of the random prompt")->capture_default_str();
  app.add_option("--max-new-tokens", options.max_new_tokens,
                 "The most tokens to generate, unless the request has its own limit")
      ->check(AboveZero())
      ->capture_default_str();
  app.add_option("--stop-tokens", options.stop_tokens, "Token ids that end a single generation")
      ->check(CheckTokens);
  app.add_option("--salt", options.salt,
                 "Only prompts with the same salt share their cached prefixes");
  app.add_option("--use-adapter", options.adapter, "The adapter of a single generation")
      ->type_name("NAME");
  app.add_option("--load-kv", options.load_kv,
                 "A file whose KV is put into the cache before the first request");
  app.add_option("--save-kv", options.save_kv,
                 "A file for the KV of a single generation, prompt and answer")
      ->excludes("--use-adapter");
  const std::map<std::string, OutputFormat> formats = {{"table", OutputFormat::kTable},
                                                       {"json", OutputFormat::kJson}};
  app.add_option("-o,--output", options.output,
                 "The output of a single generation: table for people, json for programs")
      ->transform(CLI::CheckedTransformer(formats))
      ->option_text("table|json [table]");
}

std::vector<AdapterFolder> AdaptersOf(const ProgramOptions& options) {
  std::vector<AdapterFolder> adapters;
  for (const std::string& text : options.adapters) {
    const size_t equals = text.find('=');
    adapters.push_back({.name = text.substr(0, equals), .path = text.substr(equals + 1)});
  }
  return adapters;
}

absl::StatusOr<ConnectedEngine::Options> EngineOptions(const ProgramOptions& options) {
  absl::StatusOr<ClientCredentials> credentials = CredentialsOf(options.credentials);
  if (!credentials.ok()) return credentials.status();
  std::optional<ConnectedEngine::Options::BroughtCache> brings;
  if (!options.open_cache.empty()) {
    const absl::StatusOr<v1::TierSize> host = ParseTierSize(options.open_cache, v1::MEDIUM_HOST);
    if (!host.ok()) return host.status();
    brings.emplace();
    brings->tokens_per_block = options.tokens_per_block;
    brings->host.bytes = host->bytes();
    brings->host.free_permille = host->free_permille();
  }
  return ConnectedEngine::Options{
      .client = {.endpoint = options.endpoint,
                 .client_name = options.client_name,
                 .lease = absl::Seconds(options.lease_seconds),
                 .timeout = absl::Seconds(options.timeout_seconds),
                 .credentials = *std::move(credentials),
                 .cache = options.cache},
      .brings = brings,
      .engine = {.model_dir = options.model_dir,
                 .backend = options.backend,
                 .gpu_attention = options.gpu_attention,
                 .gpu_graphs = options.gpu_graphs,
                 .cpu = {.num_threads = options.threads, .compute = options.compute},
                 .adapters = AdaptersOf(options),
                 .scheduler = {.max_step_tokens = options.max_step_tokens},
                 .on_warning = Say},
      .kv = options.kv,
      .reconnect = absl::Seconds(options.reconnect_seconds),
      .say = Say};
}

absl::StatusOr<GenerateRequest> SingleRequest(const ProgramOptions& options,
                                              const ModelConfig& model) {
  absl::StatusOr<std::vector<TokenId>> prompt =
      options.random_prompt != 0
          ? RandomTokens(options.seed, model.vocab_size).Take(options.random_prompt)
      : options.prompt_file.empty() ? ParseTokens(options.prompt_tokens)
                                    : ReadTokenFile(options.prompt_file);
  if (!prompt.ok()) return prompt.status();
  absl::StatusOr<std::vector<TokenId>> stop_tokens = ParseTokens(options.stop_tokens);
  if (!stop_tokens.ok()) return stop_tokens.status();
  GenerateRequest request{.prompt = *std::move(prompt),
                          .max_new_tokens = options.max_new_tokens,
                          .stop_tokens = *std::move(stop_tokens)};
  request.name_space.cache_salt = options.salt;
  request.adapter = options.adapter;
  return request;
}

void PrintTable(const Generated& generated) {
  const GenerateReport& report = generated.report;
  Print("%s\n\n", absl::StrJoin(generated.tokens.front(), " "));
  Print("prompt               %s, %s reused from the cache (%s)\n",
        FormatCounted(report.prompt_tokens, "token"), FormatCount(report.reused_tokens),
        FormatShare(Share(report.reused_tokens, report.prompt_tokens)));
  if (report.reused_secondary_tokens > 0) {
    Print("                     %s of these were onboarded from the secondary tier\n",
          FormatCount(report.reused_secondary_tokens));
  }
  Print("generated            %s in %s, ended by %s\n",
        FormatCounted(report.generated_tokens, "token"), FormatElapsed(report.total_time),
        FinishText(report.finish_reasons.front()));
  Print("time to first token  %s\n", FormatElapsed(report.time_to_first_token));
  Print("tokens per second    %.1f\n", report.tokens_per_second());
  if (report.drafted_tokens > 0) {
    Print("draft tokens         %s of %s accepted\n", FormatCount(report.accepted_draft_tokens),
          FormatCount(report.drafted_tokens));
  }
  if (report.preemptions > 0) {
    Print("preempted            %s\n", FormatCount(report.preemptions));
  }
  std::cout.flush();
}

absl::Status RunSingle(const ProgramOptions& options, ConnectedEngine& engine) {
  absl::StatusOr<GenerateRequest> request = SingleRequest(options, engine.model());
  if (!request.ok()) return request.status();
  const absl::StatusOr<Generated> generated = engine.Generate(*request);
  if (!generated.ok()) return generated.status();
  if (!options.save_kv.empty()) {
    std::vector<TokenId> tokens = request->prompt;
    const std::vector<TokenId>& answer = generated->tokens.front();
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    const absl::StatusOr<KvFileReport> saved =
        engine.SaveKv(request->name_space, tokens, options.save_kv);
    if (!saved.ok()) return saved.status();
    Say(absl::StrCat("saved the KV of ", FormatCounted(saved->tokens, "token"), " to ",
                     options.save_kv, ", ", saved->bytes, " bytes"));
  }
  if (options.output == OutputFormat::kJson) {
    std::cout << GeneratedToJson(*generated).dump() << std::endl;
  } else {
    PrintTable(*generated);
  }
  return absl::OkStatus();
}

// Whether the program cannot go on after this error of a request.
bool EndsProgram(const absl::Status& status) {
  return absl::IsCancelled(status) ||
         (absl::IsUnavailable(status) && ReasonOf(status) == Reason::kNone);
}

// Answers requests, several at a time. Each answer is printed when its request is done.
class RequestServer {
 public:
  // `on_end` is called, on any thread, when end() is no longer OK.
  RequestServer(const ProgramOptions& options, ConnectedEngine& engine,
                std::function<void()> on_end)
      : max_new_tokens_(options.max_new_tokens),
        engine_(engine),
        on_end_(std::move(on_end)),
        workers_(options.concurrency) {}

  // OK, or why it cannot take requests.
  const absl::Status& started() const { return workers_.started(); }

  // Starts a request. Waits while `concurrency` requests run.
  void Take(const std::string& line) {
    workers_.Push([this, request = ParseRequestLine(line, max_new_tokens_)] { Answer(request); });
  }

  // The error that ends the program: CANCELLED, UNAVAILABLE, or ABORTED if an answer could not be
  // written.
  absl::Status end() {
    absl::MutexLock lock(&mutex_);
    return end_;
  }

  // Waits for the running requests. Errors: those of end(); ABORTED if requests failed.
  absl::Status Finish() {
    workers_.Finish();
    absl::MutexLock lock(&mutex_);
    if (!end_.ok() || failed_ == 0) return end_;
    return absl::AbortedError(
        absl::StrCat(failed_, " of ", FormatCounted(requests_, "request"), " failed"));
  }

 private:
  void Answer(const RequestLine& request) {
    const absl::StatusOr<Generated> generated =
        request.request.ok() ? engine_.Generate(*request.request)
                             : absl::StatusOr<Generated>(request.request.status());
    absl::MutexLock lock(&mutex_);
    std::cout << AnswerLine(request.id, generated) << std::endl;
    ++requests_;
    if (!std::cout) {
      end_.Update(absl::AbortedError("cannot write the answers"));
    } else if (EndsProgram(generated.status())) {
      end_.Update(generated.status());
    } else if (!generated.ok()) {
      ++failed_;
    }
    if (!end_.ok()) on_end_();
  }

  const uint32_t max_new_tokens_;
  ConnectedEngine& engine_;
  const std::function<void()> on_end_;
  absl::Mutex mutex_;
  uint64_t requests_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t failed_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  Workers workers_;  // Last: they use the others.
};

// Answers the requests until there are no more. Errors: those of RequestServer.
// `lost`: why the engine has given up the search for a daemon, if it has.
absl::Status RunRequests(const ProgramOptions& options, LineReader& lines, ConnectedEngine& engine,
                         const InterruptScope& interrupt,
                         const std::function<absl::Status()>& lost) {
  RequestServer server(options, engine, [&lines] { lines.Wake(); });
  if (!server.started().ok()) return server.started();
  for (std::string line;;) {
    const absl::StatusOr<LineReader::Event> event = lines.Next(line);
    if (!event.ok()) return event.status();
    if (*event == LineReader::Event::kWoken) {
      if (interrupt.interrupted() || !server.end().ok()) break;
      if (absl::Status status = lost(); !status.ok()) return status;
      continue;
    }
    if (*event == LineReader::Event::kEnd) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    server.Take(line);
  }
  return server.Finish();
}

// Serves until a signal.
absl::Status RunDoors(const ProgramOptions& options) {
  const absl::StatusOr<server::Config> config = LoadDoors(options.serve, options.model_dir);
  if (!config.ok()) return config.status();
  absl::Notification stop;
  // The signal handling must exist before other threads: they inherit the signal mask.
  const InterruptScope interrupt([&] { stop.Notify(); });
  PrepareProcess(*config);
  absl::StatusOr<ConnectedEngine::Options> engine_options = EngineOptions(options);
  if (!engine_options.ok()) return engine_options.status();
  const ClientCredentials& own = engine_options->client.credentials;
  if (!config->knows_callers() && !(own.token.empty() && own.certificate_file.empty())) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("the engine shows the daemon credentials, and ", options.serve,
                                  " has no tenants and no operators: everybody on this machine "
                                  "would work with the engine's rights; name the callers"));
  }
  return ServeUntil(stop, *config, *std::move(engine_options), /*link=*/nullptr);
}

// The answer is for a daemon, which reads it as a message.
absl::Status RunDescribe(const ProgramOptions& options) {
  EndWithParent();
  const v1::ModelDescription description = Describe({.model_dir = options.model_dir,
                                                     .tokens_per_block = options.tokens_per_block,
                                                     .kv_dtype = options.kv_dtype,
                                                     .gpu = options.test_gpu,
                                                     .compute = options.compute,
                                                     .attention = options.gpu_attention});
  // std::cout is for people: it makes bytes printable.
  return description.SerializeToFileDescriptor(STDOUT_FILENO)
             ? absl::OkStatus()
             : absl::AbortedError("cannot write the description");
}

absl::StatusOr<int> OpenRequests(const std::string& path) {
  if (path == "-") return STDIN_FILENO;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) return fd;
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
}

absl::Status Run(const ProgramOptions& options) {
  if (!options.serve.empty()) return RunDoors(options);
  if (options.describe) return RunDescribe(options);
  const bool single = options.requests.empty();
  const absl::StatusOr<int> requests = single ? STDIN_FILENO : OpenRequests(options.requests);
  if (!requests.ok()) return requests.status();
  LineReader lines(*requests);
  // The signal handling must exist before the engine: the engine's threads inherit the signal mask.
  absl::Mutex mutex;
  ConnectedEngine* running = nullptr;
  const InterruptScope interrupt([&] {
    absl::MutexLock lock(&mutex);
    lines.Wake();
    if (running != nullptr) running->Interrupt();
  });
  absl::StatusOr<ConnectedEngine::Options> engine_options = EngineOptions(options);
  if (!engine_options.ok()) return engine_options.status();
  absl::Status lost;
  engine_options->on_lost = [&](const absl::Status& why) {
    absl::MutexLock lock(&mutex);
    lost = why;
    lines.Wake();
  };
  const absl::StatusOr<std::unique_ptr<ConnectedEngine>> engine =
      ConnectedEngine::Create(*std::move(engine_options));
  if (!engine.ok()) return engine.status();
  {
    absl::MutexLock lock(&mutex);
    running = engine->get();
  }
  if (interrupt.interrupted()) return absl::CancelledError("interrupted");
  Say(absl::StrCat((*engine)->description(), ", kv ", NameOf(KvModes(), options.kv)));
  if (const std::optional<GpuSelfTestReport>& report = (*engine)->gpu_report()) {
    for (const GpuKernelResult& result : report->results) {
      Say(absl::StrCat("self-test on ", report->device, ": ", Describe(result)));
    }
  }
  if (!options.load_kv.empty()) {
    const absl::StatusOr<KvFileReport> loaded =
        (*engine)->LoadKv({.cache_salt = options.salt}, options.load_kv);
    if (!loaded.ok()) return loaded.status();
    Say(absl::StrCat("loaded the KV of ", FormatCounted(loaded->tokens, "token"), " from ",
                     options.load_kv));
  }
  const absl::Status status =
      single ? RunSingle(options, **engine) : RunRequests(options, lines, **engine, interrupt, [&] {
        absl::MutexLock lock(&mutex);
        return lost;
      });
  absl::MutexLock lock(&mutex);
  running = nullptr;
  return status;
}

}  // namespace

int RunPagodaEngine(int argc, char** argv) {
  const PrintableOutput output;
  ProgramOptions options;
  CLI::App app("Generates tokens with a model in this process. Its KV is in a daemon's cache.",
               kProgram);
  app.footer(kFooter);
  app.set_version_flag("--version", absl::StrCat(kProgram, " ", PAGODA_VERSION));
  AddConnectionOptions(app, options);
  AddEngineOptions(app, options);
  AddRequestOptions(app, options);
  try {
    app.parse(argc, argv);
    if (options.model_dir.empty() && options.serve.empty()) throw CLI::RequiredError("--model");
  } catch (const CLI::ParseError& error) {
    // --help and --version also end up here, with code 0.
    return app.exit(error) == 0 ? kExitOk : kExitBadUsage;
  }
  return ReportOutcome(kProgram, "--connect", Run(options));
}

}  // namespace pagoda
