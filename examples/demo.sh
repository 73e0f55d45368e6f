#!/usr/bin/env bash
# The main job on a real exported model: build at level 1, run, show, and replay one kernel alone.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
rm -rf "$here/out"
mkdir "$here/out"
cd "$here/out"

step() {
  printf '\n$ %s\n' "$*"
  "$@"
}

step python ../model.py model.pt2
step aoti-debug build model.pt2 --level 1
step aoti-debug run model.instrumented.pt2
step aoti-debug show
kernel=$(aoti-debug show --json | python -c '
import json, sys
print(next(l["kernel"] for l in json.load(sys.stdin)["launches"] if l["kernel"].startswith("cpp_fused") and "layer_norm" in l["kernel"]))')
step aoti-debug repro "$kernel" -o repro
step python repro/repro.py
