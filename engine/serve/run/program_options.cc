#include "engine/serve/run/program_options.h"

#include <algorithm>
#include <iostream>
#include <map>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "clients/command_line/number_check.h"
#include "clients/command_line/tokens.h"

namespace pagoda {
namespace {

// The groups of --help. CheckProgramOptions says when a group's options are of use.
constexpr char kModelGroup[] = "The model";
constexpr char kDaemonGroup[] = "Over a daemon's cache, the default";
constexpr char kLocalGroup[] = "Without a daemon";
constexpr char kNewCacheGroup[] = "The cache of --local or --open-cache";
constexpr char kAskGroup[] = "What to generate, one of these; without any it chats";
constexpr char kAnswersGroup[] = "Answers";
constexpr char kRequestsGroup[] = "With --requests";
constexpr char kChatGroup[] = "A chat";
constexpr char kPromptGroup[] = "A prompt";
constexpr char kOnceGroup[] = "A prompt or a chat";

Choices<DType> KvDtypes() {
  Choices<DType> choices;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3,
                            DType::kFloat8E5M2}) {
    choices.emplace_back(std::string(DTypeName(dtype)), dtype);
  }
  return choices;
}

template <class Choice>
std::string ChoiceText(const Choices<Choice>& choices, Choice chosen) {
  std::string words;
  for (const auto& [word, value] : choices) absl::StrAppend(&words, words.empty() ? "" : "|", word);
  return absl::StrCat(words, " [", NameOf(choices, chosen), "]");
}

template <class Choice>
void AddChoice(CLI::App& app, const std::string& name, Choice& field,
               const Choices<Choice>& choices, const std::string& help) {
  app.add_option(name, field, help)
      ->transform(CLI::CheckedTransformer(choices))
      ->option_text(ChoiceText(choices, field));
}

