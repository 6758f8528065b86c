#include "clients/pagoda_run/local_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "clients/pagodactl/terminal/format.h"
#include "engine/basic_cache_client.h"
#include "engine/gpu_self_test.h"
#include "engine/model/cuda/cuda_backend.h"
#include "engine/model/kv/kv_pools.h"
#include "pools/cuda/device.h"

namespace pagoda {
namespace {

constexpr uint32_t kDefaultContext = 4096;
// Behind a sequence's own blocks: the copy of a block that it shares, and the one that admission
// keeps free.
constexpr uint32_t kSpareBlocks = 4;
constexpr int kDevice = 0;
// How often on_prompt is called.
constexpr absl::Duration kPromptInterval = absl::Milliseconds(100);

// The first GPU, if the model can run there. Sets `report` to the self-test's result.
absl::StatusOr<MemoryPlace> FindGpu(const LocalModel::Options& options,
                                    std::optional<GpuSelfTestReport>& report) {
  const absl::StatusOr<cuda::DeviceInfo> device = cuda::DescribeDevice(kDevice);
  if (!device.ok()) return device.status();
  if (absl::Status usable = CheckCudaBackend(device->place.device); !usable.ok()) return usable;
  absl::StatusOr<GpuSelfTestReport> tested = TestGpu({.model_dir = options.model,
                                                      .device = device->place.device,
                                                      .kv_type = ElementTypeOf(options.kv_dtype),
                                                      .tokens_per_block = options.tokens_per_block,
                                                      .compute = options.compute,
                                                      .attention = GpuAttention::kAuto,
                                                      .program = ""});
  if (!tested.ok()) return tested.status();
  if (absl::Status found = tested->Check(); !found.ok()) return found;
  report = *std::move(tested);
  return device->place;
}

// The device for the pools; none: the host.
absl::StatusOr<std::optional<MemoryPlace>> ChoosePlace(const LocalModel::Options& options,
                                                       std::optional<GpuSelfTestReport>& report) {
  const bool wants_gpu = options.backend == EngineBackend::kCuda;
  if (options.kv != LocalKv::kPaged) {
    if (!wants_gpu) return std::nullopt;
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("--kv ", NameOf(LocalKvs(), options.kv),
                                  " computes in host memory: use --backend cpu or reference, or "
                                  "--kv paged"));
  }
  if (NeedsHostPools(options.backend)) return std::nullopt;
  absl::StatusOr<MemoryPlace> gpu = FindGpu(options, report);
  if (gpu.ok()) return *gpu;
  if (wants_gpu) return gpu.status();
  return std::nullopt;
}

uint32_t ContextOf(const LocalModel::Options& options, const ModelConfig& config) {
  const uint32_t wanted = options.context == 0 ? kDefaultContext : options.context;
  return std::min(wanted, config.max_position_embeddings);
}

// There is at most one adapter, so its name is no option.
constexpr char kAdapterName[] = "adapter";

std::vector<AdapterFolder> AdaptersOf(const std::string& path) {
  if (path.empty()) return {};
  return {{.name = kAdapterName, .path = path}};
}

// The tokens of an answer on their way from the engine's thread to the caller's.
struct Stream {
  absl::Mutex mutex;
  std::vector<TokenId> tokens ABSL_GUARDED_BY(mutex);
  std::optional<absl::StatusOr<GenerateReport>> end ABSL_GUARDED_BY(mutex);
  std::atomic<bool> has_begun = false;  // There was a token.

