#include "engine/text/jinja/template.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/evaluator/evaluator.h"
#include "engine/text/jinja/parser/parser.h"
#include "engine/text/jinja/parser/token.h"
#include "engine/text/jinja/python/json_text.h"
#include "engine/text/jinja/values/run.h"

namespace pagoda::jinja {
namespace {

constexpr size_t kMaxSourceBytes = 1 << 20;
constexpr size_t kMaxMembers = 1024;  // The most members of an object that become variables.

// `path` names the field in errors.
Value ValueOf(Run& run, const Field& field, absl::string_view path) {
  if (!IsUtf8(field.text)) {
    run.Refuse(absl::StrCat(path, " is not valid UTF-8"));
    return {};
  }
  if (field.form == Field::Form::kText) return run.NewText(field.text);
  Value value = FromJson(run, field.text, path);
  if (field.form == Field::Form::kMembers && !run.failed() && !value.IsDict()) {
    run.Refuse(absl::StrCat(path, " is not a JSON object"));
  }
  return value;
}

// Calls add(name, value) for each field and member. `path` is put before the names in errors.
// An object can have `most` members.
template <typename Add>
void AddFields(Run& run, const std::vector<Field>& fields, absl::string_view path, size_t most,
               const Add& add) {
  for (const Field& field : fields) {
    const Value value = ValueOf(run, field, absl::StrCat(path, field.name));
    if (run.failed()) return;
    if (field.form != Field::Form::kMembers) {
      add(field.name, value);
      continue;
    }
    if (value.dict().entries.size() > most) {
      return run.Refuse(absl::StrCat(path, field.name, " has more than ", most, " members"));
    }
    for (const auto& [key, member] : value.dict().entries) add(key.bytes(), member);
  }
}

void Set(Run& run, Dict& dict, absl::string_view name, Value value) {
  Value key = run.NewText(std::string(name));
  if (!run.failed()) dict.Set(run, std::move(key), std::move(value));
}

// A message with its reasoning under all of its names.
Value WithReasoning(Run& run, std::shared_ptr<Dict> message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* found = message->Find(name);
    if (found == nullptr || found->IsNone()) continue;
    const Value reasoning = *found;
    auto named = std::make_shared<Dict>();
    Set(run, *named, "thinking", reasoning);
    for (const auto& [key, value] : message->entries) named->Set(run, key, value);
    Set(run, *named, "reasoning_content", reasoning);
    return run.NewDict(std::move(named));
  }
  return run.NewDict(std::move(message));
}

Value MessagesOf(Run& run, const std::vector<std::vector<Field>>& messages) {
  std::vector<Value> list;
  for (size_t i = 0; i < messages.size() && !run.failed(); ++i) {
    auto dict = std::make_shared<Dict>();
    AddFields(run, messages[i], absl::StrCat("messages[", i, "]."), SIZE_MAX,
              [&](const std::string& name, const Value& value) { Set(run, *dict, name, value); });
    list.push_back(WithReasoning(run, std::move(dict)));
  }
  return run.NewList(std::move(list));
}

Value ToolsOf(Run& run, const std::vector<std::string>& tools) {
  if (tools.empty()) return Value::None();
  std::vector<Value> list;
  for (size_t i = 0; i < tools.size() && !run.failed(); ++i) {
    list.push_back(
        ValueOf(run, {"", Field::Form::kMembers, tools[i]}, absl::StrCat("tools[", i, "]")));
  }
  return run.NewList(std::move(list));
}

}  // namespace

struct Template::Tree {
  Body body;
};

Template::Template(std::shared_ptr<const Tree> tree) : tree_(std::move(tree)) {}

absl::StatusOr<Template> Template::Parse(absl::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return MakeError(Reason::kInvalidCheckpoint,
                     absl::StrCat("the chat template has more than ", kMaxSourceBytes, " bytes"));
  }
  absl::StatusOr<std::vector<Token>> tokens = Tokenize(source);
  if (!tokens.ok()) return tokens.status();
  absl::StatusOr<Body> body = Parser(*std::move(tokens)).ParseTemplate();
  if (!body.ok()) return body.status();
  return Template(std::make_shared<const Tree>(Tree{*std::move(body)}));
}

absl::StatusOr<std::string> Template::Render(const TemplateInput& input,
                                             const RenderLimits& limits) const {
  Run run(limits);
  Evaluator::Variables variables;
  const auto set = [&](const std::string& name, const Value& value) {
    variables.insert_or_assign(name, value);
  };
  AddFields(run, input.variables, "", kMaxMembers, set);
  set("tools", ToolsOf(run, input.tools));
  set("messages", MessagesOf(run, input.messages));
  if (run.failed()) return run.status();
  Evaluator evaluator(run, std::move(variables), input.now);
  std::string text = evaluator.Render(tree_->body);
  if (run.failed()) return run.status();
  return text;
}

}  // namespace pagoda::jinja