void AddModelOptions(CLI::App& app, ProgramOptions& options) {
  app.option_defaults()->group(kModelGroup);
  AddChoice(app, "--backend", options.backend, EngineBackends(),
            "Where the model computes. auto: where the daemon's primary pools are; with --local on "
            "a GPU with kernels for it, else on the CPU. reference: on the CPU by plain loops in "
            "fp64, slowly, to compare");
  AddChoice(app, "--compute", options.compute, ComputeTypes(),
            "The type of matrix products. auto: the fastest that is as exact as the file");
  app.add_option("--threads", options.threads, "CPU threads; 0: one per processor")
      ->capture_default_str();
  AddChoice(app, "--gpu-attention", options.gpu_attention, GpuAttentions(),
            "Which attention kernels a GPU runs; auto takes the fastest ones that the self-test "
            "found correct");
  AddChoice(app, "--gpu-graphs", options.gpu_graphs, GpuGraphChoices(),
            "Whether a GPU runs a decode step as one CUDA graph; auto does it if the self-test "
            "found that correct; check compares each step with its graph first");
  app.add_option("--adapter", options.adapters,
                 "A LoRA adapter that --use-adapter and requests can name, and its folder, as PEFT "
                 "saves it; can be repeated")
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

void AddDaemonOptions(CLI::App& app, ProgramOptions& options) {
  app.option_defaults()->group(kDaemonGroup);
  app.add_option("--connect", options.endpoint, "The daemon: host:port or unix:/path")
      ->envname("PAGODA_ENDPOINT")
      ->capture_default_str();
  app.add_option("--cache", options.cache,
                 "The name of the daemon's cache; not needed if the daemon has only one");
  app.add_option(
         "--open-cache", options.open_cache,
         "Open the cache that --cache names, for this model, if it does not exist. The value is "
         "how much of the daemon's host memory for caches it takes, such as 8GiB or 50%")
      ->needs(app.get_option("--cache"));
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

void AddLocalOptions(CLI::App& app, ProgramOptions& options) {
  app.option_defaults()->group(kLocalGroup);
  app.add_flag("--local", options.local, "Keep the KV in this process; no daemon is needed");
  AddChoice(app, "--kv", options.kv, KvModes(),
            "Where the KV is. paged: in blocks, whose prefixes later prompts reuse. flat: in one "
            "tensor per layer, for the same attention. basic: in one tensor per sequence and "
            "layer, with its own attention, to compare");
  app.add_option("--context", options.context,
                 "The most tokens of a conversation; 0: 4,096, or the model's limit if less")
      ->capture_default_str();
  app.add_option("--cached-tokens", options.cached_tokens,
                 "With --kv paged: the tokens whose KV fits into memory; at least the context. "
                 "More keep several conversations")
      ->capture_default_str();
  app.option_defaults()->group(kNewCacheGroup);
  app.add_option("--tokens-per-block", options.tokens_per_block,
                 "Tokens per block, a power of two up to 1,024")
      ->check(AboveZero())
      ->capture_default_str();
  // A daemon's cache can have bytes of a client's own format. If the daemon asks whether a model
  // has such KV, the model refuses.
  Choices<DType> dtypes = KvDtypes();
  const std::string text = ChoiceText(dtypes, options.kv_dtype);
  dtypes.emplace_back(std::string(DTypeName(DType::kUint8)), DType::kUint8);
  AddChoice(app, "--kv-dtype", options.kv_dtype, dtypes,
            "The type of K and V. 16 bits take half the memory of float32, float8 a quarter");
  app.get_option("--kv-dtype")->option_text(text);
}

void AddAskOptions(CLI::App& app, ProgramOptions& options) {
  app.option_defaults()->group(kAskGroup);
  app.add_option("--prompt", options.prompt, "A text, which the model continues")
      ->check([](const std::string& text) {
        return text.empty() ? std::string("must not be empty") : std::string();
      });
  app.add_option("--text-file", options.text_file, "A file with the text; - is standard input")
      ->type_name("FILE");
  app.add_option("--prompt-tokens", options.prompt_tokens,
                 "Token ids: 1,2,3. The answer is token ids too")
      ->check(CheckTokens)
      ->type_name("IDS");
  app.add_option("--prompt-file", options.prompt_file,
                 "A file of token ids, separated by commas or whitespace; - is standard input")
      ->type_name("FILE");
  app.add_option("--random-prompt", options.random_prompt, "A prompt of this many random token ids")
      ->check(AboveZero());
  app.add_option("--requests", options.requests,
                 "A file of requests, one line of JSON each; - is standard input")
      ->type_name("FILE");
  app.add_option(
         "--serve", options.serve,
         "Serve OpenAI's API over HTTP and Generate over gRPC, until a signal. The value is a YAML "
         "file with the daemon's keys: engine, server, tenants, operators and log. A daemon whose "
         "configuration has engine.model_dir starts this program itself")
      ->type_name("FILE");
  // For a daemon alone: --help does not list them. See also main.cc.
  app.add_flag("--describe", options.describe)->group("");
  app.add_option("--test-gpu", options.test_gpu)->group("");
}

void AddAnswerOptions(CLI::App& app, ProgramOptions& options) {
  app.option_defaults()->group(kAnswersGroup);
  app.add_option("--max-new-tokens", options.max_new_tokens,
                 "The most tokens of an answer, unless a request has its own limit")
      ->check(AboveZero())
      ->capture_default_str();
  app.add_option("--load-kv", options.load_kv,
                 "A file whose KV is put into the cache before the first answer")
      ->type_name("FILE");
  app.option_defaults()->group(kRequestsGroup);
  app.add_option("--concurrency", options.concurrency,
                 "How many requests run at once; each is answered when it is done")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.option_defaults()->group(kChatGroup);
  app.add_option("--system", options.system, "The system prompt before the first turn");
  app.option_defaults()->group(kPromptGroup);
  app.add_option("--save-kv", options.save_kv, "A file for the KV of the prompt and its answer")
      ->type_name("FILE");
  app.option_defaults()->group(kOnceGroup);
  app.add_option("--stop-tokens", options.stop_tokens,
                 "Token ids that end an answer, besides the model's own ones for texts")
      ->check(CheckTokens);
  app.add_option("--use-adapter", options.adapter, "The adapter of the answer")
      ->type_name("NAME")
      ->excludes("--save-kv");
  const std::map<std::string, OutputFormat> formats = {{"table", OutputFormat::kTable},
                                                       {"json", OutputFormat::kJson}};
  app.add_option("-o,--output", options.output,
                 "table: the answer as it comes, for people. json: one line when it is complete")
      ->transform(CLI::CheckedTransformer(formats))
      ->option_text("table|json [table]");
  AddSamplingOptions(app, options.sampling, "The seed of the random prompt and of sampling");
  // Nothing else shares the engine.
  app.remove_option(app.get_option("--priority"));
  app.get_option("--salt")->group(kDaemonGroup);
  AddFormatOptions(app, options.format);
}

// By group: why the options of the group are of no use, if they are not.
std::map<std::string, std::string> UselessGroups(const ProgramOptions& options) {
  std::map<std::string, std::string> useless;
  const bool opens_cache = options.local || !options.open_cache.empty() || options.describe;
  if (options.local) {
    useless[kDaemonGroup] = "is for a daemon's cache; it does not go with --local";
  } else {
    useless[kLocalGroup] = "needs --local";
  }
  if (!opens_cache) useless[kNewCacheGroup] = "needs --local or --open-cache";
  if (options.requests.empty()) useless[kRequestsGroup] = "needs --requests";
  if (!options.chats()) useless[kChatGroup] = "is for a chat; leave out what else to generate";
  if (!options.has_prompt()) useless[kPromptGroup] = "needs a prompt";
  if (!options.requests.empty()) {
    useless[kOnceGroup] = "does not go with --requests: each request has its own";
  }
  if (!options.serve.empty()) {
    useless[kModelGroup] = "does not go with --serve: its file has the section engine";
    useless[kLocalGroup] = "does not go with --serve, which needs a daemon's cache";
    useless[kAnswersGroup] = "does not go with --serve: each request has its own";
    useless[kOnceGroup] = useless[kAnswersGroup];
  }
  return useless;
}

// Whether the option is among the arguments, and not only in its environment variable.
bool IsWritten(const CLI::Option& option, const std::vector<std::string>& arguments) {
  if (option.count() == 0) return false;
  if (option.get_envname().empty()) return true;
  const std::string name = option.get_name();
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return argument == name || absl::StartsWith(argument, name + "=");
  });
}

}  // namespace