  bool HasNews() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return !tokens.empty() || end.has_value();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalModel>> LocalModel::Load(Options options) {
  absl::StatusOr<ModelConfig> config = LoadModelConfig(options.model);
  if (!config.ok()) return config.status();
  const uint32_t context = ContextOf(options, *config);
  absl::StatusOr<CacheSpec> spec =
      Engine::CacheSpecForModel(options.model, options.tokens_per_block, options.kv_dtype);
  if (!spec.ok()) return spec.status();
  auto model = absl::WrapUnique(new LocalModel(options, context, ModelText::Load(options.model)));
  Engine::Options engine = {.model_dir = options.model,
                            .backend = options.backend,
                            .gpu_report = std::nullopt,
                            .cpu = {.num_threads = options.threads, .compute = options.compute},
                            .adapters = AdaptersOf(options.adapter),
                            .scheduler = {.max_step_tokens = options.max_step_tokens},
                            .on_load = options.on_load};
  const absl::StatusOr<std::optional<MemoryPlace>> place = ChoosePlace(options, engine.gpu_report);
  if (!place.ok()) return place.status();
  absl::StatusOr<std::unique_ptr<CacheClient>> client = absl::UnknownError("not opened");
  if (options.kv != LocalKv::kPaged) {
    client = MakeBasicCacheClient({.spec = *std::move(spec),
                                   .max_sequences = 1,
                                   .max_sequence_tokens = context,
                                   .pages = {.reservation = Reservation::kSparse},
                                   .arrangement = options.kv == LocalKv::kFlat
                                                      ? KvArrangement::kTokenFlat
                                                      : KvArrangement::kTensorPerSequence});
  } else {
    const uint64_t tokens = std::max(context, options.cached_tokens);
    const uint64_t blocks = tokens / options.tokens_per_block + 1 + kSpareBlocks;
    if (blocks > std::numeric_limits<uint32_t>::max()) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("--cached-tokens ", options.cached_tokens, " needs ", blocks,
                                    " blocks; at most ", std::numeric_limits<uint32_t>::max()));
    }
    absl::StatusOr<std::unique_ptr<LocalCache>> cache = LocalCache::Create(
        {.spec = *std::move(spec), .blocks = static_cast<uint32_t>(blocks), .device = *place});
    if (!cache.ok()) return cache.status();
    model->cache_ = *std::move(cache);
    client = model->cache_->OpenClient();
  }
  if (!client.ok()) return client.status();
  absl::StatusOr<std::unique_ptr<Engine>> made =
      Engine::Create(std::move(engine), *std::move(client));
  if (!made.ok()) return made.status();
  model->engine_ = *std::move(made);
  return model;
}

absl::StatusOr<LocalPrompt> LocalModel::ReadText(const std::string& text) const {
  if (!text_.tokenizer.ok()) return text_.tokenizer.status();
  absl::StatusOr<std::vector<TokenId>> tokens =
      (*text_.tokenizer)->Encode(text, SpecialTokens::kKeep);
  if (!tokens.ok()) return tokens.status();
  return LocalPrompt{.tokens = *std::move(tokens), .stop_tokens = EndTokens()};
}

std::vector<TokenId> LocalModel::EndTokens() const {
  std::vector<TokenId> tokens = (*text_.tokenizer)->end_tokens();
  tokens.insert(tokens.end(), config().eos_token_ids.begin(), config().eos_token_ids.end());
  return tokens;
}

absl::StatusOr<LocalPrompt> LocalModel::ReadConversation(
    absl::Span<const ChatMessage> messages) const {
  if (!text_.chat.ok()) return text_.chat.status();
  const absl::StatusOr<std::string> text = text_.chat->Render(
      {.messages = messages}, absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone()));
  if (!text.ok()) return text.status();
  // The chat format has already written the special tokens around the text.
  absl::StatusOr<std::vector<TokenId>> tokens =
      (*text_.tokenizer)->Encode(*text, SpecialTokens::kLeaveOut);
  if (!tokens.ok()) return tokens.status();
  LocalPrompt prompt{.tokens = *std::move(tokens), .stop_tokens = EndTokens()};
  const std::vector<TokenId>& stops = text_.chat->stop_tokens();
  prompt.stop_tokens.insert(prompt.stop_tokens.end(), stops.begin(), stops.end());
  return prompt;
}

