"""Measures C++ and Python text: the methods of its classes, and the lines of its functions.

C++ is read without a compiler. The reader takes the text apart into tokens, and pairs the brackets.
Then it goes through the declarations of namespaces and classes, and tells by the tokens before a
`{` what the brace opens. Bodies of functions are skipped, so a lambda counts as lines of its
function, and a class inside a function is not measured.

* A method is a member function that the body of a class declares: each overload, constructors, the
  destructor and operators. Friends, deleted and defaulted functions and data members are none.
* A function's lines go from the line of its name to the line of its closing brace.
* A name is qualified by classes, not by namespaces: WindowBlockManager, Foo::Bar, and Suite.Name
  for a TEST.
"""

import ast
import bisect
import re
from typing import NamedTuple


class Class(NamedTuple):
    name: str
    methods: int


class Function(NamedTuple):
    name: str
    lines: int


class Unreadable(Exception):
    """The text is no C++ or Python that this reader understands."""


class Token(NamedTuple):
    text: str
    line: int


class Group(NamedTuple):
    """A bracket and what it encloses, as one item of a declaration. `kind`: the opening bracket."""
    kind: str
    tokens: list


# Comments and preprocessor lines come first, so that nothing in them is a token. A raw string may
# hold anything. A number may hold apostrophes: 1'000.
TOKENS = re.compile(r"""
    (?P<skipped> //[^\n]* | /\*.*?\*/ | ^[ \t]*\#(?:\\\n|[^\n])* )
  | (?P<string> (?:u8|[uUL])?R"(?P<mark>[^()\\\s"]*)\(.*?\)(?P=mark)"
              | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+' )
  | (?P<token> \.?\d(?:'?[\w.])* | \w+ | ::|->|<<=|<=>|<=|>=|==|!=|&&|\|\||[^\s\w] )
    """, re.VERBOSE | re.MULTILINE | re.DOTALL)
CLOSING = {"(": ")", "[": "]", "{": "}"}
WORD = re.compile(r"[^\W\d]\w*$")
MACRO = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*$|[A-Z]{4,}$")
CLASS_KEYS = {"class", "struct", "union"}
ACCESS = {"public", "protected", "private"}
# What stands before a parenthesis without being the name of a function.
NO_NAME = CLASS_KEYS | {
    "alignas", "asm", "auto", "bool", "char", "const", "decltype", "double", "explicit", "float", "int", "long",
    "noexcept", "requires", "short", "sizeof", "static_assert", "throw", "unsigned", "void"}


def tokens_of(text):
    """The tokens without comments and preprocessor lines. All strings are the same token."""
    line_ends = [match.start() for match in re.finditer("\n", text)]
    tokens = []
    for match in TOKENS.finditer(text):
        if match.lastgroup != "skipped":
            word = match["token"] or '""'
            tokens.append(Token(word, bisect.bisect_left(line_ends, match.start()) + 1))
    return tokens


def pairs_of(tokens):
    """The index of the closing bracket by that of the opening one."""
    pairs, opened = {}, []
    for index, (text, line) in enumerate(tokens):
        if text in "([{":
            opened.append(index)
        elif text in ")]}":
            if not opened or CLOSING[tokens[opened[-1]].text] != text:
                raise Unreadable(f"line {line}: this {text} closes nothing")
            pairs[opened.pop()] = index
    if opened:
        raise Unreadable(f"line {tokens[opened[-1]].line}: nothing closes this {tokens[opened[-1]].text}")
    return pairs


def is_word(item):
    return isinstance(item, Token) and WORD.match(item.text) is not None


def is_text(item, *texts):
    return isinstance(item, Token) and item.text in texts


def is_group(item, kinds):
    return isinstance(item, Group) and item.kind in kinds


class CppReader:
    """Reads the declarations of one text."""

    def __init__(self, text):
        self.tokens = tokens_of(text)
        self.pairs = pairs_of(self.tokens)
        self.classes, self.functions = [], []
        self.read_scope(0, len(self.tokens), ())

    def read_scope(self, index, end, names):
        """Reads the declarations from `index` to `end`, in the classes `names`. Returns the number
        of methods that they declare; 0 outside of a class."""
        methods, head = 0, []
        while index < end:
            text = self.tokens[index].text
            if text == ";":
                methods += is_method(head, names)
                head = []
                index += 1
            elif text == "{":
                close = self.pairs[index]
                counted, head = self.read_braces(head, index, close, names)
                methods += counted
                index = close + 1
            elif text == ":" and len(head) == 1 and is_text(head[0], *ACCESS):
                head = []
                index += 1
            else:
                item, index = self.read_item(index, head)
                head.append(item)
        return methods

    def read_braces(self, head, index, close, names):
        """Reads what the brace at `index` opens behind `head`. Returns the number of methods that
        it defines, and the head of what follows."""
        if opens_namespace(head):
            self.read_scope(index + 1, close, names)
            return 0, []
        name = class_name(head)
        if name is not None:
            inner = names + tuple(name.split("::"))
            self.classes.append(Class("::".join(inner), self.read_scope(index + 1, close, inner)))
            return 0, []
        if opens_body(head):
            name, line = function_name(head)
            self.functions.append(Function("::".join(names + (name,)), self.tokens[close].line - line + 1))
            return is_method(head, names), []
        return 0, head + [Group("{", self.tokens[index + 1:close])]

    def read_item(self, index, head):
        """The item of a declaration at `index`, and the index behind it. The name of an operator is
        one item, and so is a bracket with its content."""
        token = self.tokens[index]
        if token.text in "([":
            close = self.pairs[index]
            return Group(token.text, self.tokens[index + 1:close]), close + 1
        if token.text == "operator":
            after = index + 1
            if self.tokens[after].text == "(":
                after = self.pairs[after] + 1
            while self.tokens[after].text not in "(;":
                after += 1
            return Token("operator" + "".join(t.text for t in self.tokens[index + 1:after]), token.line), after
        if token.text == "<" and head and is_word(head[-1]):
            close = self.angle_end(index)
            if close is not None:
                return Group("<", self.tokens[index + 1:close]), close + 1
        return token, index + 1

    def angle_end(self, index):
        """The index of the > that closes the < at `index`; None: it is no bracket."""
        depth = 0
        while index < len(self.tokens):
            text = self.tokens[index].text
            if text in "([{":
                index = self.pairs[index]
            elif text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return index
            elif text in ";)]}":
                return None
            index += 1
        return None