void AddProgramOptions(CLI::App& app, ProgramOptions& options) {
  app.add_option("--model", options.model_dir,
                 "A GGUF file, or a model's folder (Hugging Face's files, or one GGUF file); "
                 "required, unless --serve names it")
      ->type_name("PATH");
  AddAskOptions(app, options);
  AddDaemonOptions(app, options);
  AddLocalOptions(app, options);
  AddModelOptions(app, options);
  AddAnswerOptions(app, options);
}

void CheckProgramOptions(const CLI::App& app, const ProgramOptions& options,
                         const std::vector<std::string>& arguments) {
  if (options.model_dir.empty() && options.serve.empty()) throw CLI::RequiredError("--model");
  const std::map<std::string, std::string> useless = UselessGroups(options);
  const auto check = [&](const CLI::Option* option, const std::string& group) {
    const auto why = useless.find(group);
    if (why == useless.end() || !IsWritten(*option, arguments)) return;
    throw CLI::ValidationError(absl::StrCat(option->get_name(), " ", why->second));
  };
  const CLI::Option* ask = nullptr;
  for (const CLI::Option* option : app.get_options()) {
    check(option, option->get_group());
    if (option->get_group() != kAskGroup || option->count() == 0) continue;
    if (ask != nullptr) {
      throw CLI::ValidationError(
          absl::StrCat(ask->get_name(), " does not go with ", option->get_name()));
    }
    ask = option;
  }
  // What an answer's text must be is a group of its own in --help.
  for (const CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (const CLI::Option* option : group->get_options()) check(option, kOnceGroup);
  }
}

void SayAsEngine(const std::string& what) {
  std::cerr << kEngineProgram << ": " << what << std::endl;
}

}  // namespace pagoda
