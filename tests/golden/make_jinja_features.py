#!/usr/bin/env python3
"""Makes chat_templates/features.json: short templates of one or two features each, as transformers
renders them.

Run it where transformers and jinja2 are installed (README.md):
    python make_jinja_features.py [OUTPUT_FOLDER]
"""

import json
import pathlib
import sys

from make_chat_templates import NOW, strftime_now
from transformers.utils.chat_template_utils import _cached_compile_jinja_template

VARIABLES = {
    "n": 7, "neg": -3, "x": 2.5, "big": 9007199254740993, "yes": True, "no": False, "nil": None,
    "s": "Hello, World", "u": "Zürich straße 日本 🙂 İ", "html": "<a href='x'>&\"</a>", "lines": "one\ntwo\n\n  three\n",
    "pad": "  \t spaced \n", "num": "42", "hex": "0x1f", "fl": "3.25", "csv": "a,b,,c", "empty": "",
    "l": [3, 1, 2], "names": ["bob", "Alice", "carol", "Bob"], "mixed": [1, "a", None, True, 2.0, [1, 2], {"k": 1}],
    "d": {"b": 1, "a": [1, 2], "C": {"x": "y"}, "items": "shadow"}, "nested": {"k": {"l": [{"m": 5}]}},
    "users": [{"name": "Bob", "age": 30, "tags": ["x"]}, {"name": "alice", "age": 25, "tags": []},
              {"name": "Carol", "age": 30}], "el": [], "ed": {},
}

