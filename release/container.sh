#!/usr/bin/env bash
# In a fresh container of Debian or Ubuntu: adds Python and g++ and nothing else, installs the wheel of dist/, and uses it.
#
# usage: docker run --rm --volume "$PWD:/src:ro" debian:bookworm-slim bash /src/release/container.sh
set -euo pipefail
top="$(cd "$(dirname "$0")/.." && pwd)"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends ca-certificates g++ python3 python3-venv
python3 -m venv /opt/aoti-debug
/opt/aoti-debug/bin/pip install --quiet ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch${TORCH:+==$TORCH}"
/opt/aoti-debug/bin/pip install --quiet --constraint "$top/constraints.txt" "$top"/dist/*.whl
bash "$top/release/smoke.sh" /opt/aoti-debug/bin
