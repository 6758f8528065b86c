"""Faults are planted as their patches say; a patch that does not fit is named."""

import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import plant

CORE = """\
#include "manager/core.h"

void Core::Hold(BlockId id) {
  Block& block = store_[id];
  ++block.refs;
}

void Core::EndHold(BlockId id) {
  Block& block = store_[id];
  --block.refs;
  if (block.refs == 0) Free(id);
}
"""

LOST_DECREMENT = """\
a holder that lets go is still counted

--- a/manager/core.cc
+++ b/manager/core.cc
@@ -8,3 +8,4 @@ void Core::Hold(BlockId id) {
 void Core::EndHold(BlockId id) {
   Block& block = store_[id];
+  if (PAGODA_FAULT(LostDecrement)) return;
   --block.refs;
"""

NEVER_FREED = """\
a block that nobody holds is not freed

--- a/manager/core.cc
+++ b/manager/core.cc
@@ -10,3 +10,3 @@ void Core::EndHold(BlockId id) {
   --block.refs;
-  if (block.refs == 0) Free(id);
+  if (block.refs == 0 && !PAGODA_FAULT(NeverFreed)) Free(id);
 }
"""

LIST = """\
* `NeverFreed`: a block that nobody holds is not
  freed.
  Caught by `ATest.Frees`.
* `LostDecrement`: a holder that lets go is still counted.
  Caught by `ATest.Counts`.
"""


class Tree:
    """A checkout with two faults."""

    def __init__(self, root):
        self.root = root
        self.write("manager/core.cc", CORE)
        self.write("manager/core.h", "class Core;\n")
        self.write("manager/other.cc", "int x;\n")
        self.write("tests/mutation/FAULTS.md", LIST)
        self.patch("LostDecrement", LOST_DECREMENT)
        self.patch("NeverFreed", NEVER_FREED)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, name):
        return (self.root / name).read_text()

    def patch(self, fault, text):
        self.write(f"tests/mutation/faults/{fault}.patch", text)

    def read_patch(self, fault):
        return self.read(f"tests/mutation/faults/{fault}.patch")

    def replace(self, name, old, new):
        assert old in self.read(name)
        self.write(name, self.read(name).replace(old, new))

    def run(self, *arguments):
        return plant.main(["--root", str(self.root), *arguments])

    def planted(self):
        """The planted copy of core.cc, by lines."""
        assert self.run("--out", str(self.root / "out")) == 0
        return self.read("out/manager/core.cc").split("\n")


@pytest.fixture(name="tree")
def tree_fixture(tmp_path):
    return Tree(tmp_path)


def test_all_faults_are_in_one_copy(tree):
    lines = tree.planted()
    assert lines[0] == '#include "tests/mutation/fault.h"'
    assert lines[9:13] == ["  Block& block = store_[id];", "  if (PAGODA_FAULT(LostDecrement)) return;", "  --block.refs;",
                           "  if (block.refs == 0 && !PAGODA_FAULT(NeverFreed)) Free(id);"]
    without = [line for line in lines[1:] if "LostDecrement" not in line]
    assert "\n".join(without).replace(" && !PAGODA_FAULT(NeverFreed)", "") == CORE
    assert tree.read("out/tests/mutation/faults.def") == "X(LostDecrement)\nX(NeverFreed)\n"
    assert not (tree.root / "out/manager/other.cc").exists()
    assert tree.read("manager/core.cc") == CORE


def test_a_tree_whose_patches_fit_has_no_problems(tree, capsys):
    assert tree.run("--check") == 0
    assert capsys.readouterr().out == "2 faults, 0 problems\n"


def test_faults_are_told_in_the_lists_order(tree):
    assert list(plant.read_faults(tree.root)) == ["NeverFreed", "LostDecrement"]


def test_a_copy_that_is_the_same_is_not_written_again(tree):
    tree.planted()
    written = (tree.root / "out/manager/core.cc").stat().st_mtime_ns
    tree.planted()
    assert (tree.root / "out/manager/core.cc").stat().st_mtime_ns == written


def test_a_hunk_is_found_by_its_lines_and_not_by_its_number(tree):
    tree.write("manager/core.cc", "// One more line.\n" * 40 + CORE)
    assert tree.run("--check") == 0
    assert sum("PAGODA_FAULT" in line for line in tree.planted()) == 2


def test_what_two_faults_insert_at_one_place_is_in_the_order_of_their_names(tree):
    tree.patch("Again", LOST_DECREMENT.replace("LostDecrement", "Again"))
    lines = tree.planted()
    assert lines[10:12] == ["  if (PAGODA_FAULT(Again)) return;", "  if (PAGODA_FAULT(LostDecrement)) return;"]
    edits = [plant.Edit(0, 0, "B", ("b",)), plant.Edit(0, 0, "A", ("a",))]
    assert plant.apply(["c"], edits) == ["a", "b", "c"]


def test_a_fault_may_need_several_hunks(tree):
    tree.patch("LostDecrement", LOST_DECREMENT + """\
@@ -1,3 +1,4 @@
 #include "manager/core.h"
+#include "manager/more.h"

 void Core::Hold(BlockId id) {
""")
    assert tree.run("--check") == 0
    assert tree.planted()[:3] == ['#include "tests/mutation/fault.h"', '#include "manager/core.h"', '#include "manager/more.h"']


