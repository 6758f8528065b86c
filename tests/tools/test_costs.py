"""Tests of costs.py, on a small log of ninja and of ctest."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import costs

NINJA = """# ninja log v5
0\t9000\t1\tmanager/CMakeFiles/pagoda_manager.dir/a.cc.o\taa
0\t2000\t1\tmanager/CMakeFiles/pagoda_manager.dir/a.cc.o\tab
10\t510\t1\ttests/server/CMakeFiles/server_test.dir/Unity/unity_0.cxx.o\tac
20\t120\t1\tproto/gen/pagoda/v1/cache.pb.cc\tad
20\t120\t1\tproto/gen/pagoda/v1/cache.pb.h\tad
20\t120\t1\t/b/proto/gen/pagoda/v1/cache.pb.h\tad
500\t800\t1\tbin/server_test\tae
500\t700\t1\tmanager/libpagoda_manager.a\taf
cut line
"""

CTEST = """      Start  1: manager_test
 1/4 Test  #1: manager_test .....................   Passed    1.50 sec
 2/4 Test #12: wheels ...........................***Skipped   0.02 sec
    Test  #3: sim_test .........................***Failed   30.00 sec
 3/4 Test  #3: sim_test .........................   Passed   20.00 sec
 4/4 Test  #4: slow .............................***Timeout  60.25 sec
"""


def test_a_step_counts_once_as_it_last_ran():
    steps = costs.read_ninja_log(NINJA)
    assert steps["manager/CMakeFiles/pagoda_manager.dir/a.cc.o"] == 2.0
    assert sum(1 for output in steps if "cache.pb" in output) == 1


def test_a_row_is_a_folder_or_a_target():
    steps = costs.read_ninja_log(NINJA)
    by_folder = {owner: round(seconds, 1) for seconds, _, owner in costs.build_rows(steps, "/b")}
    assert by_folder == {"manager": 2.0, "tests/server": 0.5, "links": 0.5, "proto": 0.1}
    by_target = [owner for _, _, owner in costs.build_rows(steps, "/b", "target")]
    assert by_target[0] == "pagoda_manager"
    assert set(by_target) == {"pagoda_manager", "server_test", "libpagoda_manager.a", "proto"}


def test_the_longest_test_comes_first_and_its_last_run_counts():
    assert costs.test_rows(CTEST) == [
        (60.25, "slow", "Timeout"), (20.0, "sim_test", "Passed"), (1.5, "manager_test", "Passed"), (0.02, "wheels", "Skipped")]


def test_prints_both_tables(tmp_path, capsys):
    (tmp_path / ".ninja_log").write_text(NINJA)
    (tmp_path / "tests.log").write_text(CTEST)
    assert costs.main(["--build", str(tmp_path), "--tests", str(tmp_path / "tests.log"), "--rows", "2"]) == 0
    printed = capsys.readouterr().out
    assert "The build: 5 steps, 3 s one after another" in printed
    assert "The tests: 4 tests, 82 s one after another" in printed
    assert "slow (timeout)" in printed and "... and 2 more" in printed and "wheels" not in printed