def opens_namespace(head):
    if len(head) == 2 and is_text(head[0], "extern") and is_text(head[1], '""'):
        return True
    return any(is_text(item, "namespace") for item in head[:2])


def class_name(head):
    """The name of the class whose body a brace opens behind `head`; None: it opens no class."""
    keys = [i for i, item in enumerate(head) if is_text(item, *CLASS_KEYS)]
    if not keys or any(is_text(item, "enum", "=") for item in head):
        return None
    name = []
    for item in head[keys[-1] + 1:]:
        if is_text(item, ":"):
            break
        if is_word(item) and name and not is_text(name[-1], "::"):
            if item.text == "final":
                break
            if not MACRO.match(name[-1].text):
                return None  # struct Name variable{...}
            name = []
        if is_word(item) or is_text(item, "::"):
            name.append(item)
        elif is_group(item, "(") and not (name and (name[-1].text == "alignas" or MACRO.match(name[-1].text))):
            return None
        elif is_group(item, "("):
            name = []
    return "".join(item.text for item in name) or "(unnamed)"


def parameters_at(head):
    """The index of the parameters of the function that `head` declares; None: it declares none."""
    macro = None
    for index, item in enumerate(head):
        if is_text(item, "="):
            break
        if not is_group(item, "(") or index == 0:
            continue
        before = head[index - 1]
        if is_group(before, "<") and index > 1:
            before = head[index - 2]
        if not isinstance(before, Token) or before.text in NO_NAME or before.text.startswith("__"):
            continue
        if item.tokens and item.tokens[0].text in "*&":
            break  # void (*call)(int)
        if MACRO.match(before.text):
            macro = index if index == 1 else macro
        elif is_word(before) or before.text.startswith("operator"):
            return index
    # TEST(Suite, Name): only a macro can name it.
    return macro


def opens_body(head):
    """Whether a brace behind `head` opens the body of a function."""
    parameters = parameters_at(head)
    if parameters is None or is_text(head[0], "using", "typedef"):
        return False
    if is_text(head[-1], "requires") or (is_group(head[-1], "(") and is_text(head[-2], "requires")):
        return False
    # In `Foo() : a_{1}, b_(2) {` the braces behind the names are initializers.
    initializes = any(is_text(item, ":") for item in head[parameters:])
    return not (initializes and (is_word(head[-1]) or is_group(head[-1], "<")))


def function_name(head):
    """The name of the function that `head` declares, with the classes before it, and its line."""
    parameters = parameters_at(head)
    name = [head[parameters - 1]]
    start = parameters - 1
    if is_group(name[0], "<"):
        start -= 1
        name = [head[start]]
    if parameters == 1 and MACRO.match(name[0].text):
        words = [token.text for token in head[parameters].tokens if WORD.match(token.text)]
        return ".".join(words), name[0].line
    line = name[0].line
    if start > 0 and is_text(head[start - 1], "~"):
        start -= 1
        name.insert(0, Token("~", line))
    while start > 1 and is_text(head[start - 1], "::"):
        start -= 2
        if is_group(head[start], "<") and start > 0:
            start -= 1
        if not is_word(head[start]):
            break
        name[:0] = [head[start], Token("::", line)]
    return "".join(item.text for item in name), line


def is_method(head, names):
    """Whether `head` declares a method of the innermost of the classes `names`."""
    if not names or not head or any(is_text(item, "friend", "using", "typedef") for item in head):
        return False
    parameters = parameters_at(head)
    if parameters is None:
        return False
    if parameters == 1 and MACRO.match(head[0].text) and head[0].text != names[-1]:
        return head[0].text.startswith("MOCK_METHOD")
    last = head[-2:]
    return not (len(last) == 2 and is_text(last[0], "=") and is_text(last[1], "delete", "default"))


def cpp_shape(text):
    """The classes and the functions of C++ text. Raises Unreadable."""
    reader = CppReader(text)
    return reader.classes, reader.functions


def python_shape(text):
    """The classes and the functions of Python text. Raises Unreadable."""
    classes, functions = [], []

    def read(node, names):
        for child in ast.iter_child_nodes(node):
            inner = names
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = names + (child.name,)
            if isinstance(child, ast.ClassDef):
                methods = [part for part in child.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
                classes.append(Class(".".join(inner), len(methods)))
            elif inner is not names:
                functions.append(Function(".".join(inner), child.end_lineno - child.lineno + 1))
            if not isinstance(child, ast.expr):
                read(child, inner)

    try:
        read(ast.parse(text), ())
    except SyntaxError as error:
        raise Unreadable(f"line {error.lineno}: {error.msg}") from error
    return classes, functions