NEVER = "tests/mutation/faults/NeverFreed.patch"
LOST = "tests/mutation/faults/LostDecrement.patch"


@pytest.mark.parametrize("name, old, new, problem", [
    ("manager/core.cc", "--block.refs", "block.refs--", "LostDecrement.patch: its lines are not in manager/core.cc any more"),
    ("manager/core.cc", CORE, CORE + CORE, "NeverFreed.patch: its lines are 2 times in manager/core.cc"),
    (NEVER, "core.cc", "gone.cc", "NeverFreed.patch: there is no manager/gone.cc"),
    (NEVER, "manager/core.cc", "manager/core.h", "changes manager/core.h; a fault is planted in a .cc"),
    (NEVER, "manager/core.cc", "pools/core.cc", "changes pools/core.cc; a fault is planted in a .cc of manager/ or wire/ring/"),
    (NEVER, "FAULT(NeverFreed)", "FAULT(Other)", "NeverFreed.patch: it plants Other, not NeverFreed once"),
    (NEVER, " && !PAGODA_FAULT(NeverFreed)", " && false", "it plants nothing, not NeverFreed once"),
    (NEVER, "refs == 0 && !", "refs == 0 && !PAGODA_FAULT(NeverFreed) && !", "plants NeverFreed, NeverFreed"),
    (NEVER, "!PAGODA_FAULT(NeverFreed)", "!PAGODA_FAULT(NeverFreed) && PAGODA_FAULT", "plants NeverFreed, PAGODA"),
    (NEVER, "-10,3", "-10,4", "NeverFreed.patch: an '@@' counts its lines wrongly"),
    (NEVER, "is not freed\n\n", "is not freed\n", "NeverFreed.patch: it begins with what goes wrong"),
    (NEVER, "+++ b/manager/core.cc", "+++ b/manager/x.cc", "its '---' and its '+++' name two files"),
    (NEVER, " }\n", " }\n--- a/manager/other.cc\n", "NeverFreed.patch: it changes more than one file"),
    (NEVER, " }\n", " }\nwhat\n", "NeverFreed.patch: no line of a patch: what"),
    (NEVER, " }\n", " }\n@@ -1,1 +1,1 @@\n #include\n", "or a hunk of it, changes nothing"),
    (LOST, "+  if (PAGODA_FAULT(LostDecrement)) return;\n   --block.refs;\n",
     "   --block.refs;\n-  if (block.refs == 0) Free(id);\n+  if (PAGODA_FAULT(LostDecrement)) Free(id);\n",
     "LostDecrement.patch and NeverFreed.patch change one line: if (block.refs == 0) Free(id);"),
    ("tests/mutation/FAULTS.md", "* `NeverFreed`: a block that nobody holds is not\n  freed.\n  Caught by `ATest.Frees`.\n", "", "NeverFreed: not in the list"),
    ("tests/mutation/FAULTS.md", "is not\n  freed", "is\n  freed", "says that a block that nobody holds is freed, NeverFreed.patch that a block"),
    ("tests/mutation/FAULTS.md", "`NeverFreed`", "`AlwaysFreed`", "AlwaysFreed: in the list of tests/mutation/FAULTS.md, and"),
    ("manager/core.cc", "++block.refs;", "if (!PAGODA_FAULT(NotHeld)) ++block.refs;", "manager/core.cc: PAGODA_FAULT is for tests/ alone"),
    ("manager/other.cc", "int x;", '#include "tests/mutation/fault.h"', "manager/other.cc: fault.h is for tests/ alone"),
    ("manager/core.h", "class Core;", '#include "manager/fault.h"', "manager/core.h: fault.h is for tests/ alone"),
    ("manager/other.cc", "int x;", "#ifdef PAGODA_PLANTED_FAULTS", "manager/other.cc: PAGODA_PLANTED_FAULTS is for tests/ alone"),
])
def test_what_does_not_fit_is_found(tree, capsys, name, old, new, problem):
    tree.replace(name, old, new)
    assert tree.run("--check") == 1
    assert problem in capsys.readouterr().out


def test_a_tree_without_faults_has_failed(tree):
    shutil.rmtree(tree.root / plant.FAULTS)
    assert tree.run("--check") == 1
    assert tree.run("--out", str(tree.root / "out")) == 1


def test_nothing_is_written_where_a_patch_does_not_fit(tree, capsys):
    tree.replace("manager/core.cc", "--block.refs", "block.refs--")
    assert tree.run("--out", str(tree.root / "out")) == 1
    assert "LostDecrement.patch" in capsys.readouterr().out
    assert not (tree.root / "out").exists()


