#include "engine/model/layers/attention_layer.h"

#include <algorithm>

namespace pagoda {
namespace {

using kernels::ElementType;

uint32_t MostKvHeads(const ModelConfig& config) {
  uint32_t most = 0;
  for (const LayerConfig& layer : config.layers) most = std::max(most, layer.num_kv_heads);
  return most;
}

}  // namespace

absl::Status GroupedAttention::Resize(Backend& backend, const ModelConfig& config,
                                      uint64_t tokens) {
  const uint64_t queries = uint64_t{config.num_heads} * config.head_dim;
  const uint64_t keys = uint64_t{MostKvHeads(config)} * config.head_dim;
  absl::Status status = qkv_.Resize(backend, tokens, queries + 2 * keys);
  status.Update(attended_.Resize(backend, tokens, queries));
  return status;
}

FusedProduct GroupedAttention::FirstProduct(const ModelConfig& config, const LayerConfig& layer,
                                            const ModelWeights::Attention& weights,
                                            const LayerInput& input) const {
  const uint64_t heads = uint64_t{config.num_heads} + 2 * uint64_t{layer.num_kv_heads};
  return {.weights = weights.query_key_value.get(),
          .norm = input.norm,
          .input = input.rows,
          .output = qkv_.view().Columns(0, heads * config.head_dim)};
}

RowsView GroupedAttention::Run(Backend& backend, const ModelConfig& config,
                               const LayerConfig& layer, const ModelWeights::Attention& weights,
                               AttentionShape shape, const LayerInput& input,
                               const kernels::KvLayer& kv, ElementType output) {
  const uint64_t queries_size = uint64_t{config.num_heads} * config.head_dim;
  const uint64_t keys_size = uint64_t{layer.num_kv_heads} * config.head_dim;
  const FusedProduct first = FirstProduct(config, layer, weights, input);
  const RowsView& qkv = first.output;
  const RotationShape rotation = {.rotary = layer.rotary, .head_dim = config.head_dim};
  const LayerHeads heads = {.queries = qkv.Columns(0, queries_size),
                            .keys = qkv.Columns(queries_size, keys_size),
                            .values = qkv.Columns(queries_size + keys_size, keys_size),
                            .rotation = config.alibi ? nullptr : &rotation,
                            .query_norm = weights.query_norm.get(),
                            .key_norm = weights.key_norm.get(),
                            .eps = config.rms_norm_eps,
                            .window_index = shape.window_index};
  const ElementType type = backend.QueryType(kv);
  const RowsView queries =
      type == ElementType::kFloat32 ? heads.queries : attended_.view().As(type);
  if (input.needs_norm()) {
    backend.MultiplyFused(first);
  } else {
    backend.Multiply(*weights.query_key_value, input.rows, qkv);
  }
  backend.PlaceHeads(heads, kv, queries);
  shape.sinks = weights.sinks.get();
  const RowsView attended = attended_.view().As(output);
  backend.Attend(shape, queries, kv, attended);
  return attended;
}

absl::Status LatentAttention::Resize(Backend& backend, const ModelConfig& config, uint64_t tokens) {
  const LatentAttentionConfig& latent = *config.latent;
  const uint64_t heads = config.num_heads;
  const uint64_t rotary = latent.rotary_dim;
  absl::Status status = rank_.Resize(backend, tokens, std::max(latent.query_rank, 1u));
  status.Update(plain_.Resize(backend, tokens, heads * (latent.plain_dim + rotary)));
  status.Update(queries_.Resize(backend, tokens, heads * (latent.latent_dim + rotary)));
  status.Update(keys_.Resize(backend, tokens, latent.latent_dim + rotary));
  status.Update(latents_.Resize(backend, tokens, heads * latent.latent_dim));
  status.Update(attended_.Resize(backend, tokens, heads * latent.value_dim));
  return status;
}

void LatentAttention::MakeQueries(Backend& backend, const ModelConfig& config,
                                  const LayerConfig& layer,
                                  const ModelWeights::LatentAttention& weights,
                                  const RowsView& input) {
  const LatentAttentionConfig& latent = *config.latent;
  const uint32_t plain_dim = latent.plain_dim + latent.rotary_dim;
  const uint32_t query_dim = latent.latent_dim + latent.rotary_dim;
  const RowsView& plain = plain_.view();
  const RowsView& queries = queries_.view();
  if (weights.query_down == nullptr) {
    backend.Multiply(*weights.query_up, input, plain);
  } else {
    backend.Multiply(*weights.query_down, input, rank_.view());
    backend.RmsNorm(*weights.query_norm, config.rms_norm_eps, rank_.view(), rank_.view());
    backend.Multiply(*weights.query_up, rank_.view(), plain);
  }
  backend.Rotate({.rotary = layer.rotary, .head_dim = plain_dim, .first_element = latent.plain_dim},
                 /*norm=*/nullptr, config.rms_norm_eps, plain);
  products_.clear();
  for (uint32_t h = 0; h < config.num_heads; ++h) {
    products_.push_back({.weights = weights.absorb_keys[h].get(),
                         .input = plain.Columns(uint64_t{h} * plain_dim, latent.plain_dim),
                         .output = queries.Columns(uint64_t{h} * query_dim, latent.latent_dim)});
  }
  backend.MultiplyEach(products_);
  backend.CopyHeads(
      config.num_heads, latent.rotary_dim,
      {plain.Columns(latent.plain_dim, plain.cols - latent.plain_dim), plain_dim},
      {queries.Columns(latent.latent_dim, queries.cols - latent.latent_dim), query_dim});
}

RowsView LatentAttention::Run(Backend& backend, const ModelConfig& config, const LayerConfig& layer,
                              const ModelWeights::LatentAttention& weights,
                              const AttentionShape& shape, const RowsView& input,
                              const kernels::KvLayer& kv) {
  const LatentAttentionConfig& latent = *config.latent;
  MakeQueries(backend, config, layer, weights, input);
  const RowsView& keys = keys_.view();
  const RowsView latents = keys.Columns(0, latent.latent_dim);
  backend.Multiply(*weights.key_down, input, keys);
  backend.RmsNorm(*weights.key_norm, config.rms_norm_eps, latents, latents);
  backend.Rotate(
      {.rotary = layer.rotary, .head_dim = config.head_dim, .first_element = latent.latent_dim},
      /*norm=*/nullptr, config.rms_norm_eps, keys);
  backend.WriteCache(shape.window_index, keys, /*values=*/{}, kv);
  const RowsView attended = latents_.view().As(backend.FactorType(*weights.value_up.front()));
  backend.Attend(shape, queries_.view(), kv, attended);
  products_.clear();
  for (uint32_t h = 0; h < config.num_heads; ++h) {
    products_.push_back(
        {.weights = weights.value_up[h].get(),
         .input = attended.Columns(uint64_t{h} * latent.latent_dim, latent.latent_dim),
         .output = attended_.view().Columns(uint64_t{h} * latent.value_dim, latent.value_dim)});
  }
  backend.MultiplyEach(products_);
  return attended_.view();
}

}  // namespace pagoda
