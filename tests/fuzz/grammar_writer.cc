#include "tests/fuzz/grammar_writer.h"

#include <array>
#include <random>
#include <string>

namespace pagoda {
namespace {

class GrammarWriter {
 public:
  explicit GrammarWriter(uint32_t seed) : random_(seed), rules_(1 + Below(4)) {}

  std::string Ebnf() {
    std::string text;
    for (uint32_t rule = 0; rule < rules_; ++rule) {
      text += Name(rule) + Attributes() + " ::= " + Choices(0);
      if (OneIn(12)) text += " (= " + Choices(0) + ")";
      text += "\n";
    }
    return text;
  }

  std::string Schema() {
    std::string definitions;
    for (uint32_t rule = 1; rule < rules_; ++rule) {
      definitions += (rule > 1 ? "," : "") + ("\"" + Name(rule) + "\":") + SubSchema(0);
    }
    return R"({"$defs":{)" + definitions + R"(},"anyOf":[)" + SubSchema(0) + "]}";
  }

  std::string Expression(int depth) {
    std::string text;
    for (uint32_t i = Below(3) + 1; i > 0; --i) {
      text += depth < 4 && OneIn(2) ? "(" + Expression(depth + 1) + ")" : Pick(kAtoms);
      text += Pick(kQuantifiers);
      if (OneIn(5)) text += "|";
    }
    return text;
  }

  bool OneIn(uint32_t n) { return Below(n) == 0; }
  uint32_t Below(uint32_t n) { return random_() % n; }

 private:
  static constexpr std::array kQuantifiers = {"",      "",    "{0,1}", "{0,1}", "{0,}",
                                              "{1,2}", "{2}", "{0}",   "{1,}",  "{0,200}",
                                              "?",     "*",   "+",     "{1}",   "{130,140}"};
  static constexpr std::array kAtoms = {"a", "b", "[ab]", ".", "", "\\d"};

  template <size_t N>
  std::string Pick(const std::array<const char*, N>& texts) {
    return texts[Below(N)];
  }
  static std::string Name(uint32_t rule) { return rule == 0 ? "root" : "r" + std::to_string(rule); }
  std::string AnyName() { return Name(Below(rules_)); }

  std::string Attributes() {
    if (!OneIn(20)) return "";
    const std::string number = std::to_string(Below(1000));
    switch (Below(5)) {
      case 0:
        return "[lazy]";
      case 1:
        return "[max_tokens=" + number + ",max_chars=3]";
      case 2:
        return "[capture=\"c\"]";
      case 3:
        return "[capture_hidden_body_rule_id=" + number + ",capture_hidden_marker_rule_id=1]";
      default:
        return "[temperature=0.5,capture_hidden_suffix_bytes=" + number + "1]";
    }
  }

  std::string Choices(int depth) {
    std::string text = Sequence(depth);
    while (OneIn(4)) text += " | " + Sequence(depth);
    return text;
  }
  std::string Sequence(int depth) {
    std::string text = Element(depth) + Pick(kQuantifiers);
    while (OneIn(3)) text += " " + Element(depth) + Pick(kQuantifiers);
    return text;
  }
  std::string Element(int depth) {
    switch (Below(16)) {
      case 0:
        return "\"a\"";
      case 1:
        return "[ab]";
      case 2:
      case 3:
        return "\"\"";
      case 4:
        return "()";
      case 5:
        return "Regex(\"" + Expression(3) + "\")";
      case 6:
        return "TagDispatch((\"a\", " + AnyName() +
               "), loop_after_dispatch=" + (OneIn(2) ? "true" : "false") + ")";
      case 7:
        return "TokenTagDispatch((" + std::to_string(Below(6)) + ", " + AnyName() + "))";
      case 8:
        return "ExcludeToken(" + std::to_string(Below(6)) + ")";
      case 9:
      case 10:
        return depth < 4 ? "(" + Choices(depth + 1) + ")" : AnyName();
      default:
        return AnyName();
    }
  }

  std::string Reference() {
    const uint32_t rule = Below(rules_);
    return R"({"$ref":")" + (rule == 0 ? "#" : "#/$defs/" + Name(rule)) + "\"}";
  }
  std::string SubSchema(int depth) {
    if (depth > 3) return Reference();
    const auto sub = [&] { return SubSchema(depth + 1); };
    switch (Below(9)) {
      case 0:
        return R"({"anyOf":[)" + sub() + "," + sub() + "]}";
      case 1:
        return R"({"allOf":[)" + sub() + "]}";
      case 2:
        return R"({"oneOf":[)" + sub() + "]}";
      case 3:
        return R"({"type":"array","minItems":)" + std::to_string(Below(3)) + R"(,"items":)" +
               sub() + "}";
      case 4:
        return R"({"type":"array","prefixItems":[)" + sub() + R"(],"items":)" + sub() + "}";
      case 5:
        return R"({"type":"object","properties":{"p":)" + sub() + R"(},"additionalProperties":)" +
               sub() + "}";
      case 6:
        return R"({"type":"string","pattern":"(ab?){0,3}","maxLength":)" +
               std::to_string(Below(4)) + "}";
      case 7:
        return R"({"type":["null","array"],"items":)" + sub() + "}";
      default:
        return Reference();
    }
  }

  std::mt19937 random_;
  const uint32_t rules_;
};

}  // namespace

StructuredOutput WriteGrammar(uint32_t seed) {
  GrammarWriter writer(seed);
  switch (writer.Below(8)) {
    case 0:
      return {.kind = StructuredOutput::Kind::kRegex, .text = writer.Expression(0)};
    case 1:
    case 2:
      return {.kind = StructuredOutput::Kind::kJsonSchema, .text = writer.Schema()};
    default:
      return {.kind = StructuredOutput::Kind::kGrammar, .text = writer.Ebnf()};
  }
}

}  // namespace pagoda
