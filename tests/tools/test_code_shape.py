"""Tests of the measurement of classes and functions, and of the caps on their sizes."""

import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import code_shape
import size_caps
import style
import tree


def plant(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tree.project_files(root)


@pytest.mark.parametrize("member", [
    "void F();",
    "virtual int F() const = 0;",
    "explicit C(int x) : x_{x}, y_(x), Base<int>{x} { Run(); }",
    "C();",
    "~C();",
    "C& operator=(const C& other);",
    "bool operator()(int a) const { return a < 3; }",
    "bool operator<(const C& other) const;",
    "explicit operator bool() const;",
    "template <typename T, int N = (3 > 2)> std::map<int, T> F(T t = {}) { return {}; }",
    "[[nodiscard]] static absl::StatusOr<std::vector<int>> F(std::function<void(int)> f = [] {});",
    "void F() ABSL_LOCKS_EXCLUDED(mutex_) { if (x) { } }",
    "decltype(x_) F() requires requires(int t) { t + 1; } { return x_; }",
    "auto F() const -> std::pair<int, int> { return {1, 2}; }",
    "__attribute__((target(\"avx2\"))) int F() noexcept(false);",
    "struct stat StatOf(int file) { return {}; }",
    "MOCK_METHOD(void, F, (int), (override));",
])
def test_a_method_counts(member):
    classes, _ = code_shape.cpp_shape(f"class C final : public B<int> {{\n public:\n  {member}\n  int x_;\n}};\n")
    assert classes == [("C", 1)]


@pytest.mark.parametrize("member", [
    "C(const C&) = delete;",
    "C() = default;",
    "friend bool operator==(const C& a, const C& b) { return true; }",
    "friend class D;",
    "using F = int (*)(int);",
    "typedef void (*F)(int);",
    "static_assert(sizeof(int) == 4);",
    "Status (*call_)(int) = nullptr;",
    "std::function<void(int)> call_ = [](int x) { Run(x); };",
    "std::map<std::vector<int>, Status(int)> calls_;",
    "std::function<void(int)> call_{[](int x) { Run(x); }};",
    "int x_ ABSL_GUARDED_BY(mutex_) = F(3);",
    "std::map<int, std::vector<int>> x_ ABSL_GUARDED_BY(mutex_){{1, {2}}};",
    "alignas(64) std::atomic<int> x_{0};",
    "struct stat stat_{};",
    "decltype(&F) f_;",
    "enum class E : uint8_t { kA = F(1), kB };",
    "// void F();",
    "/* void F(); */",
    "#define F() void G();",
    "static constexpr char kText[] = R\"(\" } void F(); \")\";",
    "static constexpr char kText[] = \"void F(); }\\\" {\";",
    "static constexpr char kBrace = '{'; static constexpr int kBig = 1'000 + Of('}');",
])
def test_what_is_no_method_does_not_count(member):
    classes, functions = code_shape.cpp_shape(f"struct C {{\n  {member}\n}} c;\nvoid G() {{}}\n")
    assert classes == [("C", 0)]
    assert functions[-1] == ("G", 1)


def test_a_nested_class_counts_for_itself():
    text = ("namespace a::b {\nnamespace {\nclass ABSL_LOCKABLE Outer {\n  void F();\n  struct Inner : Base {\n"
            "    void G();\n    void G(int);\n  };\n  union {\n    int x;\n  };\n};\nstruct Outer::Later final {};\n"
            "template <>\nstruct std::hash<Outer> {\n  int operator()(Outer o) { return 0; }\n};\n}\n}\n")
    assert sorted(code_shape.cpp_shape(text)[0]) == [
        ("Outer", 1), ("Outer::(unnamed)", 0), ("Outer::Inner", 2), ("Outer::Later", 0), ("std::hash", 1)]


@pytest.mark.parametrize("text, name, lines", [
    ("int F() {\n  return 1;\n}\n", "F", 3),
    ("template <typename T>\nstd::vector<T>\nF(int a,\n  int b) {\n}\n", "F", 3),
    ("namespace a {\nvoid Foo::Bar() const {\n  auto f = [] {\n    if (x) {}\n  };\n}\n}\n", "Foo::Bar", 5),
    ("template <class T>\nint Foo<T>::Bar() { return 1; }\n", "Foo::Bar", 1),
    ("Foo::~Foo() {\n}\n", "Foo::~Foo", 2),
    ("Foo::Foo(int x)\n    : x_{x},\n      y_(F({1})) {\n}\n", "Foo::Foo", 4),
    ("bool Foo::operator==(const Foo& o) const {\n}\n", "Foo::operator==", 2),
    ("int Foo::operator()(int x) const {\n}\n", "Foo::operator()", 2),
    ("template <class T>\nvoid F(T t)\n  requires requires { t + 1; }\n{\n}\n", "F", 4),
    ("TEST_F(Suite, Name) {\n  F();\n}\n", "Suite.Name", 3),
    ("extern \"C\" int Fuzz(const char* data) {\n}\n", "Fuzz", 2),
    ("extern \"C\" {\nvoid F() {\n}\n}\n", "F", 2),
    ("template <int N>\n__global__ void __launch_bounds__(kThreads, 1) Kernel(Args a) {\n  F<<<1, 2>>>(a);\n}\n", "Kernel", 3),
    ("class C {\n  void F() {\n    // a comment }\n  }\n};\n", "C::F", 3),
    ("const int kTable[] = {1, 2};\nstatic const auto kF = [](int x) { return x; };\nvoid F() {}\n", "F", 1),
    ("void F() {\n#if A\n  G({\n      1,\n  });\n#endif\n}\n", "F", 7),
])
def test_a_function_of_cpp_is_measured(text, name, lines):
    assert code_shape.cpp_shape(text)[1] == [(name, lines)]


@pytest.mark.parametrize("text", ["void F() {\n", "void F() }\n", "int x = (1};\n"])
def test_text_with_unpaired_brackets_is_refused(text):
    with pytest.raises(code_shape.Unreadable, match="line 1"):
        code_shape.cpp_shape(text)


def test_python_is_measured():
    text = ("class C:\n    x = 1\n    @property\n    def f(self):\n        def g():\n            pass\n"
            "        return g\n    async def h(self): pass\ntry:\n    pass\nexcept OSError:\n    def late():\n        pass\n")
    assert code_shape.python_shape(text) == ([("C", 2)], [("C.f", 4), ("C.f.g", 2), ("C.h", 1), ("late", 2)])
    with pytest.raises(code_shape.Unreadable, match="line 1"):
        code_shape.python_shape("def f(:\n")


def class_of(methods):
    return "class Wide {\n" + "".join(f"  void F{i}();\n" for i in range(methods)) + "};\n"


def function_of(lines):
    return "void Long() {\n" + "  F();\n" * (lines - 2) + "}\n"


@pytest.mark.parametrize("name, text, listed, word", [
    ("pools/a.cc", class_of(60), "", None),
    ("pools/a.cc", function_of(70), "", None),
    ("pools/a.cc", class_of(61), "", "pools/a.cc: Wide has 61 methods; split it"),
    ("pools/a.cc", function_of(71), "", "pools/a.cc: Long has 71 lines; split it"),
    ("pools/a.cu", function_of(71), "", "Long has 71 lines"),
    ("pools/a.py", "def long():\n" + "    f()\n" * 70, "", "long has 71 lines"),
    ("pools/a.cc", "void F() {\n", "", "pools/a.cc: line 1: nothing closes this {"),
    ("pools/a.cc", class_of(61), "pools/a.cc Wide 61 methods\n", None),
    ("pools/a.cc", function_of(71), "pools/a.cc Long 71 lines\n", None),
    ("pools/a.cc", class_of(62), "pools/a.cc Wide 61 methods\n", "Wide has 62 methods; it grew"),
    ("pools/a.cc", function_of(72), "pools/a.cc Long 73 lines\n", "lower its number from 73 to 72"),
    ("pools/a.cc", function_of(70), "pools/a.cc Long 71 lines\n", "take out pools/a.cc Long 71"),
    ("pools/a.cc", "int x;\n", "pools/a.cc Long 71 lines\n", "take out pools/a.cc Long 71"),
    ("pools/a.cc", "int x;\n", "pools/b.cc Long 71 lines\n", "take out pools/b.cc Long 71"),
    ("pools/a.cc", "int x;\n", "pools/a.cc Long 71\n", "not `path name size unit`: pools/a.cc Long 71"),
    ("pools/a.cc", function_of(71) + function_of(80), "pools/a.cc Long 80 lines\n", "Long has 71 lines; split it"),
    ("pools/a.cc", function_of(71) + function_of(80), "pools/a.cc Long 80 lines\npools/a.cc Long 71 lines\n", None),
])
def test_what_is_too_large_is_listed_with_its_size(tmp_path, name, text, listed, word):
    files = {"pools/README.md": "Pools\n", "tests/README.md": "Tests\n", name: text, str(size_caps.LIST): listed}
    found = style.violations(tmp_path, plant(tmp_path, files))
    assert found == [] if word is None else len(found) == 1 and word in found[0]


def update_list(root):
    command = [sys.executable, "-B", str(pathlib.Path(style.__file__)), "--update-list", str(root)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_list_follows_a_file_that_moves(tmp_path):
    listed = "pools/b.cc Long 71 lines\npools/b.cc Wide 62 methods\n"
    files = {"pools/README.md": "Pools\n", "tests/README.md": "Tests\n", "pools/a.cc": class_of(61) + function_of(71)}
    plant(tmp_path, files | {str(size_caps.LIST): listed})
    assert update_list(tmp_path).returncode == 0
    text = (tmp_path / size_caps.LIST).read_text()
    assert text.endswith("pools/a.cc Long 71 lines\npools/a.cc Wide 61 methods\n")
    assert style.violations(tmp_path, plant(tmp_path, {})) == []


@pytest.mark.parametrize("listed, word", [
    ("pools/a.cc Long 71 lines\n", "Wide: 61 methods, and 0 before"),
    ("pools/a.cc Long 70 lines\npools/a.cc Wide 61 methods\n", "Long: 71 lines, and 70 before"),
    ("pools/a.cc Long 71 methods\npools/a.cc Wide 61 methods\n", "Long: 71 lines, and 0 before"),
])
def test_the_list_takes_nothing_that_grew(tmp_path, listed, word):
    plant(tmp_path, {"pools/a.cc": class_of(61) + function_of(71), str(size_caps.LIST): listed})
    done = update_list(tmp_path)
    assert done.returncode == 1 and done.stdout.strip() == word
    assert (tmp_path / size_caps.LIST).read_text() == listed
