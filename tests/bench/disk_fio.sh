#!/usr/bin/env bash
# tests/bench/disk_fio.sh DISK_BENCH FOLDER
# The slab file's figures, then fio's for the same block sizes and depth. One JSON object a line.
set -euo pipefail
bench=$1 file=$2/pagoda-disk-bench.$$
trap 'rm -f "$file"' EXIT

"$bench" "$file" uring
for block in 128k 1m; do
  for way in write read; do
    fio --name=disk --filename="$file" --size=1g --ioengine=io_uring --direct=1 --bs=$block \
        --iodepth=32 --rw=$way --loops=3 --mem=shm --output-format=json |
      python3 -c '
import json, sys
way, block = sys.argv[1:]
job = json.load(sys.stdin)["jobs"][0]
rate = job[way]["bw_bytes"] / 1e9
print(json.dumps({"figure": f"fio_{way}_{block}", "value": round(rate, 3), "unit": "GB/s"}))' $way $block
  done
done
