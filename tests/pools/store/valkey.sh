#!/usr/bin/env bash
# tests/pools/store/valkey.sh FOLDER
# Unpacks Valkey 8 from Debian 12's backports into FOLDER, without installing it: 2 MB. The system's
# list of sources stays as it is. Needs the libraries that the package redis-server needs.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
[ ! -x "$folder/usr/bin/valkey-server" ] || exit 0

# The mirror that the system itself uses.
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
         awk '$2 ~ /^(bookworm|stable)$/ && $3 == "main" && !mirror { mirror = $1 } END { print mirror }')
[ -n "$mirror" ] || { echo "$0: the system has no Debian 12 mirror" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/sources" "$work/lists/partial" "$work/cache/archives/partial"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm-backports main" >"$work/sources/valkey.list"
options=(-q -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/sources" -o "Dir::State::Lists=$work/lists"
         -o "Dir::Cache=$work/cache"
         -o APT::Sandbox::User=root -o Acquire::Retries=2)
apt-get "${options[@]}" update
cd "$work"
apt-get "${options[@]}" download valkey-server valkey-tools
for package in valkey-*.deb; do dpkg -x "$package" "$folder"; done
"$folder/usr/bin/valkey-server" --version
