// A chat template of arbitrary bytes, run on a fixed conversation.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/template.h"
#include "tests/fuzz/planted.h"

namespace pagoda::jinja {
namespace {

// Small enough for thousands of templates a second.
constexpr RenderLimits kLimits = {.steps = 20'000,
                                  .memory_bytes = 1 << 20,
                                  .output_bytes = 1 << 16,
                                  .depth = RenderLimits{}.depth,
                                  .time = absl::Seconds(10)};

TemplateInput Input() {
  TemplateInput input;
  input.now = absl::CivilSecond(2026, 3, 5, 14, 7, 9);
  input.variables = {{"add_generation_prompt", Field::Form::kJson, "true"},
                     {"bos_token", Field::Form::kText, "<s>"},
                     {"x", Field::Form::kJson,
                      R"({"a": [3, -1, 2.5, null], "b": {"c": "dé\n 🙂"}, "e": false})"}};
  input.messages = {
      {{"role", Field::Form::kText, "user"}, {"content", Field::Form::kText, " Hi! "}},
      {{"role", Field::Form::kText, "assistant"},
       {"fields", Field::Form::kMembers, R"({"tool_calls": [{"n": 1}]})"}}};
  input.tools = {R"({"type": "function", "function": {"name": "f", "parameters": {}}})"};
  return input;
}

void Check(absl::string_view source) {
  const absl::StatusOr<Template> parsed = Template::Parse(source);
  if (!parsed.ok()) {
    PAGODA_CHECK(ReasonOf(parsed.status()) == Reason::kInvalidCheckpoint &&
                     absl::StrContains(parsed.status().message(), "line "),
                 "a template is refused by name and line");
    return;
  }
  static const TemplateInput input = Input();
  const absl::StatusOr<std::string> first = parsed->Render(input, kLimits);
  absl::StatusOr<std::string> second = parsed->Render(input, kLimits);
  if (!first.ok()) {
    const Reason reason = ReasonOf(first.status());
    PAGODA_CHECK(reason == Reason::kInvalidPrompt || reason == Reason::kInvalidCheckpoint,
                 "a rendering fails by name");
    PAGODA_CHECK(first.status() == second.status(), "a rendering fails always in the same way");
    return;
  }
  if (fuzz::Planted("LostOutput") && second.ok() && second->size() > 3) second->pop_back();
  PAGODA_CHECK(first->size() <= kLimits.output_bytes, "the output is within its limit");
  PAGODA_CHECK(IsUtf8(*first), "a prompt is UTF-8");
  PAGODA_CHECK(second.ok() && *first == *second, "a rendering has no effects");
}

}  // namespace
}  // namespace pagoda::jinja

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::jinja::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
