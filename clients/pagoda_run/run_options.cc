#include "clients/pagoda_run/run_options.h"

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "clients/pagodactl/command/number_check.h"
#include "clients/pagodactl/command/tokens.h"

namespace pagoda {
namespace {

Choices<DType> KvDtypes() {
  Choices<DType> choices;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3,
                            DType::kFloat8E5M2}) {
    choices.emplace_back(std::string(DTypeName(dtype)), dtype);
  }
  return choices;
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

void AddModelOptions(CLI::App& app, LocalModel::Options& model) {
  app.add_option("MODEL", model.model,
                 "A GGUF file, or a model's folder (Hugging Face's files, or one GGUF file)")
      ->required();
  app.add_option("--adapter", model.adapter, "The folder of a LoRA adapter, as PEFT saves it")
      ->type_name("FOLDER");
  AddChoice(app, "--kv", model.kv, LocalKvs(),
            "Where the KV is. paged: in blocks, whose prefixes later turns reuse. flat: in one "
            "tensor per layer, for the same attention. basic: in one tensor per layer, with its "
            "own attention, to compare");
  AddChoice(app, "--backend", model.backend, EngineBackends(),
            "Where the model computes. auto: on a GPU with kernels for it, else on the CPU. "
            "reference: on the CPU by plain loops in fp64, slowly, to compare");
  AddChoice(app, "--kv-dtype", model.kv_dtype, KvDtypes(),
            "The type of K and V. 16 bits take half the memory of float32, float8 a quarter");
  AddChoice(app, "--compute", model.compute, ComputeTypes(),
            "The type of matrix products. auto: the fastest that is as exact as the file");
  app.add_option("--threads", model.threads, "CPU threads; 0: one per processor")
      ->capture_default_str();
  app.add_option("--context", model.context,
                 "The most tokens of a conversation; 0: 4,096, or the model's limit if less")
      ->capture_default_str();
  app.add_option("--cached-tokens", model.cached_tokens,
                 "With --kv paged: the tokens whose KV fits into memory; at least the context. "
                 "More keep several conversations")
      ->capture_default_str();
  app.add_option("--tokens-per-block", model.tokens_per_block,
                 "With --kv paged: tokens per block, a power of two up to 1,024")
      ->check(AboveZero())
      ->capture_default_str();
  app.add_option("--max-step-tokens", model.max_step_tokens,
                 "The most tokens of a prompt that go through the model at once")
      ->check(AboveZero())
      ->capture_default_str();
}

void AddPromptOptions(CLI::App& app, RunOptions& options) {
  CLI::Option_group* what =
      app.add_option_group("prompt", "At most one of these; without them it chats");
  what->add_option("--prompt", options.prompt, "A text, which the model continues");
  what->add_option("--prompt-file", options.prompt_file,
                   "A file with the text; - is standard input");
  what->add_option("--tokens", options.tokens, "Token ids: 1,2,3. The answer is token ids too")
      ->check(CheckTokens);
  what->require_option(0, 1);
  app.add_option("--system", options.system, "Chat: the system prompt before the first turn");
  app.add_option("--max-new-tokens", options.max_new_tokens, "The most tokens of an answer")
      ->check(AboveZero())
      ->capture_default_str();
  app.add_option("--stop-tokens", options.stop_tokens,
                 "Token ids that end an answer, besides the model's own ones for texts")
      ->check(CheckTokens);
}

}  // namespace

void AddRunOptions(CLI::App& app, RunOptions& options) {
  AddModelOptions(app, options.model);
  AddPromptOptions(app, options);
  AddSamplingOptions(app, options.sampling, "The seed of sampling");
  AddFormatOptions(app, options.format);
  // Nothing else shares the engine and the cache.
  app.remove_option(app.get_option("--priority"));
  app.remove_option(app.get_option("--salt"));
  app.add_flag_callback(
      "--json", [&options] { options.output = OutputFormat::kJson; },
      "Print each answer as one line of JSON, when it is complete");
}

SamplingParams SamplingOf(const SamplingOptions& options) {
  return {.temperature = options.temperature,
          .top_k = options.top_k,
          .top_p = options.top_p,
          .repetition_penalty = options.repetition_penalty,
          .seed = options.seed,
          .top_logprobs = std::nullopt};
}

}  // namespace pagoda
