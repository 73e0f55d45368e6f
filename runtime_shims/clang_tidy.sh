#!/usr/bin/env bash
# Checks the runtime with clang-tidy. What packages compile as one translation unit is checked as one: its headers are
# then read once. The kernels are checked as the tests' emulator of a GPU compiles them, for the host.
set -euo pipefail
cd "$(dirname "$0")/.."
units=$(mktemp -d)
trap 'rm -rf "$units"' EXIT

unit() {  # NAME FILE…
  printf "#include \"$PWD/%s\"\n" "${@:2}" > "$units/$1.cpp"
}

readarray -t shared < <(find runtime_shims -name '*.cpp' | grep --invert-match --extended-regexp '/(cuda|interposer|threads)/' | sort)
unit runtime "${shared[@]}"
unit kernels tests/runtime_shims_cuda/emulator/kernels.cpp
files=("$units/runtime.cpp" "$units/kernels.cpp" runtime_shims/interposer/*.cpp)

environment=$(dirname "$(command -v clang-tidy)")/..
for toolkit in "${CUDA_HOME:-/usr/local/cuda}" "$environment"/lib/python3*/site-packages/triton/backends/nvidia; do
  if [ -f "$toolkit/include/cuda.h" ]; then
    unit cuda runtime_shims/cuda/*.cpp
    files+=("$units/cuda.cpp")
    break
  fi
done
if [ ! -f "$units/cuda.cpp" ]; then
  echo "clang-tidy: no cuda.h here (set CUDA_HOME): runtime_shims/cuda/*.cpp are not checked" >&2
fi

headers=$(python -c 'import torch; print(torch.__path__[0] + "/include")' 2> /dev/null || true)
if [ -n "$headers" ]; then
  clang-tidy --quiet --config-file=.clang-tidy runtime_shims/threads/*.cpp -- -std=c++20 "-I$PWD/runtime_shims" \
    -isystem "$headers" -isystem "$headers/torch/csrc/api/include"
else
  echo "clang-tidy: no torch here: runtime_shims/threads/*.cpp are not checked" >&2
fi

printf '%s\n' "${files[@]}" | xargs --max-procs "$(nproc)" -I '{}' \
  clang-tidy --quiet --config-file=.clang-tidy '{}' -- -std=c++17 "-I$PWD/runtime_shims" -isystem "$toolkit/include"
