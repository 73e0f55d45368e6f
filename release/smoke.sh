#!/usr/bin/env bash
# Uses an installed aoti-debug as a stranger does, without the checkout: builds, runs and triages a small model.
#
# usage: release/smoke.sh BIN      the folder of the `python` and `aoti-debug` to try
set -euo pipefail
bin="$(cd "$1" && pwd)"
examples="$(cd "$(dirname "$0")/../examples" && pwd)"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
cp "$examples/model.py" "$examples/nan.py" "$scratch"
cd "$scratch"
export PATH="$bin:$PATH" XDG_CACHE_HOME="$scratch/cache" XDG_STATE_HOME="$scratch/state"
unset PYTHONPATH

step() {
  local expected="$1" code=0
  shift
  printf '\n$ %s\n' "$*" >&2
  "$@" || code=$?
  [ "$code" = "$expected" ] || { echo "error: exit code $code, not $expected" >&2; exit 1; }
}

python -c 'import aoti_debug; print(aoti_debug.__file__)' | grep site-packages
step 0 aoti-debug --version
step 0 aoti-debug guide --json-schema triage >triage.schema.json
step 0 aoti-debug doctor
step 0 python model.py model.pt2
step 0 aoti-debug build model.pt2 --level 1
step 0 aoti-debug run model.instrumented.pt2
step 0 aoti-debug show --json >show.json
step 0 aoti-debug repro 0.5 -o repro
step 0 python repro/repro.py
step 0 aoti-debug report
step 0 python nan.py nan.pt2
step 1 aoti-debug triage nan.pt2 --json >triage.json
python - <<'END'
import json
from pathlib import Path

found = json.loads(Path("triage.json").read_text())
schema = json.loads(Path("triage.schema.json").read_text())
assert set(schema["required"]) <= set(found), found
assert (found["kind"], found["text"]) == ("nonfinite", "return (hidden / hidden.sum(-1, keepdim=True)).tanh()"), found
END
echo
echo "the installed aoti-debug works"