# Texts between the lines of "---".
TEMPLATES = r"""
{{ n }} {{ neg }} {{ x }} {{ big }} {{ yes }} {{ no }} {{ nil }} {{ missing }}|
---
{{ l }} {{ d }} {{ mixed }} {{ users[0] }} {{ () }} {{ (1,) }} {{ (1, 2) }} {{ {} }} {{ [] }}
---
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 6 / 2 }}
---
{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -n ** 2 }} {{ +n }} {{ - -n }} {{ not n }} {{ not not n }} {{ 2 ** 3 ** 2 }}
---
{{ 1e3 }} {{ 1.5e-7 }} {{ 1e16 }} {{ 123456789.123 }} {{ 0.1 + 0.2 }} {{ 1_000 }} {{ 0xff }} {{ 0b101 }} {{ 0o17 }} {{ 1e22 }} {{ 5e-324 }} {{ 1.0 }}
---
{{ "a" ~ 1 ~ none ~ 2.0 ~ [1] }} {{ "a" + "b" }} {{ "ab" * 3 }} {{ 3 * "ab" }} {{ [1] * 3 }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ "x" * -1 }}|
---
{{ "a" 'b' "c" }} {{ "tab\tnl\\ \x41 \u00fc" }}
---
{{ "q'q" }} {{ ["q'q", 'd"d', "b'\"", "\n", "\x00\x7f", "é", "\u200b", "\U0001F642"] }}
---
{{ 1 == 1.0 }} {{ true == 1 }} {{ "a" == "a" }} {{ [1, 2] == [1, 2] }} {{ {"a": 1} == {"a": 1.0} }} {{ nil == none }} {{ missing == none }} {{ missing == missing2 }} {{ (1,) == [1] }}
---
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ "a" < "b" }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ "B" < "a" }} {{ 1 <= 1 >= 1 }}
---
{{ 1 in [1] }} {{ "ell" in s }} {{ "b" in d }} {{ 1 not in [2] }} {{ missing in [1] }} {{ 1 in missing }} {{ "a" in d.keys() }} {{ 3 in range(5) }}
---
{{ 1 < "a" }}
---
{{ 1 + "a" }}
---
{{ "a" + 1 }}
---
{{ nil + 1 }}
---
{{ missing + 1 }}
---
{{ missing.x }}
---
{{ nil.x }}|{{ nil.x is defined }}|{{ n.x }}|{{ s.x }}|{{ d.missing }}|{{ d.missing is defined }}
---
{{ nil.x.y }}
---
{{ d.missing.x }}
---
{{ d["missing"]["x"] }}
---
{{ d.b }} {{ d["b"] }} {{ d.a[0] }} {{ d.a.0 }} {{ d.a[-1] }} {{ d.a[5] }}| {{ d["C"]["x"] }} {{ d.C.x }} {{ nested.k.l[0].m }} {{ d.get("zz") }} {{ d.get("zz", 5) }} {{ d["items"] }}
---
{{ s[0] }} {{ s[-1] }} {{ s[1:4] }} {{ s[:3] }} {{ s[-3:] }} {{ s[::2] }} {{ s[::-1] }} {{ u[0:6] }} {{ u[-1] }} {{ u[7:13][::-1] }} {{ s[100:] }}|{{ s[5:2] }}|
---
{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ (1, 2, 3)[1:] }} {{ l[none:2] }} {{ l[0:10:2] }} {{ range(10)[2:4]|list }}
---
{{ l["x"] }}|{{ s["upper"]() }}|{{ s[1.5] }}|{{ s[none] }}|
---
{{ l[::0] }}
---
{{ 1 if yes else 2 }} {{ 1 if no }}| {{ 1 if no else 2 if yes else 3 }} {{ yes and "a" }} {{ no or "b" }} {{ nil or "" or 0 or "c" }} {{ no and 1 }}
---
{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}{% if no %}x{% endif %}{% if no %}x{% elif no %}y{% else %}z{% endif %}
---
{% for i in l %}{{ i }}{% if not loop.last %}, {% endif %}{% else %}none{% endfor %}{% for i in [] %}x{% else %}empty{% endfor %}
---
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle("o", "e") }}{{ loop.changed(i > 1) }};{% endfor %}
---
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for v in d.values() %}{{ v }}{% endfor %}{% for c in "añb" %}[{{ c }}]{% endfor %}
---
{% for k in d.items() %}{{ k }}{% endfor %}
---
{% for i in range(10) if i is odd %}{{ i }}/{{ loop.length }} {% endfor %}{% for i in l if i > 10 %}x{% else %}no{% endfor %}
---
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
---
{% for a in l %}{% for b in l %}{{ loop.index }}{% if b == 1 %}{% break %}{% endif %}{% endfor %}{{ loop.index }};{% endfor %}
---
{% for i in missing %}x{% else %}undefined{% endfor %}
---
{% for i in nil %}x{% endfor %}
---
{% for i in 5 %}x{% endfor %}
---
{% for a, b in [[1, 2], (3, 4)] %}{{ a }}-{{ b }};{% endfor %}{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}
---
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
---
{% for item in [{"v": 1, "c": [{"v": 2, "c": []}]}] recursive %}{{ item.v }}@{{ loop.depth }}[{{ loop(item.c) }}]{% endfor %}
---
{% set x = 1 %}{{ x }}{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}{% if yes %}{% set x = 9 %}{% endif %}{{ x }}
---
{% set ns = namespace(a=1, b=[]) %}{% for i in l %}{% set ns.a = ns.a + i %}{% set ns.c = i %}{% endfor %}{{ ns.a }} {{ ns.c }} {{ ns.b }} {{ ns.zz is defined }} {{ ns["a"] }}
---
{% set ns = namespace({"a": 1}, b=2) %}{{ ns.a }}{{ ns.b }}{% set ns.a, y = 5, 6 %}{{ ns.a }}{{ y }}
---
{% set d2 = {"a": 1} %}{% set d2.a = 2 %}
---
{% set ns = namespace() %}{% set ns._x = 2 %}
---
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% set (e, f) = [3, 4] %}{{ e }}{{ f }}
---
{% set t %}x{{ n }}y{% endset %}{{ t }}{% set t | upper %}abc{{ n }}{% endset %}{{ t }}{% set t | replace("a", "b") | title %}aa ba{% endset %}{{ t }}
---
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(a=5, c=6) }}{{ m() }}{{ m.name }}
---
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, a=3) }}
---
{% macro m() %}x{% endmacro %}{{ m(1) }}
---
{% macro m(a) %}x{% endmacro %}{{ m(b=1) }}
---
{% macro m(a) %}{{ a }}{% if a > 0 %}{{ m(a - 1) }}{% endif %}{% endmacro %}{{ m(5) }}
---
{% macro m(a) %}{{ a }}{{ later }}{% endmacro %}{% set later = "L" %}{{ m(1) }}
---
{% macro a() %}{{ p is defined }}{{ v is defined }}{% endmacro %}{% macro b(p) %}{{ a() }}{% endmacro %}{{ b(1) }}{% for v in [1] %}{{ a() }}{% endfor %}
---
{% macro m(p) %}{{ caller() }}{% endmacro %}{% for v in l %}{% call m(1) %}{{ p is defined }}{{ v }}{% endcall %}{% endfor %}
---
{% set x = 1 %}{% macro m(x) %}{{ x }}{% set x = 5 %}{{ x }}{% endmacro %}{{ m(2) }}{{ x }}{% set y %}{% set x = 7 %}{{ x }}{% endset %}{{ y }}{{ x }}{% with x = 8 %}{{ x }}{% endwith %}{{ x }}
---
{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{{ n }}{% endcall %}
---
{% macro m() %}{% for i in l %}{{ caller(i, 2) }}{% endfor %}{% endmacro %}{% call(a, b) m() %}[{{ a }}{{ b }}]{% endcall %}
---
{% macro m() %}{% if caller is defined %}{{ caller() }}{% else %}none{% endif %}{% endmacro %}{{ m() }}
---
{% filter upper %}abc {{ n }}{% endfilter %}{% filter replace("a", "b") | trim %}  aaa {% endfilter %}|
---
{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}|{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}|
---
{% generation %}{% set q = 3 %}gen {{ q }}{% endgeneration %}{{ q }}|
---
{% raw %}{{ x }} {% if %}{# c #}{% endraw %}{{ n }}
---
a {# comment {{ n }} #} b
  {#- stripped -#}
 c
---
   {% if yes %}
  indented
   {% endif %}
 end
---
a  {%- if yes -%}  b  {%- endif -%}  c  {{- n -}}  d
---
a
  {%+ if yes %}b{% endif +%}
c
{{ n }}
d
---
{% if yes %}

x

{% endif %}

y
---
{{ "}}" }}{{ '%}' }}{{ {"a": {"b": 1}}["a"] }}{{ {"a": {"b": 1}} }}
---
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ s.swapcase() }} {{ u.upper() }} {{ u.lower() }} {{ u.title() }} {{ "ǆ".title() }} {{ "ŉx ﬁ".upper() }} {{ "ΑΣ".lower() }} {{ "they're bill's".title() }}
---
{{ pad.strip() }}|{{ pad.lstrip() }}|{{ pad.rstrip() }}|{{ "xxaxx".strip("x") }}|{{ "abcba".lstrip("ab") }}|{{ "abcba".rstrip("ab") }}|{{ "  a".strip(none) }}|
---
{{ csv.split(",") }} {{ csv.split(",", 1) }} {{ "a b  c ".split() }} {{ " a b  c ".split(none, 1) }} {{ "a--b--c".rsplit("--", 1) }} {{ " a b c ".rsplit(none, 1) }} {{ "".split() }} {{ "".split(",") }} {{ "a b".split(" ", maxsplit=1) }}
---
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ "a\r\nb\rc".splitlines() }}
---
{{ s.startswith("Hell") }} {{ s.startswith(("x", "H")) }} {{ s.endswith("ld") }} {{ s.startswith("W", 7) }} {{ s.endswith("o", 0, 5) }} {{ "".startswith("") }} {{ u.startswith("rich", 2) }}
---
{{ s.find("o") }} {{ s.rfind("o") }} {{ s.find("zz") }} {{ s.find("o", 5) }} {{ s.index("W") }} {{ s.count("l") }} {{ u.find("日") }} {{ "aaa".count("") }} {{ s.find("") }}
---
{{ s.index("zz") }}
---
{{ s.replace("l", "L") }} {{ s.replace("l", "L", 1) }} {{ "abc".replace("", "-") }} {{ "aaa".replace("aa", "b") }}
---
{{ ",".join(["a", "b"]) }} {{ "".join([]) }}| {{ "-".join("abc") }}
---
{{ ",".join([1]) }}
---
{{ "a-b-c".partition("-") }} {{ "a-b-c".rpartition("-") }} {{ "abc".partition("-") }} {{ "abc".rpartition("-") }}
---
{{ "abc".removeprefix("a") }} {{ "abc".removesuffix("c") }} {{ "abc".removeprefix("x") }} {{ "5".zfill(3) }} {{ "-5".zfill(4) }} {{ "a".ljust(3) }}|{{ "a".rjust(3, "*") }}|{{ "ab".center(5) }}|{{ "abc".center(6, "-") }}|{{ "a\tb".expandtabs(4) }}
---
{{ "abc".isalpha() }} {{ "12".isdigit() }} {{ "a1".isalnum() }} {{ " ".isspace() }} {{ "ab".islower() }} {{ "AB".isupper() }} {{ "Ab Cd".istitle() }} {{ "²".isdigit() }} {{ "½".isnumeric() }} {{ "²".isdecimal() }} {{ "a_1".isidentifier() }} {{ "é".isascii() }} {{ "".isalpha() }}
---
{{ "%s is %d and %.2f %5s|%-5s|%05d %x %o %e %g %%" % ("a", 3, 2.5, "b", "c", 42, 255, 8, 12345.678, 0.0001) }} {{ "%s" % "one" }} {{ "%(k)s" % {"k": 1} }} {{ "%r %c %+d" % ("a", "z", 4) }}
---
{{ "%d" % "a" }}
---
{{ "%s %s" % "a" }}
---
{{ "{} {}".format(1, "a") }} {{ "{1} {0}".format(1, 2) }} {{ "{a:>5}|{b:<5}|{c:^5}|".format(a=1, b="x", c="y") }} {{ "{:.2f} {:,} {:05d} {:x} {:+d} {:e} {:%}".format(3.14159, 1234567, 42, 255, 5, 1234.5, 0.25) }} {{ "{0[a]} {1[0]}".format({"a": 1}, [2]) }} {{ "{{}}".format() }} {{ "{!r}".format("a") }}
---
{{ "{}".format() }}
---
{{ "{:d}".format("a") }}
---
{{ l.count(1) }} {{ l.index(2) }} {{ d.keys() }} {{ d.values() }} {{ {"a": 1}.items() }} {{ l.copy() }} {{ ed.keys()|list }}
---
{{ l.append(4) }}
---
{{ d.update({"z": 1}) }}
---
{{ d.pop("b") }}
---
{{ s.__class__ }}|{{ l.__len__ is defined }}|
---
{{ s.__class__.__mro__ }}
---
{{ l|length }} {{ s|count }} {{ u|length }} {{ d|length }} {{ missing|length }} {{ range(5)|length }} {{ d.keys()|length }}
---
{{ n|length }}
---
{{ nil|length }}
---
{{ s|upper }} {{ s|lower }} {{ s|title }} {{ s|capitalize }} {{ 5|upper }} {{ "foo-bar (baz) [qux] it's"|title }} {{ u|upper }} {{ nil|upper }} {{ missing|upper }}|
---
{{ pad|trim }}| {{ "xax"|trim("x") }} {{ 5|trim }} {{ s|replace("l", "L") }} {{ s|replace("l", "L", 1) }} {{ 515|replace(5, 6) }}
---
{{ l|join }} {{ l|join(", ") }} {{ users|join(";", attribute="name") }} {{ mixed|join("|") }} {{ "abc"|join(".") }} {{ missing|join }}|
---
{{ missing|default("x") }} {{ nil|default("x") }} {{ nil|default("x", true) }} {{ ""|d("y", boolean=true) }} {{ missing|default }}| {{ n|default(1) }} {{ d.zz|default("k") }}
---
{{ l|first }} {{ l|last }} {{ s|first }} {{ u|last }} {{ d|first }} {{ []|first }}| {{ []|last }}| {{ d|last }} {{ l|reverse|first }}
---
{{ l|sort }} {{ l|sort(reverse=true) }} {{ names|sort }} {{ names|sort(case_sensitive=true) }} {{ users|sort(attribute="age")|map(attribute="name")|list }} {{ users|sort(attribute="age,name")|map(attribute="name")|list }} {{ users|sort(attribute="age", reverse=true)|map(attribute="name")|join(",") }}
---
{{ mixed|sort }}
---
{{ users|sort(attribute="zz") }}
---
{{ d|dictsort }} {{ {"b": 2, "A": 1, "c": 0}|dictsort }} {{ {"b": 2, "A": 1, "c": 0}|dictsort(true) }} {{ {"b": 2, "A": 1, "c": 0}|dictsort(by="value") }} {{ {"b": 2, "A": 1}|dictsort(reverse=true) }}
---
{{ names|unique|list }} {{ names|unique(case_sensitive=true)|list }} {{ [1, 1.0, true, 2]|unique|list }} {{ users|unique(attribute="age")|map(attribute="name")|list }}
---
{{ l|min }} {{ l|max }} {{ names|min }} {{ names|max(case_sensitive=true) }} {{ []|max }}| {{ users|max(attribute="age") }}
---
{{ l|sum }} {{ users|sum(attribute="age") }} {{ [0.5, 1]|sum }} {{ []|sum(start=3) }} {{ [[1], [2]]|sum(start=[]) }}
---
{{ ["a"]|sum }}
---
{{ users|groupby("age")|list }} {% for g in users|groupby("age") %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}{% for k, v in users|groupby("name") %}{{ k }}{% endfor %}
---
{{ l|map("string")|list }} {{ names|map("upper")|join }} {{ users|map(attribute="age")|list }} {{ users|map(attribute="tags", default="none")|list }} {{ users|map(attribute="tags.0")|list }} {{ ["a"]|map("replace", "a", "b")|list }} {{ missing|map("upper")|list }}
---
{{ l|map|list }}
---
{{ l|map("nofilter")|list }}
---
{{ l|select("odd")|list }} {{ l|reject("odd")|list }} {{ mixed|select|list }} {{ mixed|reject|list }} {{ users|selectattr("tags")|map(attribute="name")|list }} {{ users|rejectattr("tags")|map(attribute="name")|list }} {{ users|selectattr("age", "equalto", 30)|map(attribute="name")|list }} {{ l|select(">", 1)|list }} {{ users|selectattr("tags", "defined")|list|length }}
---
{{ l|list }} {{ "abc"|list }} {{ d|list }} {{ range(3)|list }} {{ (1, 2)|list }} {{ missing|list }} {{ l|reverse|list }} {{ "abc"|reverse }}
---
{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, "x")|list }} {{ [1, 2, 3, 4, 5]|slice(3)|list }} {{ [1, 2, 3, 4]|slice(3, "x")|list }}
---
{{ num|int }} {{ "3.9"|int }} {{ "x"|int }} {{ "x"|int(5) }} {{ hex|int(base=16) }} {{ 3.99|int }} {{ -3.99|int }} {{ true|int }} {{ nil|int }} {{ " 42 "|int }} {{ "1_000"|int }} {{ "0b11"|int(0, 2) }} {{ [1]|int }} {{ "1e3"|int }}
---
{{ missing|int }}
---
{{ num|float }} {{ "x"|float }} {{ "x"|float(1.5) }} {{ 3|float }} {{ "1e3"|float }} {{ " 2.5 "|float }} {{ nil|float }} {{ "inf"|float }} {{ "nan"|float }}
---
{{ 3.14159|round }} {{ 3.14159|round(2) }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 5|round }} {{ 3.2|round(method="ceil") }} {{ 3.7|round(0, "floor") }} {{ 1234|round(-2) }} {{ 1250.0|round(-2) }} {{ 42.55|round|int }}
---
{{ neg|abs }} {{ -2.5|abs }} {{ true|abs }}
---
{{ html|escape }} {{ html|e|escape }} {{ html|safe }} {{ html|safe|escape }} {{ html|forceescape }} {{ (html|safe) + html }} {{ "<b>"|safe ~ "<" }} {{ 5|safe }} {{ ["<"|safe] }} {{ ("<"|safe)|upper|e }} {{ "<%s>"|safe % "<" }} {{ ("<"|safe).join([">", "a"]) }} {{ ("<{}>"|safe).format("&") }}
---
{{ lines|indent }}|{{ lines|indent(2, true) }}|{{ lines|indent(2, blank=true) }}|{{ lines|indent("> ", true) }}|{{ "a"|indent }}|{{ ""|indent(2, true) }}|
---
{{ 5|indent }}
---
{{ "foo bar baz qux"|truncate(9) }} {{ "foo bar baz qux"|truncate(9, true) }} {{ "foo bar baz qux"|truncate(11) }} {{ "foo bar baz qux"|truncate(9, false, "…", 0) }} {{ "foobarbazqux"|truncate(5, leeway=0) }}
---
{{ "a b"|center(9) }}| {{ "%s-%s"|format("a", 1) }} {{ "%(a)s"|format(a=2) }} {{ "one two-three"|wordcount }} {{ "a b/c?d=ü&"|urlencode }} {{ {"a b": "c/d", "e": 1}|urlencode }} {{ [["x", "y z"]]|urlencode }}
---
{{ 5|string }} {{ none|string }} {{ [1, "a"]|string }} {{ {"a": none}|string }} {{ s|string }} {{ 1.0|string }} {{ missing|string }}|
---
{{ d|items|list }} {{ missing|items|list }} {{ users[0]|attr("name") }}| {{ users[0]|attr("items") is callable }} {{ s|attr("upper")() }}
---
{{ d|tojson }} {{ mixed|tojson }} {{ u|tojson }} {{ html|tojson }} {{ nil|tojson }} {{ 1.0|tojson }} {{ 1e20|tojson }} {{ big|tojson }} {{ (1, 2)|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ "\x7f\x1f\u2028"|tojson }}
---
{{ d|tojson(indent=2) }}{{ []|tojson(indent=4) }}{{ {}|tojson(indent=4) }}{{ [[]]|tojson(indent="--") }}{{ [1, [2]]|tojson(indent=0) }}
---
{{ u|tojson(ensure_ascii=true) }} {{ "\x7f🙂"|tojson(true) }} {{ d|tojson(separators=(",", ":")) }} {{ {"b": 1, "a": {"d": 1, "c": 2}}|tojson(sort_keys=true) }} {{ [1, 2]|tojson(indent=1, separators=("; ", " = ")) }}
---
{{ missing|tojson }}
---
{{ namespace()|tojson }}
---
{{ range(3)|tojson }}
---
{{ {"a": 1, 2: 3}|tojson(sort_keys=true) }}
---
{{ n is odd }} {{ n is even }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ n is defined }} {{ missing is defined }} {{ missing is undefined }} {{ nil is none }} {{ n is not none }} {{ yes is boolean }} {{ 1 is boolean }} {{ yes is true }} {{ no is false }} {{ 1 is true }}
---
{{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ 1 is number }} {{ true is number }} {{ "1" is number }} {{ "a" is string }} {{ d is mapping }} {{ l is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ l is iterable }} {{ n is iterable }} {{ s is iterable }} {{ range(2) is sequence }} {{ d.keys() is sequence }} {{ missing is sequence }} {{ missing is iterable }} {{ missing is string }} {{ nil is mapping }} {{ namespace() is mapping }}
---
{{ "ab" is lower }} {{ "AB" is upper }} {{ 1 is sameas 1 }} {{ yes is sameas true }} {{ "<"|safe is escaped }} {{ 1 is in [1] }} {{ 3 is in(l) }} {{ 1 is eq 1 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is ge 2 }} {{ 2 is greaterthan 1 }} {{ 1 is equalto 1.0 }} {{ "upper" is filter }} {{ "nope" is filter }} {{ "odd" is test }} {{ range is callable }} {{ n is callable }}
---
{{ not n is odd }} {{ n is odd and n is defined }} {{ n is not odd or yes }} {{ 1 + 2 is odd }} {{ n is odd == true }} {{ (n is odd) == true }}
---
{{ -5|abs }} {{ 1 + -5|abs }} {{ "a" ~ "b"|upper }} {{ l|length > 2 }} {{ not l|length }} {{ 2 * l|length }} {{ s.split(",")|first|upper }} {{ (s|upper).lower()|title }}
---
{{ x is defined and x }} {{ missing is defined and missing.x }} {{ (missing or d).b }} {{ [1, 2][0] }} {{ {"a": 1}.a }} {{ "abc"[1] }} {{ (1, 2)[1] }} {{ "a,b".split(",")[1] }}
---
{{ range(5)|list }} {{ range(2, 8, 3)|list }} {{ range(5, 0, -2)|list }} {{ range(0) }} {{ range(1, 3) }} {{ range(1, 9, 2) }} {{ range(3)[1] }}
---
{{ range(200000) }}
---
{{ dict(a=1, b=2) }} {{ dict([["a", 1]], c=3) }} {{ dict({"x": 1}) }} {{ dict() }}
---
{% set c = cycler("a", "b") %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set x = c.reset() %}{{ c.current }}{% set j = joiner("; ") %}{{ j() }}x{{ j() }}y{{ j() }}
---
{{ strftime_now("%Y-%m-%d %H:%M:%S") }} {{ strftime_now("%d %b %Y") }} {{ strftime_now("%A %B %j %U %w %y %p %I %%") }} {{ strftime_now("%-d %e") }} {{ strftime_now("%Z%z") }}|{{ strftime_now("") }}|{{ strftime_now("%f") }}
---
{{ raise_exception("No: " ~ n) }}
---
{% if no %}{{ raise_exception("never") }}{{ x|nofilter }}{% endif %}ok
---
{{ x|nofilter }}
---
{{ x is notest }}
---
{% if yes %}{{ x|nofilter }}{% endif %}
---
{{ 1 / 0 }}
---
{{ 1 // 0 }}
---
{{ missing() }}
---
{{ n() }}
---
{{ s.nomethod() }}
---
{{ s.upper(1) }}
---
{% set loop = 5 %}{{ loop }}{% for i in [1] %}{{ loop.index }}{% endfor %}{{ loop }}
---
{{ true }} {{ True }} {{ none }} {{ None }} {{ false }}
---
{% for m in users %}{% set outer = loop %}{% for t in m.tags %}{{ outer.index }}{{ t }}{% endfor %}{% endfor %}
---
{% set g = l|map("string") %}{{ g|join }}|{{ g|join }}|{% set r = l|reverse %}{{ r|list }}{{ r|list }}
---
{{ users|map(attribute="name")|map("lower")|select("ne", "bob")|join(", ") }} {{ users|selectattr("age", ">", 26)|map(attribute="name")|list|tojson }}
---
{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}{{ m() }}|
---
{% macro a() %}{% macro b() %}B{% endmacro %}A{{ b() }}{% endmacro %}{{ a() }}{{ b is defined }}
---
{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}
---
{{ [missing, 1] }} {{ {"a": missing} }} {{ missing ~ "x" }} {{ missing == "" }} {{ missing != 1 }} {{ missing is none }} {{ missing|string|length }}
---
{{ l|length is greaterthan 2 }} {{ (l|first) in l }} {{ "a" if "a" in "abc" and 1 in l else "b" }} {{ [1, 2,] }} {{ {"a": 1,} }} {{ (1, 2,) }}
---
{{ d.items is string }} {{ d.items()|length }} {{ {"keys": 5}.keys is callable }} {{ {"get": 5}["get"] }}
---
{{ "a"|upper|lower ~ "b" }} {{ ("a" ~ "b")|upper }} {{ "x"|default("y")|length }} {{ [1, 2, 3][1:]|first }} {{ l|sort|first }} {{ d.a|join("-") }}
---
{%- set ns = namespace(found=false) -%}
{%- for u in users -%}
    {%- if u.age == 25 -%}{%- set ns.found = true -%}{%- endif -%}
{%- endfor -%}
found: {{ ns.found }}
---
{{ 10 | float / 3 }} {{ 1.0 * 3 }} {{ 3 == 3.0 }} {{ 1e308 * 10 }} {{ -0.0 }} {{ 0.1 * 3 }} {{ 100000000000000000000.0 }} {{ 123456789012345680.0 }} {{ 0.00001 }}
---
{{ "a" is in "abc" }} {{ "%s" % [1, 2] }} {{ "%s" % ([1, 2],) }} {{ "%5.1f|%-8s|%+d" % (3.14159, "ab", 5) }} {{ "%s" % none }} {{ "%i" % 3.7 }}
---
{{ ["b", "a"]|sort|join }} {{ {"b": 1}|list }} {{ d|dictsort|map("first")|join(",") }} {{ d.keys()|sort|list }} {{ "cba"|sort|join }}
---
{{ lines.strip().split("\n")|map("trim")|list }} {{ "a<think>b</think>c".split("</think>")[-1].lstrip("\n") }} {{ "x".join(s.split(" ")) }}
---
{% if l %}a{% endif %}{% if el %}b{% endif %}{% if ed %}c{% endif %}{% if empty %}d{% endif %}{% if 0.0 %}e{% endif %}{% if "0" %}f{% endif %}{% if missing %}g{% endif %}{% if range(0) %}h{% endif %}{% if namespace() %}i{% endif %}
---
{{ "é" == "é" }} {{ "e\u0301"|length }} {{ "🙂"|length }} {{ "ß".upper() }} {{ "ß".casefold() }} {{ "ÀÉ".lower() }} {{ "a\u00a0b".split() }} {{ "\u3000x\u3000".strip() }}
---
{% set x %}{% for i in l %}{{ i }}{% endfor %}{% endset %}{{ x|length }} {{ x is string }} {{ x ~ "!" }}
---
{% for i in range(3) %}{{ loop.index if loop.first else "-" }}{{ "," if not loop.last }}{% endfor %}
---
{% unknown %}
---
{% if %}x{% endif %}
---
{{ }}
---
{{ 1 +}}
---
{{ (1 }}
---
{% for %}{% endfor %}
---
{% if yes %}
---
{{ "unterminated }}
---
{# no end
---
{% endif %}
---
{% break %}
---
{% set 5 = 1 %}
---
{% macro m(a=1, b) %}{% endmacro %}
---
{% set true = 1 %}
---
{{ a b }}
---
{{ 1 if }}
---
{{ x.1y }}
---
{% for a in l %}{{ a }}{% endfor x %}
---
{{ $ }}
---
{{ "\q" }} {{ '\'' }} {{ "\"" }} {{ "\101" }} {{ "a\
b" }}
"""


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "chat_templates"
    cases = []
    for source in TEMPLATES.removeprefix("\n").removesuffix("\n").split("\n---\n"):
        try:
            template = _cached_compile_jinja_template(source)
        except Exception:
            cases.append({"template": source, "parses": False})
            continue
        template.globals["strftime_now"] = strftime_now
        try:
            cases.append({"template": source, "text": template.render(**VARIABLES)})
        except Exception:  # Jinja lets every Python error of a template through.
            cases.append({"template": source, "text": None})
    result = {"now": NOW, "variables": VARIABLES, "cases": cases}
    (folder / "features.json").write_text(json.dumps(result, ensure_ascii=True, indent=1) + "\n")
    print(f"{len(cases)} templates")


if __name__ == "__main__":
    main()