absl::StatusOr<LocalAnswer> LocalModel::Answer(Request request) {
  const uint64_t prompt_tokens = request.prompt.tokens.size();
  if (prompt_tokens >= context_) {
    return MakeError(
        Reason::kInvalidPrompt,
        absl::StrCat("the prompt has ", FormatCounted(prompt_tokens, "token"), ", the context ",
                     FormatCount(context_), ": it has no room for an answer (--context)"));
  }
  std::shared_ptr<const CompiledGrammar> grammar;
  if (request.structured.has_value()) {
    absl::StatusOr<std::shared_ptr<const CompiledGrammar>> compiled =
        text_.CompileGrammar(*request.structured);
    if (!compiled.ok()) return compiled.status();
    grammar = *std::move(compiled);
  }
  const auto room = static_cast<uint32_t>(context_ - prompt_tokens);
  Stream stream;
  LocalAnswer answer;
  std::unique_ptr<StreamDecoder> decoder;
  if (text_.tokenizer.ok()) decoder = std::make_unique<StreamDecoder>(text_.tokenizer->get());
  const EngineStats before = engine_->Stats();
  is_stopping_ = false;
  is_answering_ = true;
  const absl::Status submitted = engine_->Submit(
      {.prompt = std::move(request.prompt.tokens),
       .max_new_tokens = std::min(request.max_new_tokens, room),
       .stop_tokens = std::move(request.prompt.stop_tokens),
       .adapter = options_.adapter.empty() ? "" : kAdapterName,
       .sampling = request.sampling,
       .max_draft_tokens = request.max_draft_tokens,
       .grammar = std::move(grammar),
       // With a token the answer ends early and has a report.
       .ends_sample = [this](const GeneratedToken&) { return is_stopping_.load(); },
       .cancelled = [this, &stream] { return is_stopping_ && !stream.has_begun; }},
      [&stream](const GeneratedToken& token) {
        stream.has_begun = true;
        absl::MutexLock lock(&stream.mutex);
        stream.tokens.push_back(token.token);
        return true;
      },
      [&stream](absl::StatusOr<GenerateReport> report) {
        absl::MutexLock lock(&stream.mutex);
        stream.end = std::move(report);
      });
  if (!submitted.ok()) {
    is_answering_ = false;
    return submitted;
  }
  const auto give = [&](TokenId token, std::string text) {
    answer.text += text;
    if (request.on_token) request.on_token(token, text);
  };
  std::optional<absl::StatusOr<GenerateReport>> end;
  while (!end.has_value()) {
    std::vector<TokenId> tokens;
    {
      absl::MutexLock lock(&stream.mutex);
      stream.mutex.AwaitWithTimeout(absl::Condition(&stream, &Stream::HasNews), kPromptInterval);
      tokens.swap(stream.tokens);
      end = stream.end;
    }
    for (const TokenId token : tokens) {
      answer.tokens.push_back(token);
      give(token, decoder == nullptr ? "" : decoder->Add(token));
    }
    if (!answer.tokens.empty() || end.has_value() || !request.on_prompt) continue;
    const EngineStats now = engine_->Stats();
    request.on_prompt(std::min(prompt_tokens, now.computed_tokens - before.computed_tokens +
                                                  now.reused_tokens - before.reused_tokens),
                      prompt_tokens);
  }
  if (decoder != nullptr && !answer.tokens.empty()) {
    if (const std::string rest = decoder->Finish(); !rest.empty()) {
      give(answer.tokens.back(), rest);
    }
  }
  is_answering_ = false;
  answer.is_stopped = is_stopping_;
  if (end->ok()) {
    answer.report = **std::move(end);
  } else if (!answer.is_stopped) {
    return end->status();
  }
  return answer;
}

bool LocalModel::Stop() {
  if (!is_answering_) return false;
  is_stopping_ = true;
  return true;
}

std::string LocalModel::description() const {
  return absl::StrCat(engine_->description(), ", kv ", NameOf(LocalKvs(), options_.kv), " of ",
                      std::string(DTypeName(options_.kv_dtype)), ", context ",
                      FormatCounted(context_, "token"));
}

}  // namespace pagoda
