// A chat template: a program in Jinja, as Hugging Face's transformers runs it.
#ifndef PAGODA_ENGINE_TEXT_JINJA_TEMPLATE_H_
#define PAGODA_ENGINE_TEXT_JINJA_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/civil_time.h"
#include "engine/text/jinja/values/render_limits.h"

namespace pagoda::jinja {

// A variable of a template, or an entry of a dict.
struct Field {
  enum class Form : uint8_t {
    kText,  // The value is the text itself.
    kJson,  // The value is what the JSON text says.
    // The text is a JSON object; each member is a field. The name is only for errors.
    kMembers
  };
  std::string name;
  Form form = Form::kText;
  std::string text;
};

// The input of a template. Later fields replace earlier ones of the same name.
struct TemplateInput {
  // `messages` and `tools` cannot be among them: the members below replace them. A JSON object
  // whose members are variables has at most 1,024.
  std::vector<Field> variables;
  // The variable `messages`: a list of dicts.
  std::vector<std::vector<Field>> messages;
  // The variable `tools`: a list of JSON objects, or none if there are none.
  std::vector<std::string> tools;
  absl::CivilSecond now;  // For strftime_now.
};

// Settings and functions are those of transformers: trim_blocks, lstrip_blocks, loop controls,
// `generation` blocks, tojson without HTML escapes, raise_exception and strftime_now; lists and
// dicts cannot be changed. A message's reasoning has several names, like there: the first of
// reasoning_content, thinking and reasoning that it has is also its reasoning_content and thinking.
//
// Invariants:
//  1. A rendering has no effects: it reads its input, and nothing else.
//  2. A rendering stays within its limits: in steps, memory, depth and time.
//
// Immutable; thread-safe. Copies share the syntax tree.
class Template {
 public:
  // At most 1 MiB. Errors: INVALID_CHECKPOINT, with the line.
  static absl::StatusOr<Template> Parse(absl::string_view source);

  // Errors: INVALID_PROMPT, with the line (the template refuses the input, or fails on it, or needs
  // more than the limits; JSON that cannot be read; text that is not UTF-8), INVALID_CHECKPOINT
  // (the template uses a filter or test that does not exist).
  absl::StatusOr<std::string> Render(const TemplateInput& input,
                                     const RenderLimits& limits = {}) const;

 private:
  struct Tree;
  explicit Template(std::shared_ptr<const Tree> tree);

  std::shared_ptr<const Tree> tree_;  // Owned by all copies.
};

}  // namespace pagoda::jinja

#endif  // PAGODA_ENGINE_TEXT_JINJA_TEMPLATE_H_
