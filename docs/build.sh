#!/usr/bin/env bash
# docs/build.sh [--out DIR]
# Makes the manual, a static site: the Markdown files of the tree, and the reference of the proto
# files and of the Python package. Needs no built Pagoda. On Debian 12 it installs missing packages.
#   --out DIR   the folder for everything that this makes; default: build/docs. Its folders source,
#               python, doctrees and html are removed first
# Exit status 0: the site is in DIR/html, and nothing in it gave a warning.
set -euo pipefail
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. deploy/setup.sh

usage() { sed -n '2,7s/^# \{0,1\}//p' docs/build.sh; }

out=$PWD/build/docs
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=${2:?--out needs a folder}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) echo "docs/build.sh: unknown argument '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
# A relative path starts where the script was called.
case $out in /*) ;; *) out=$called_from/$out ;; esac

# autodoc imports the package, so it needs what the package needs.
all_packages=(python3 "${docs_packages[@]}" protobuf-compiler python3-grpcio python3-protobuf python3-numpy)

# The package needs the descriptors of the proto files beside its modules.
copy_package() {
  mkdir -p "$out/python"
  cp -r clients/python/src/pagoda "$out/python/pagoda"
  protoc -Iproto --include_imports --include_source_info \
         --descriptor_set_out="$out/python/pagoda/contract.binpb" \
         proto/pagoda/v1/*.proto proto/google/rpc/error_details.proto
}

write_proto_pages() {
  /usr/bin/python3 -B docs/proto_reference.py "$out/python/pagoda/contract.binpb" \
                      "$out/source/reference/proto"
}

write_site() {
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$out/python:docs" \
    /usr/bin/python3 -m sphinx -W --keep-going -q -b html -c docs -d "$out/doctrees" \
                     "$out/source" "$out/html"
}

install_packages
say "Pagoda: making the manual in $out"
rm -rf "$out/source" "$out/python" "$out/html" "$out/doctrees"
step "package" "read the log: protoc names the line." copy_package
step "pages of the tree" "read the log: it names the file and the link." \
     /usr/bin/python3 -B docs/collect.py "$out/source"
step "pages of the protos" "read the log." write_proto_pages
step "site" "read the log. Each warning names its file; docs/README.md explains the usual ones." \
     write_site
say "To read it, open $out/html/index.html in a browser."
