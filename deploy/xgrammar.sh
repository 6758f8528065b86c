#!/usr/bin/env bash
# deploy/xgrammar.sh FOLDER
# Unpacks the sources of XGrammar 0.2.8 (Apache-2.0) into FOLDER, for the engine's structured
# output: 3 MB from the Python package index that pip uses. Needs python3 with pip. Nothing is
# installed, and nothing of the archive is run.
set -euo pipefail
version=0.2.8
sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80
folder=$(mkdir -p "$1" && cd "$1" && pwd)
[ ! -f "$folder/LICENSE" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# `pip download` would first install the archive's build system, and ask it for the package's name.
# pip's own parts find and fetch the archive alone, with the user's settings of pip.
python3 - "$version" <<'PYTHON'
import sys

from pip._internal.commands import create_command

version = sys.argv[1]
command = create_command("download")
options, _ = command.parse_args(["--no-binary", ":all:", "--retries", "1", "--timeout", "10", "xgrammar"])
with command.main_context():
    session = command.get_default_session(options)
    candidates = command._build_package_finder(options, session).find_all_candidates("xgrammar")
    links = [found.link for found in candidates if str(found.version) == version]
    if not links:
        sys.exit(f"the package index has no sources of xgrammar {version}")
    answer = session.get(links[0].url_without_fragment)
    answer.raise_for_status()
    with open("xgrammar.tar.gz", "wb") as archive:
        archive.write(answer.content)
PYTHON
echo "$sha256  xgrammar.tar.gz" | sha256sum --check --quiet
mkdir unpacked
top=xgrammar-$version
tar --extract --file xgrammar.tar.gz --directory unpacked --strip-components 1 --no-same-owner \
  --exclude $top/cpp/tvm_ffi $top/NOTICE $top/cpp $top/include $top/3rdparty/picojson $top/3rdparty/dlpack/include $top/LICENSE

# Four places of version 0.2.8 let a schema's string have characters that JSON's strings must not
# have: control characters where the length is bounded, quotes and backslashes in two formats, and
# all of them where a pattern is not understood. With these changes, every answer is JSON. The last
# one becomes a warning, for which the engine refuses the schema.
# Its messages are destructors that call our functions. They must not throw while another exception
# passes, and the one of warnings never: the engine ends a compilation by an exception of operator
# new, and the process would end.
python3 - unpacked/cpp <<'PYTHON'
import pathlib
import sys

SCHEMA = (
    (r"""{{'"', '"'}, {'\\', '\\'}, {'\r', '\r'}, {'\n', '\n'}}, true);""",
     r"""{{'"', '"'}, {'\\', '\\'}, {0, 0x1f}}, true);"""),
    (r"""m["email"] = "^(" + dot_string + "|" + quoted_string + ")@" + domain + "$";""",
     r"""m["email"] = "^" + dot_string + "@" + domain + "$";"""),
    (r"""m["json-pointer"] = "^(/([\\x00-\\x2E]|[\\x30-\\x7D]|""",
     r"""m["json-pointer"] = "^(/([\\x20\\x21\\x23-\\x2E]|[\\x30-\\x5B\\x5D-\\x7D]|"""),
    (r""""^(0|[1-9][0-9]*)(#|(/([\\x00-\\x2E]|[\\x30-\\x7D]|""",
     r""""^(0|[1-9][0-9]*)(#|(/([\\x20\\x21\\x23-\\x2E]|[\\x30-\\x5B\\x5D-\\x7D]|"""),
    ("  // Keep regex conversion independent. Only the uncommon fallback path",
     "  if (json_string) XGRAMMAR_LOG(WARNING) << \"the pattern \" << regex << \" is not supported\";\n"
     "  // Keep regex conversion independent. Only the uncommon fallback path"),
)
LOGGING = (
    ("  [[noreturn]] ~LogFatal() noexcept(false) { LogFatalImpl(file_, lineno_, stream_.str()); }",
     "  ~LogFatal() noexcept(false) {\n"
     "    if (std::uncaught_exceptions() == uncaught_) LogFatalImpl(file_, lineno_, stream_.str());\n"
     "  }\n"
     "  const int uncaught_ = std::uncaught_exceptions();"),
    ("  ~LogMessage() { LogMessageImpl(file_, lineno_, level_, stream_.str()); }",
     "  ~LogMessage() {\n"
     "    try {\n"
     "      LogMessageImpl(file_, lineno_, level_, stream_.str());\n"
     "    } catch (...) {\n"
     "    }\n"
     "  }"),
    ("#include <ctime>", "#include <ctime>\n#include <exception>"),
)
for name, changes in (("json_schema_converter.cc", SCHEMA), ("support/logging.h", LOGGING)):
    path = pathlib.Path(sys.argv[1]) / name
    text = path.read_text()
    for old, new in changes:
        if text.count(old) != 1:
            sys.exit(f"{path} does not have once: {old}")
        text = text.replace(old, new)
    path.write_text("// Changed for Pagoda by deploy/xgrammar.sh.\n" + text)
# picojson's licence is the beginning of its header.
parser = (pathlib.Path(sys.argv[1]) / "../3rdparty/picojson/picojson.h").read_text()
(pathlib.Path(sys.argv[1]) / "../picojson.txt").write_text(parser[:parser.index("*/") + 3])
PYTHON
cp -r unpacked/cpp unpacked/include unpacked/3rdparty unpacked/NOTICE unpacked/picojson.txt "$folder/"
# Last: it says that the folder is complete.
cp unpacked/LICENSE "$folder/"
