// The cost of structured output with a model's vocabulary: compiling a schema, and the mask of a
// token. Usage: grammar_bench MODEL [SCHEMA_FILE], where MODEL is a folder with a tokenizer.json,
// or a GGUF file.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/structured/grammar_process.h"
#include "engine/text/model_text.h"

namespace pagoda {
namespace {

constexpr char kSchema[] = R"({
  "type": "object",
  "properties": {
    "name": {"type": "string"},
    "age": {"type": "integer"},
    "mail": {"type": "string", "format": "email"},
    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8},
    "address": {
      "type": "object",
      "properties": {"street": {"type": "string"}, "number": {"type": "integer"},
                     "kind": {"enum": ["home", "work"]}},
      "required": ["street", "number", "kind"]
    }
  },
  "required": ["name", "age", "mail", "tags", "address"]
})";

int Run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: grammar_bench MODEL [SCHEMA_FILE]\n");
    return 2;
  }
  std::string schema = kSchema;
  if (argc > 2) {
    std::ifstream file(argv[2]);
    schema.assign(std::istreambuf_iterator<char>(file), {});
  }
  const ModelText text = ModelText::Load(argv[1]);
  if (!text.tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", text.tokenizer.status().ToString().c_str());
    return 1;
  }
  const auto seconds = [](absl::Time from) { return absl::ToDoubleSeconds(absl::Now() - from); };
  absl::Time start = absl::Now();
  (void)text.CompileGrammar({StructuredOutput::Kind::kRegex, "a"});
  std::printf("vocabulary: %zu tokens, prepared once in %.0f ms\n", (*text.tokenizer)->size(),
              seconds(start) * 1e3);
  const std::pair<const char*, StructuredOutput> grammars[] = {
      {"schema", {StructuredOutput::Kind::kJsonSchema, schema}},
      {"object", {StructuredOutput::Kind::kJsonObject, ""}},
      {"regex", {StructuredOutput::Kind::kRegex, "([A-Z][a-z]{2,9} ){4,8}[0-9]{4}"}}};
  for (const auto& [name, wanted] : grammars) {
    start = absl::Now();
    const auto grammar = text.CompileGrammar(wanted);
    const double compile = seconds(start);
    if (!grammar.ok()) {
      std::fprintf(stderr, "%s\n", grammar.status().ToString().c_str());
      return 1;
    }
    // Answers of tokens drawn from the masks. End tokens are left out.
    std::mt19937 random(1);
    std::vector<double> masks;
    double accept = 0;
    size_t accepted = 0;
    while (masks.size() < 5'000) {
      auto matcher = (*grammar)->NewMatcher({});
      for (int i = 0; i < 200 && !matcher->has_ended(); ++i) {
        start = absl::Now();
        const auto mask = matcher->Mask();
        masks.push_back(seconds(start));
        if (!mask.ok()) break;
        std::vector<TokenId> allowed;
        for (TokenId token = 0; token < (*mask)->size() * 32; ++token) {
          if (Allows(**mask, token)) allowed.push_back(token);
        }
        const TokenId chosen = allowed[random() % allowed.size()];
        start = absl::Now();
        if (!matcher->Accept(chosen).ok()) return 1;
        accept += seconds(start);
        ++accepted;
      }
    }
    std::sort(masks.begin(), masks.end());
    double sum = 0;
    for (const double mask : masks) sum += mask;
    std::printf(
        "%s: compiled in %.1f ms; mask %.1f us (median %.1f, 99th percentile %.1f); "
        "accept %.1f us\n",
        name, compile * 1e3, sum / static_cast<double>(masks.size()) * 1e6,
        masks[masks.size() / 2] * 1e6, masks[masks.size() * 99 / 100] * 1e6,
        accept / static_cast<double>(accepted) * 1e6);
  }
  return 0;
}

}  // namespace
}  // namespace pagoda

int main(int argc, char** argv) {
  if (const std::optional<int> status = pagoda::GrammarProcessMain(argc, argv);
      status.has_value()) {
    return *status;
  }
  return pagoda::Run(argc, argv);
}
