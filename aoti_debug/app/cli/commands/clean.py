"""`aoti-debug clean`: deletes what commands have made, and the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_json, print_lines
from aoti_debug.app.made_results import Unwanted, delete, made_results, unwanted
from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine import cache

FORMAT = 1


@click.command("clean")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=options.completing("results"))
@click.option("--all", "all_", is_flag=True, help="Delete everything that `aoti-debug list` names.")
@click.option(
    "--older-than", metavar="DAYS", type=click.FloatRange(min=0), help="Delete what was made longer ago than this."
)
@click.option("--keep", metavar="N", type=click.IntRange(min=1), help="Delete all but the newest N of each kind.")
@click.option("--cache", "of_cache", is_flag=True, help="Empty the cache of this user: the next builds take longer.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@options.json_output("clean")
def command(
    *,
    names: tuple[str, ...],
    all_: bool,
    older_than: float | None,
    keep: int | None,
    of_cache: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete what commands have made here: each NAME that `aoti-debug list` prints, or what the options choose.

    What aoti-debug has not made is never deleted, nor what a process still writes. With --older-than and --keep, the
    newest N of each kind stay in any case. The cache is that of all working directories; every build
    deletes what it has not used for longest, above 2 GiB.
    """
    chosen = {"--all": all_, "--older-than": older_than is not None, "--keep": keep is not None}
    given = [option for option, is_given in chosen.items() if is_given]
    if names and given:
        raise UsageError(f"names and {given[0]} exclude each other", hint=f"leave out {given[0]}, or the names")
    if all_ and len(given) > 1:
        raise UsageError(f"--all and {given[1]} exclude each other", hint=f"leave out --all: {given[1]} is enough")
    if not (names or given or of_cache):
        raise UsageError(
            "nothing is chosen", hint="--all, --older-than DAYS, --keep N, --cache, or names: aoti-debug list"
        )
    found = unwanted(made_results(), Unwanted(names, older_than or 0.0, keep or 0)) if names or given else []
    used = [result for result in found if result.is_in_use]
    sizes = {result: result.bytes or 0 for result in found if result not in used}
    entries = cache.cached_entries(cache.directory()) if of_cache else []
    cached = sum(entry.bytes for entry in entries)
    if not dry_run:
        if names or given:
            delete(sizes)
        cached = sum(cache.delete_entry(entry) for entry in entries)
    freed = sum(sizes.values()) + cached
    if as_json:
        deleted = [{"name": result.name, "bytes": size} for result, size in sizes.items()]
        in_use, of = [result.name for result in used], cached if of_cache else None
        print_json(
            {"format": FORMAT, "dry_run": dry_run, "deleted": deleted, "in_use": in_use, "cache": of, "bytes": freed}
        )
        return
    gone = {result.name: size for result, size in sizes.items()} | ({"cache": cached} if of_cache else {})
    kept = [result.name for result in used]
    print_lines(clean_lines(kept, gone, "would be deleted" if dry_run else "deleted"))


def clean_lines(kept: Sequence[str], gone: Mapping[str, int], done: str) -> list[str]:
    """The names of what is in use and stays, the bytes of each that goes, and their sum.

    Args:
        done: "deleted", "would be deleted".
    """
    lines = [f"{name}  in use: not deleted" for name in kept]
    lines += [f"{name}  {wording.byte_size(size)}" for name, size in gone.items()]
    return [*lines, f"{wording.byte_size(sum(gone.values()))} {done}"]
