#!/bin/bash
# A C++ compiler that keeps what it has made in the folder COMPILED, and gives it back for the same arguments and files:
# $COMPILER does the work. Names that differ from run to run, the folder COMPILED_FOR and those of scratch folders and
# processes, count as the same.
set -u
output=
previous=
for word in "$@"; do
  [ "$previous" = -o ] && output=$word
  previous=$word
done
[ -n "$output" ] && [ "$output" != - ] || exec "$COMPILER" "$@"
alike() { sed -E "s|$COMPILED_FOR||g; s|scratch/[0-9]+-[a-z0-9_-]+|scratch|g; s|/tmp[a-z0-9_]{8}/|/tmp/|g"; }
key=$({
  printf '%s\n' "$@" | alike
  for word in "$@"; do
    case $word in
      "$output") ;;
      *.cpp | *.c | *.h | *.S | *.map) [ -f "$word" ] && alike < "$word" ;;
      *.o | *.a) case $word in "$COMPILED_FOR"*) [ -f "$word" ] && cat "$word" ;; esac ;;
    esac
  done
} | sha256sum)
kept=$COMPILED/${key%% *}
if [ ! -f "$kept" ]; then
  "$COMPILER" "$@" || exit
  [ -f "$output" ] || exit 0
  cp "$output" "$kept.$$" && mv "$kept.$$" "$kept"
  exit 0
fi
case $output in
  *.gch | *.pch) exec ln -f "$kept" "$output" ;; # large
esac
exec cp "$kept" "$output"
