"""Tests of the checks: each check finds the violation that is planted for it, and nothing in a
clean tree."""

import pathlib
import socket
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import include_arrows
import style
import tour
import tree


def plant(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tree.project_files(root)


@pytest.mark.parametrize("name, line", [
    ("pools/a.cc", '#include "events/event.h"'),
    ("events/a.cc", '#include "kernels/copy.h"'),
    ("manager/a.cc", '#include "engine/engine.h"'),
    ("manager/a.cc", '#include "pagoda/v1/cache.pb.h"'),
    ("engine/a.h", "#include <grpcpp/grpcpp.h>"),
    ("engine/a.h", '#include "absl/status/status.h"\n#  include "server/config/config.h"'),
    ("manager/a.cc", "#include <google/protobuf/message.h>"),
    ("manager/a.cc", '#include "google/rpc/status.pb.h"'),
    ("events/a.cc", "#include <prometheus/registry.h>"),
    ("pools/a.cc", "#include <yaml-cpp/yaml.h>"),
    ("manager/a.cc", "#include <systemd/sd-daemon.h>"),
    ("manager/a.cc", "#include <nlohmann/json.hpp>"),
    ("kernels/cpu/cache/a.cc", '#include "pools/types.h"'),
    ("pools/cuda/a.cc", '#include "pools/pool.h"'),
    ("engine/checkpoint/a.cc", '#include "engine/request/generate.h"'),
    ("engine/serve/a.cc", '#include "clients/pagodactl/parser.h"'),
    ("clients/cpp/a.cc", '#include "server/config/config.h"'),
    ("server/a.cc", '#include "clients/cpp/channel.h"'),
    ("server/a.cc", '#include "tests/pools/fake.h"'),
    ("pools/a.cc", '#include "types.h"'),
    ("pools/a.cc", "#include <pools/types.h>"),
    ("utils/a.cc", "int x;"),
    ("manager/words/a.h", '#include "../tree/prefix_tree.h"'),
    ("manager/words/a.h", '#include "manager/words/../tree/prefix_tree.h"'),
    ("manager/words/a.h", '/* facade */ #include "manager/block_manager.h"'),
    ("manager/words/a.h", '#import "manager/block_manager.h"'),
    ("manager/utils/a.cc", "int x;"),
    ("manager/words/a.h", '#include "manager/tree/prefix_tree.h"'),
    ("manager/tree/a.cc", '#include "manager/block_manager.h"'),
    ("manager/a.cc", '#include "manager/exchange/block_exchange.h"'),
    ("server/config/a.cc", '#include "server/daemon.h"'),
    ("server/callers/a.cc", '#include "server/rpc/grpc_server.h"'),
    ("engine/text/jinja/values/a.cc", '#include "engine/text/jinja/parser/lexer.h"'),
    ("engine/text/jinja/values/a.cc", '#include "engine/text/chat/chat_format.h"'),
    ("engine/text/jinja/utils/a.cc", "int x;"),
])
def test_a_wrong_include_is_found(tmp_path, name, line):
    found = include_arrows.violations(tmp_path, plant(tmp_path, {name: line + "\n"}))
    assert len(found) == 1 and found[0].startswith(name)


@pytest.mark.parametrize("name, line", [
    ("pools/a.cc", '#include "kernels/copy.h"'),
    ("pools/a.cc", "#include <sys/mman.h>"),
    ("events/a.cc", "#include <xxhash.h>"),
    ("manager/a.cc", '#include "absl/status/statusor.h"'),
    ("engine/a.cc", "#include <nlohmann/json.hpp>"),
    ("server/a.cc", "#include <grpcpp/grpcpp.h>"),
    ("server/a.cc", '#include "pagoda/v1/cache.grpc.pb.h"'),
    ("clients/cpp/a.cc", '#include "manager/api/cache_client.h"'),
    ("tests/server/a.cc", '#include "server/config/config.h"'),
    ("manager/tree/a.cc", '#include "manager/words/ids.h"'),
    ("manager/tree/a.cc", '#include "manager/tree/sequence.h"'),
    ("manager/exchange/a.cc", '#include "manager/block_manager.h"'),
    ("server/a.cc", '#include "server/metrics/metrics.h"'),
    ("engine/text/jinja/values/a.cc", '#include "engine/text/encoding/utf8.h"'),
])
def test_a_right_include_is_left_alone(tmp_path, name, line):
    assert include_arrows.violations(tmp_path, plant(tmp_path, {name: line + "\n"})) == []


@pytest.mark.parametrize("count", [30, 31])
def test_a_room_has_at_most_30_files(tmp_path, count):
    files = plant(tmp_path, {f"manager/words/a{number}.h": "int x;\n" for number in range(count)} | {"manager/tree/a.cc": ""})
    found = include_arrows.violations(tmp_path, files)
    assert found == ([] if count == 30 else ["manager/words/: 31 files; 30 are the most in a room"])


def test_an_include_from_the_files_own_folder_is_found(tmp_path):
    files = plant(tmp_path, {"manager/tree/a.h": "int x;\n", "manager/b.cc": '#include "tree/a.h"\n'})
    assert include_arrows.violations(tmp_path, files) == [
        'manager/b.cc:1: #include "tree/a.h": the project\'s own headers are included by their path from the root']


GUARDED = "#ifndef PAGODA_POOLS_A_H_\n#define PAGODA_POOLS_A_H_\n#endif  // PAGODA_POOLS_A_H_\n"


@pytest.mark.parametrize("name, text, word", [
    ("pools/a.cc", "// TO" + "DO: later\n", "reminder"),
    ("pools/a.py", "# FIX" + "ME\n", "reminder"),
    ("pools/a.cc", "int x;\n" * 601, "601 lines"),
    ("pools/b.h", GUARDED, "include guard"),
    ("pools/a.h", "#pragma once\n", "include guard"),
    ("pools/a.cc", "int x; \n", "blanks"),
    ("pools/a.cc", "\tint x;\n", "tab"),
    ("pools/a.cc", "int x;", "newline"),
    ("events/a.cc", "int x;\n", "README"),
    ("pools/a.cc", "std::thread thread_;\n", "starts a thread"),
    ("pools/a.cc", "std::vector<std::jthread> threads_;\n", "starts a thread"),
    ("pools/a.cc", "auto answer = std::async(Work);\n", "starts a thread"),
    ("pools/a.cc", "->check(CLI::PositiveNumber);\n", "use AboveZero"),
    ("pools/cuda/a.cu", "pthread_create(&thread, nullptr, Run, this);\n", "starts a thread"),
])
def test_a_breach_of_style_is_found(tmp_path, name, text, word):
    files = plant(tmp_path, {"README.md": "Pagoda\n", "pools/README.md": "Pools\n", name: text})
    found = style.violations(tmp_path, files)
    assert len(found) == 1 and word in found[0]


def test_clean_files_are_left_alone(tmp_path):
    files = plant(tmp_path, {"pools/README.md": "Pools\n", "pools/a.h": GUARDED, "pools/a.cc": "int x;\n" * 600})
    assert style.violations(tmp_path, files) == []


@pytest.mark.parametrize("name, text, is_found", [
    ("pools/a.cc", "// O" "f the cache.\n", True),
    ("pools/a.cc", "int x = 0;  // A" "s y.\n", True),
    ("pools/a.cc", "int x = 0;  // The size.\n// O" "f y.\n", True),
    ("pools/a.cc", "int x = 0;  // The size.\nint y = 0;  // O" "f x.\n", True),
    ("pools/a.proto", "// A cache.\n//\n// Like" "wise a tier.\n", True),
    ("pools/a.py", "# A" "s above.\n", True),
    ("pools/a.py", '"""O' 'f a pool."""\n', True),
    ("pools/a.cc", "// The size of the cache.\nint x = 0;  // Often 0.\n", False),
    ("pools/a.cc", "// The blocks of one class.\n// O" "f these one is next.\n", False),
    ("pools/a.py", "# The size of the pool.\n", False),
])
def test_a_comment_has_a_subject(tmp_path, name, text, is_found):
    files = plant(tmp_path, {"pools/README.md": "Pools\n", name: text})
    found = style.violations(tmp_path, files)
    assert (len(found) == 1 and "without a subject" in found[0]) if is_found else found == []


@pytest.mark.parametrize("name, line", [
    ("base/thread.cc", "const int failed = pthread_create(&handle, &attributes, RunWork, work.get());"),
    ("base/a.cc", "const unsigned count = std::thread::hardware_concurrency();"),
    ("base/a.cc", "std::this_thread::yield();  // Unlike std::thread it starts none."),
    ("tests/base/a.cc", "std::thread thread([] {});"),
])
def test_code_that_starts_no_thread_of_the_product_is_left_alone(tmp_path, name, line):
    folder = name.split("/")[0]
    files = plant(tmp_path, {f"{folder}/README.md": "Words\n", name: line + "\n"})
    assert style.violations(tmp_path, files) == []


@pytest.mark.parametrize("name, line, word", [
    ("server/cache/a.cc", r'std::cerr << name << "\n";', "passes by Log"),
    ("server/cache/a.cc", r'write(STDERR_FILENO, name.data(), name.size());', "passes by Log"),
    ("clients/pagodactl/a.cc", 'absl::PrintF("%s", name);', "passes by ForTerminal"),
    ("clients/pagodactl/a.cc", r'constexpr char kBold[] = "\x1b[1m";', "passes by ForTerminal"),
    ("clients/command_line/a.cc", 'absl::PrintF("%s", name);', "passes by ForTerminal"),
    ("clients/pagoda_plan/a.cc", 'absl::PrintF("%s", name);', "passes by ForTerminal"),
    ("engine/serve/local/a.cc", "std::fputs(name.c_str(), stdout);", "passes by ForTerminal"),
    ("server/log/log.cc", "write(STDERR_FILENO, line.data(), line.size());", None),
    ("clients/pagodactl/a.cc", 'Print("%s", name);', None),
    ("clients/pagodactl/a.cc", "std::cout << std::snprintf(buffer, size, format);", None),
    ("clients/pagodactl/top/full_screen.cc", r'constexpr char kHome[] = "\x1b[H";', None),
])
def test_text_of_other_processes_reaches_a_terminal_through_one_place(tmp_path, name, line, word):
    folder = name.split("/")[0]
    files = plant(tmp_path, {f"{folder}/README.md": "Words\n", name: line + "\n"})
    found = style.violations(tmp_path, files)
    assert found == [] if word is None else len(found) == 1 and word in found[0]


@pytest.mark.parametrize("code, is_found", [
    ('absl::StrCat("cache ", cache->name, ": ", expired,\n             " sessions closed");', True),
    ('absl::StrCat(count_.of(tenant.value()), " streams are open");', True),
    ('absl::StrCat(*blocks, " blocks are out of quarantine");', True),
    ('absl::StrCat(Counted(expired, "session"), " closed");', False),
    ('absl::StrCat(kMaxTenants, " tenants are possible");', False),
    ('absl::StrCat(tiers.size(), " tiers; at most ", kMaxTiers);', False),
    ('absl::StrCat(tiers.size(), " tiers; a cache has 1 to ", kMaxTiers);', False),
    ('absl::StrCat(tiers.size(), " tiers; a cache has 0 to ", kMaxTiers);', True),
])
@pytest.mark.parametrize("folder", ["server", "manager", "clients"])
def test_a_count_in_a_message_has_a_singular(tmp_path, folder, code, is_found):
    files = plant(tmp_path, {f"{folder}/README.md": "Words\n", f"{folder}/a.cc": f"{code}\n"})
    found = style.violations(tmp_path, files)
    assert (len(found) == 1 and "has no plural" in found[0]) if is_found else found == []


def test_a_test_may_compare_a_count_of_one_with_a_plural(tmp_path):
    files = plant(tmp_path, {"tests/README.md": "Words\n", "tests/a.cc": 'absl::StrCat(count, " tokens");\n'})
    assert style.violations(tmp_path, files) == []


def test_a_check_that_sees_no_files_fails(tmp_path):
    assert tree.report("nothing", tree.project_files(tmp_path), []) == 1


def test_printed_output_may_differ_in_blanks_and_other_lines():
    assert tour.missing_line("hits 12.5 %\nblocks   7", "noise\nhits  12.5 %\nblocks 7\n") is None
    assert tour.missing_line("blocks ... free", "blocks 7 of 9 free\n") is None
    assert tour.missing_line("hits 12 %", "misses 12 %\n") == "hits 12 %"
    assert tour.missing_line("b\na", "a\nb\n") == "a"


@pytest.mark.parametrize("shown, came", [
    ("hits 12.5 %", "hits 12.6 %"),
    ("hits 12.5 %", "hits 112.5 %"),
    ("blocks 7", "blocks 70"),
    ("blocks 1,024", "blocks 1,024,000"),
    ("holds 6144.0", "holds 6144.05"),
    ("389 82 459", "389 82 458"),
    ("at 127.0.0.1:7070", "at 127.0.0.1:7071"),
    ("lru  0  41.50 %  2,151", "lru  0  41.50 %  2,150"),
])
def test_a_number_is_printed_as_shown(shown, came):
    assert tour.missing_line(shown, shown) is None
    assert tour.missing_line(shown, came) == shown


def test_a_time_may_differ_as_machines_do():
    shown = "took 12.00 ms, all"
    for came in ("121 us", "3.5 ms", "11.9 s"):
        assert tour.missing_line(shown, f"took {came}, all") is None
    for came in ("110 us", "12.1 s", "2 min 5 s", "12.00", "3 of 4"):
        assert tour.missing_line(shown, f"took {came}, all") == shown
    assert tour.missing_line("waits 12 us", "waits 9 s") is None, "any machine can stop for a moment"
    assert tour.missing_line("ends in 59 min 59 s", "ends in 58 min 1 s") is None
    assert tour.missing_line("ends in 59 min 59 s", "ends in 3 s") == "ends in 59 min 59 s"
    assert tour.missing_line("at 08:38:30.964", "at 23:01:02.003") is None
    assert tour.missing_line("at 08:38:30.964", "at noon") == "at 08:38:30.964"


def test_a_rate_may_differ_as_machines_do_and_its_line_in_nothing_else():
    for shown, came, other in [("20 tokens, 3064.6 tokens/s", "20 tokens, 99.5 tokens/s", "21 tokens, 3064.6 tokens/s"),
                               ("tokens per second  3064.6", "tokens per second  250000", "tokens per second  2"),
                               ("HITS  OPERATIONS/S\n41.50 %  268,748", "HITS  OPERATIONS/S\n41.50 %  1,000", "HITS  OPERATIONS/S\n41.51 %  268,748")]:
        assert tour.missing_line(shown, shown) is None
        assert tour.missing_line(shown, came) is None
        assert tour.missing_line(shown, other) == shown.splitlines()[-1]
    assert tour.missing_line("HITS  OPERATIONS/S\n1 %  5\n\nblocks 7", "HITS  OPERATIONS/S\n1 %  5\n\nblocks 8") == "blocks 7", "another table"


def test_the_tour_is_cut_into_commands_and_their_output():
    page = "# P\n```yaml\nnot: run\n```\ntext\n```sh\ntrue\n```\n```text\nok\n```\n```sh\nfalse\n```\n"
    assert tour.tour_steps(page) == [("true", "ok"), ("false", "")]


def test_a_port_of_the_tour_that_is_taken_is_found():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        steps = [("true", f"ready: 127.0.0.1:{port}"), ("true", "")]
        assert tour.busy_ports(steps) == []
        taken.listen()
        assert tour.busy_ports(steps) == [port]
