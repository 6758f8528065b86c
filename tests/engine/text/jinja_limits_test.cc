// What a template that means harm can do: nothing but fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/jinja/template.h"

namespace pagoda::jinja {
namespace {

using ::testing::HasSubstr;

std::string Repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::string Nested(const std::string& left, const std::string& inside, const std::string& right,
                   int count) {
  return absl::StrCat(Repeated(left, count), inside, Repeated(right, count));
}

// A slow machine meets another bound than the time, unless a test sets the time.
absl::Status RenderStatus(const std::string& source, RenderLimits limits = {}) {
  if (limits.time == RenderLimits{}.time) limits.time = absl::Hours(1);
  const absl::StatusOr<Template> parsed = Template::Parse(source);
  return parsed.ok() ? parsed->Render({}, limits).status() : parsed.status();
}

std::string Failure(const std::string& source, const RenderLimits& limits = {}) {
  const absl::Status status = RenderStatus(source, limits);
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidPrompt) << source << status;
  return std::string(status.message());
}

TEST(JinjaLimitsTest, StepsAreBounded) {
  const std::string loops = Nested("{% for i in range(90000) %}", "{{ i }}", "{% endfor %}", 4);
  EXPECT_THAT(Failure(loops, {.steps = 500'000}), HasSubstr("too many steps"));
  // The limit itself: a loop of n rounds takes a number of steps in proportion to n.
  const auto loop = [](int n) {
    return absl::StrCat("{% for i in range(", n, ") %}x{% endfor %}");
  };
  EXPECT_TRUE(RenderStatus(loop(100), {.steps = 3000}).ok());
  EXPECT_THAT(Failure(loop(10000), {.steps = 3000}), HasSubstr("too many steps"));
}

// Each of these does much work in one operation, or makes values that share others.
TEST(JinjaLimitsTest, WorkInsideOneOperationCounts) {
  const std::vector<std::string> sources = {
      // A list of 2^30 elements, all of them one.
      absl::StrCat(
          "{% set l0 = [1] %}",
          [] {
            std::string text;
            for (int i = 0; i < 60; ++i) {
              absl::StrAppend(&text, "{% set l", i + 1, " = [l", i, ", l", i, "] %}");
            }
            return text;
          }(),
          "{{ l60 == l60 }}{{ l60 }}"),
      ("{% set s = 'ab' * 1000000 %}{% for i in range(90000) %}{% set x = s.replace('a', 'b') %}"
       "{% endfor %}"),
      "{% set s = 'a' * 1000000 %}{% for i in range(90000) %}{{ 'b' in s }}{% endfor %}",
      ("{% set s = 'a ' * 100000 %}{% for i in range(90000) %}{% set x = s.rsplit(none, 50000) %}"
       "{% endfor %}"),
      "{% set l = range(90000)|list %}{% for i in range(90000) %}{% set x = l|sort %}{% endfor %}",
      "{% set l = range(90000)|list %}{% for i in l %}{{ (0 - i) in l }}{% endfor %}",
      "{% set s = 'é' * 100000 %}{% for i in range(90000) %}{% set x = s[99999] %}{% endfor %}",
      // Characters to strip that are searched to their end.
      "{{ ('b' * 1000000).strip('a' * 1000000 ~ 'b') }}",
      "{% set s = 'a' * 1000000 %}{% set t = 'a' * 1000000 %}"
      "{% for i in range(90000) %}{{ s == t }}{{ s < t }}{% endfor %}",
      ("{% set s = 'a' * 1000000 %}{% for i in range(90000) %}{{ s.startswith((s, s, s)) }}"
       "{% endfor %}"),
  };
  for (const std::string& source : sources) {
    const absl::Time begin = absl::Now();
    const std::string failure = Failure(source, {.steps = 500'000});
    EXPECT_THAT(failure, HasSubstr("too ")) << source;
    EXPECT_LT(absl::Now() - begin, absl::Seconds(30)) << source;
  }
}

// A part that is nearly everywhere costs the product of both sizes.
TEST(JinjaLimitsTest, SearchesCountWhatTheyCompare) {
  for (const char* const search :
       {"p in s", "s.find(p)", "s.rfind(p)", "s.count(p)", "s.split(p)", "s.rsplit(p, 1)",
        "s.partition(p)", "s.rpartition(p)", "s.replace(p, '')", "s|replace(p, '')"}) {
    const absl::Time begin = absl::Now();
    EXPECT_THAT(Failure(absl::StrCat("{% set s = 'a' * 2000000 %}{% set p = 'a' * 999999 ~ 'b' %}",
                                     "{{ ", search, " }}")),
                HasSubstr("too many steps"))
        << search;
    EXPECT_LT(absl::Now() - begin, absl::Seconds(30)) << search;
  }
}

// An error in the middle of an operation leaves undefined values behind.
TEST(JinjaLimitsTest, OperationsSurviveValuesOfAFailure) {
  const std::string large = "{% set l = ['x' * 1000000] * 200 %}";
  for (const char* const use : {"l|title", "l|trim", "l|upper", "l|center", "l|format(1)",
                                "l|truncate", "l|indent", "l|join|title", "l|escape|title"}) {
    EXPECT_THAT(Failure(absl::StrCat(large, "{{ ", use, " }}")), HasSubstr("line 1")) << use;
  }
  EXPECT_THAT(Failure("{{ ('a'|safe).replace(1, 'b') }}"), HasSubstr("not a string"));
  EXPECT_THAT(Failure("{{ 'a'.replace('a', 1) }}"), HasSubstr("not a string"));
  EXPECT_TRUE(RenderStatus("{{ ('a'|safe).replace('a', 1) }}").ok());
}

TEST(JinjaLimitsTest, VariablesOfARequestAreBounded) {
  const Template parsed = *Template::Parse("{{ k7 }}");
  const auto render = [&](int members) {
    std::string object = "{";
    for (int i = 0; i < members; ++i) {
      absl::StrAppend(&object, i == 0 ? "" : ",", "\"k", i, "\":", i);
    }
    TemplateInput input;
    input.variables = {{"chat_template_kwargs", Field::Form::kMembers, object + "}"}};
    return parsed.Render(input, {.time = absl::Hours(1)});
  };
  EXPECT_EQ(*render(1024), "7");
  const absl::Time begin = absl::Now();
  for (const int members : {1025, 200'000}) {
    const absl::Status refused = render(members).status();
    EXPECT_EQ(ReasonOf(refused), Reason::kInvalidPrompt);
    EXPECT_EQ(std::string(refused.message()), "chat_template_kwargs has more than 1024 members");
  }
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

TEST(JinjaLimitsTest, MemoryIsBounded) {
  const std::vector<std::string> sources = {
      "{{ 'x' * 1000000000 }}",
      "{{ [1] * 1000000000 }}",
      "{{ 'x'.ljust(1000000000) }}",
      "{{ 'x'.zfill(1000000000) }}",
      "{{ 'x'|indent(1000000000, true) }}",
      "{{ [[1]]|tojson(indent=1000000000) }}",
      "{{ ('x' * 1000000).replace('x', 'y' * 100000) }}",
      "{{ ('x' * 1000000).replace('', 'y' * 100000) }}",
      "{{ ('a' * 100000).join('b' * 100000) }}",
      "{{ '\t'.expandtabs(1000000000) }}",
      ("{% set ns = namespace(s='x') %}{% for i in range(90000) %}{% set ns.s = ns.s ~ ns.s %}"
       "{% endfor %}"),
      ("{% set ns = namespace(l=[1]) %}{% for i in range(90000) %}{% set ns.l = ns.l + ns.l %}"
       "{% endfor %}"),
  };
  for (const std::string& source : sources) {
    EXPECT_THAT(Failure(source), HasSubstr("too much memory")) << source;
  }
  EXPECT_THAT(Failure("{{ '%1000000000d' % 1 }}"), HasSubstr("line 1"));
  EXPECT_THAT(Failure("{{ '{:1000000000}'.format(1) }}"), HasSubstr("line 1"));
  // What is not used any more counts no longer.
  EXPECT_TRUE(RenderStatus("{% for i in range(100) %}{% set x = 'x' * 100000 %}{% endfor %}",
                           {.memory_bytes = 1 << 20})
                  .ok());
}

TEST(JinjaLimitsTest, TheOutputIsBounded) {
  const std::string source = "{% for i in range(100) %}{{ 'x' * 100 }}{% endfor %}";
  EXPECT_TRUE(RenderStatus(source, {.output_bytes = 10000}).ok());
  EXPECT_THAT(Failure(source, {.output_bytes = 9999}), HasSubstr("too long"));
}

TEST(JinjaLimitsTest, TimeIsBounded) {
  const std::string loops = Nested("{% for i in range(90000) %}", "{{ i }}", "{% endfor %}", 4);
  EXPECT_THAT(Failure(loops, {.steps = int64_t{1} << 60,
                              .memory_bytes = size_t{1} << 30,
                              .output_bytes = size_t{1} << 30,
                              .time = absl::Milliseconds(20)}),
              HasSubstr("takes too long"));
}

TEST(JinjaLimitsTest, RecursionIsBounded) {
  EXPECT_THAT(Failure("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("nests too deeply"));
  EXPECT_THAT(Failure("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}"
                      "{{ a() }}"),
              HasSubstr("nests too deeply"));
  EXPECT_THAT(Failure("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
              HasSubstr("nests too deeply"));
  EXPECT_THAT(Failure("{% macro m() %}{{ caller() }}{% call m() %}{% endcall %}{% endmacro %}"
                      "{% call m() %}x{% endcall %}"),
              HasSubstr("nests too deeply"));
  EXPECT_THAT(Failure("{% set ns = namespace(l=[]) %}{% for i in range(1000) %}"
                      "{% set ns.l = [ns.l] %}{% endfor %}"),
              HasSubstr("nest too deeply"));
  EXPECT_THAT(Failure("{% set ns = namespace(l={}) %}{% for i in range(1000) %}"
                      "{% set ns.l = {'a': ns.l} %}{% endfor %}"),
              HasSubstr("nest too deeply"));
}

// Recursive loops and macros keep the scopes around them, also when those have ended.
TEST(JinjaLimitsTest, ChainsOfScopesAreBounded) {
  const std::string call = "{% for i in range(90000) %}{{ ns.l([ns]) }}{% endfor %}";
  EXPECT_THAT(Failure(absl::StrCat("{% set ns = namespace() %}{% for x in [ns] recursive %}"
                                   "{% set x.l = loop %}{% endfor %}",
                                   call, call, call)),
              HasSubstr("nests too deeply"));
  // A scope with many variables, which a small macro keeps.
  std::string sets;
  for (int i = 0; i < 50; ++i) absl::StrAppend(&sets, "{% set a", i, " = 1 %}");
  const std::string loop = "{% for i in range(2000) %}" + sets;
  EXPECT_TRUE(RenderStatus(loop + "{% endfor %}", {.memory_bytes = 2 << 20}).ok());
  EXPECT_THAT(
      Failure(loop + "{% macro m() %}{% endmacro %}{% endfor %}", {.memory_bytes = 2 << 20}),
      HasSubstr("too much memory"));
}

TEST(JinjaLimitsTest, TheSyntaxNestsBoundedly) {
  const std::vector<std::string> deep = {
      Nested("(", "1", ")", 100000),
      Nested("[", "1", "]", 100000),
      Nested("{1:", "1", "}", 100000),
      Nested("f(", "1", ")", 100000),
      Nested("a[", "1", "]", 100000),
      Repeated("not ", 100000) + "1",
      Repeated("-", 100000) + "1",
      "1" + Repeated(" if 1 else 1", 100000),
      "1" + Repeated(" + 1", 100000),
      "1" + Repeated(" ** 1", 100000),
      "1" + Repeated(" and 1", 100000),
      "x" + Repeated(".a", 100000),
      "x" + Repeated("|upper", 100000),
      "x" + Repeated("()", 100000),
      "x is " + Repeated("eq ", 100000) + "1",
  };
  for (const std::string& expression : deep) {
    const absl::Status status = RenderStatus(absl::StrCat("{{ ", expression, " }}"));
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << expression.substr(0, 40);
  }
  const absl::Status blocks = RenderStatus(Nested("{% if 1 %}", "x", "{% endif %}", 20000));
  EXPECT_EQ(ReasonOf(blocks), Reason::kInvalidCheckpoint);
  EXPECT_THAT(std::string(blocks.message()), HasSubstr("nest too deeply"));
  EXPECT_TRUE(RenderStatus(Nested("{% if 1 %}", "x", "{% endif %}", 40)).ok());
  EXPECT_TRUE(RenderStatus(absl::StrCat("{{ ", Nested("(", "1", ")", 60), " }}")).ok());
  EXPECT_TRUE(RenderStatus("{{ 1" + Repeated(" ~ 1", 10000) + " }}").ok());
  EXPECT_EQ(ReasonOf(RenderStatus(std::string((1 << 20) + 1, 'x'))), Reason::kInvalidCheckpoint);
  EXPECT_EQ(ReasonOf(RenderStatus("\xFF")), Reason::kInvalidCheckpoint);
}

TEST(JinjaLimitsTest, ErrorsNameTheLine) {
  EXPECT_THAT(Failure("a\n\n{{ 1 / 0 }}"), HasSubstr("line 3: division by zero"));
  EXPECT_THAT(Failure("{% set x =\n\n 1 %}\n{{ x.y.z }}"), HasSubstr("line 4"));
  EXPECT_THAT(Failure("\n{{ raise_exception('No ' ~ 'way') }}"),
              HasSubstr("refuses this conversation, in line 2: No way"));
  EXPECT_THAT(Failure("{% macro m() %}\n{{ [] + 1 }}{% endmacro %}\n\n{{ m() }}"),
              HasSubstr("line 2"));
  EXPECT_THAT(std::string(RenderStatus("\n\n{% if x %}").message()), HasSubstr("line 3"));
  EXPECT_THAT(std::string(RenderStatus("a\n{{ x|nofilter }}").message()),
              HasSubstr("line 2: no filter is named 'nofilter'"));
}

TEST(JinjaLimitsTest, ThreadsShareATemplate) {
  const Template parsed = *Template::Parse(
      "{% macro m(x) %}<{{ x }}>{% endmacro %}{% for i in range(100) %}{{ m(i ~ name) }}"
      "{% endfor %}");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&parsed, i] {
      const std::string name(1, static_cast<char>('a' + i));
      for (int round = 0; round < 50; ++round) {
        TemplateInput input;
        input.variables = {{"name", Field::Form::kText, name}};
        const absl::StatusOr<std::string> text = parsed.Render(input);
        ASSERT_TRUE(text.ok()) << text.status();
        EXPECT_EQ(text->substr(0, 8), absl::StrCat("<0", name, "><1", name, ">"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace pagoda::jinja
