#!/usr/bin/env bash
# Builds the sdist and the wheel into dist/, twice in different places, and compares their bytes.
#
# usage: PYTHON=.venv/bin/python release/dist.sh        (PYTHON needs the package build)
set -euo pipefail
top="$(cd "$(dirname "$0")/.." && pwd)"
python="$(command -v "${PYTHON:-python3}")"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

# What is not committed is no part of a release: each build gets a clone of its own.
for number in 1 2; do
  (umask "00$((number * 2))" && git clone --quiet "$top" "$scratch/clone $number" \
    && "$python" -m build --outdir "$scratch/$number" "$scratch/clone $number" >"$scratch/log" 2>&1) \
    || { cat "$scratch/log" >&2; exit 1; }
done
diff <(cd "$scratch/1" && sha256sum -- *) <(cd "$scratch/2" && sha256sum -- *) \
  || { echo "error: two builds of the same commit differ" >&2; exit 1; }

# The wheel above was built from the sdist; one that is built from the checkout holds the same.
git -C "$scratch/clone 1" clean --quiet -xdf
"$python" -m build --wheel --outdir "$scratch/direct" "$scratch/clone 1" >"$scratch/log" 2>&1 \
  || { cat "$scratch/log" >&2; exit 1; }
files() { "$python" -m zipfile -l "$1" | awk 'NR > 1 { print $1, $NF }' | sort; }
diff <(files "$scratch"/1/*.whl) <(files "$scratch"/direct/*.whl) \
  || { echo "error: the wheels of the checkout and of the sdist hold other files" >&2; exit 1; }

mkdir -p "$top/dist"
rm -f "$top"/dist/aoti_debug-*
cp "$scratch"/1/* "$top/dist"
(cd "$top/dist" && sha256sum -- aoti_debug-*)
echo "built twice: the same bytes; the wheel of the checkout holds the same files"