def test_refreshed_patches_have_the_trees_numbers_and_more_context(tree):
    tree.write("manager/core.cc", "// One more line.\n" + CORE)
    assert tree.run("--refresh") == 0
    assert tree.read_patch("LostDecrement") == """\
a holder that lets go is still counted

--- a/manager/core.cc
+++ b/manager/core.cc
@@ -7,7 +7,8 @@ void Core::Hold(BlockId id) {
 }

 void Core::EndHold(BlockId id) {
   Block& block = store_[id];
+  if (PAGODA_FAULT(LostDecrement)) return;
   --block.refs;
   if (block.refs == 0) Free(id);
 }
"""
    before = tree.read_patch("NeverFreed")
    assert tree.run("--refresh") == 0 and tree.run("--check") == 0
    assert tree.read_patch("NeverFreed") == before


def test_a_refreshed_patch_has_the_context_that_tells_it_from_its_likes(tree):
    alike = "".join(f"  Step{number}();\n" for number in range(10))
    tree.write("manager/other.cc", f"void First() {{\n{alike}}}\nvoid Second() {{\n{alike}}}\n")
    context = "".join(f" {line}\n" for line in alike.splitlines()[:5])
    tree.patch("NeverFreed", "a block that nobody holds is not freed\n\n--- a/manager/other.cc\n+++ b/manager/other.cc\n@@ -1,1 +1,1 @@\n"
               f" void Second() {{\n{context}+  if (PAGODA_FAULT(NeverFreed)) return;\n   Step5();\n")
    assert tree.run("--check") == 1  # Its '@@' counts wrongly.
    assert tree.run("--refresh") == 0 and tree.run("--check") == 0
    assert " void Second() {\n   Step0();" in tree.read_patch("NeverFreed")


def test_refreshed_patches_follow_code_to_another_file(tree, capsys):
    tree.write("manager/holders/moved.cc", "#include <vector>\n\n" + CORE)
    (tree.root / "manager/core.cc").unlink()
    assert tree.run("--check") == 1
    capsys.readouterr()
    assert tree.run("--refresh") == 0
    assert "NeverFreed.patch: now at manager/holders/moved.cc:13; look whether" in capsys.readouterr().out
    assert "+++ b/manager/holders/moved.cc\n@@ -" in tree.read_patch("LostDecrement")
    assert tree.run("--check") == 0


def test_refreshed_patches_find_their_place_by_a_part_of_their_context(tree, capsys):
    tree.replace("manager/core.cc", "void Core::EndHold(BlockId id)", "void Holders::EndHold(BlockId id, TenantId tenant)")
    assert tree.run("--refresh") == 0
    assert "LostDecrement.patch: now at manager/core.cc:10, by a part of its context; look" in capsys.readouterr().out
    assert tree.run("--check") == 0
    assert "  if (PAGODA_FAULT(LostDecrement)) return;\n  --block.refs;" in "\n".join(tree.planted())


@pytest.mark.parametrize("name, text", [
    ("manager/core.cc", CORE.replace("--block.refs", "block.refs--").replace("  Block&", "  auto&")),
    ("manager/core.cc", CORE + CORE),
    ("manager/core.cc", "int x;\n"),
    ("manager/core.cc", "int x() {\n  return 0;\n}\n"),
])
def test_refreshing_does_not_guess(tree, capsys, name, text):
    before = tree.read_patch("LostDecrement")
    tree.write(name, text)
    assert tree.run("--refresh") == 1
    assert "LostDecrement.patch: no one place in manager/ or wire/ring/ has its lines; edit the patch" in capsys.readouterr().out
    assert tree.read_patch("LostDecrement") == before


def test_refreshing_does_not_choose_between_files(tree):
    (tree.root / "manager/core.cc").unlink()
    tree.write("manager/one.cc", CORE)
    tree.write("manager/two.cc", CORE)
    assert tree.run("--refresh") == 1


def test_a_lone_brace_is_no_place(tree, capsys):
    tree.patch("LostDecrement", LOST_DECREMENT.replace(" void Core::EndHold(BlockId id) {\n   Block& block = store_[id];", " {"))
    tree.write("manager/core.cc", "int x()\n{\n  return 0;\n}\n")
    assert tree.run("--refresh") == 1
    assert "LostDecrement.patch: no one place" in capsys.readouterr().out


def test_the_numbers_of_later_hunks_count_what_earlier_ones_add(tree):
    far = "".join(f"int x{number};\n" for number in range(20))
    tree.replace("manager/core.cc", '#include "manager/core.h"\n', f'#include "manager/core.h"\n{far}')
    tree.patch("LostDecrement", LOST_DECREMENT + "@@ -1,2 +1,3 @@\n #include \"manager/core.h\"\n+int more;\n int x0;\n")
    assert tree.run("--refresh") == 0
    assert "@@ -1,4 +1,5 @@\n" in tree.read_patch("LostDecrement")
    assert "@@ -26,7 +27,8 @@ void Core::Hold(BlockId id) {\n" in tree.read_patch("LostDecrement")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_applies_every_refreshed_patch_alone(tree):
    tree.write("manager/core.cc", "// One more line.\n" * 40 + CORE)
    assert tree.run("--refresh") == 0
    subprocess.run(["git", "init", "-q"], cwd=tree.root, check=True)
    for patch in (tree.root / plant.FAULTS).glob("*.patch"):
        subprocess.run(["git", "apply", "--check", patch], cwd=tree.root, check=True)
