"""A profile as a table of text."""

from __future__ import annotations

from collections.abc import Iterable

from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.terminal_cells import Column
from aoti_debug.compare.modules import TIME_LEGEND
from aoti_debug.runs.show.text import PlaceColumns, place_columns
from aoti_debug.views.profile.changes import change_lines
from aoti_debug.views.profile.device_calls import MeasuringCost
from aoti_debug.views.profile.device_kernel import DeviceKernel
from aoti_debug.views.profile.model_profile import Clock, ModelProfile, ModuleTime, SiteProfile, hint
from aoti_debug.views.profile.roofline import Peaks

_UNKNOWN = "-"
_STEADY = 0.02  # by which launches and gaps may miss the time of a call
_LAUNCH_COLUMNS = (
    Column("launch", align_right=True),
    Column("time", align_right=True),
    Column("share", align_right=True),
    Column("count", align_right=True, dropped_below=110),
    Column("kernel", min_width=16, share=2),
)
HINT = Column("hint", min_width=30, share=2, dropped_below=160)
_WORK_COLUMNS = (
    Column("bytes", align_right=True, dropped_below=150),
    Column("FLOP", align_right=True, dropped_below=150),
    Column("GB/s", align_right=True, dropped_below=110),
    Column("GFLOP/s", align_right=True, dropped_below=110),
    Column("roofline", align_right=True),
    Column("bound by"),
    HINT,
)
_DEVICE_COLUMNS = (  # of models with Triton kernels
    Column("registers", align_right=True, dropped_below=180),
    Column("shared", align_right=True, dropped_below=180),
    Column("occupancy", align_right=True, dropped_below=130),
    Column("configuration", min_width=12, share=1, dropped_below=200),
)


def profile_lines(profile: ModelProfile, limit: int | None, width: int) -> list[str]:
    """The launches of a profile, the slowest first, and the time between them.

    Args:
        limit: how many sites are shown; None for all.
    """
    shown = profile.sites if limit is None else profile.sites[:limit]
    table = terminal_cells.table(columns(profile), rows(profile, shown), width)
    lines = [*heading(profile, width), "", *table.lines_and_hidden(width), *_hidden(profile, len(shown)), ""]
    lines += sum_lines(profile)
    return lines if profile.changes is None else [*lines, "", *change_lines(profile.changes, call_word(profile), width)]


MODULE_COLUMNS = (
    Column("module", min_width=12, share=2),
    Column("launches", align_right=True),
    Column("time", align_right=True),
    Column("share", align_right=True),
    Column("in launches with", min_width=14, share=2),
)
_MAX_TOGETHER = 4  # modules named


def module_rows(modules: Iterable[ModuleTime]) -> list[list[str | terminal_cells.Cell]]:
    """The cells of modules, under MODULE_COLUMNS."""
    return [
        [
            module.name,
            str(module.launches),
            wording.duration(module.seconds),
            str(module.share),
            terminal_cells.Sentence(wording.join_truncated(module.share.together, _MAX_TOGETHER)),
        ]
        for module in modules
    ]


def profile_lines_by_module(profile: ModelProfile, depth: int | None, width: int) -> list[str]:
    """The modules of a profile, those that take most first, and the time between launches.

    Args:
        depth: the number of names in their paths; None for as many as there are.
    """
    table = terminal_cells.table(MODULE_COLUMNS, module_rows(profile.modules(depth)), width)
    lines = [*heading(profile, width), "", *table.lines_and_hidden(width), ""]
    return [*lines, *sum_lines(profile), *terminal_cells.wrapped(TIME_LEGEND, width)]


def heading(profile: ModelProfile, width: int) -> list[str]:
    """The model, the time of a call, and the machine."""
    one = call_word(profile)
    count = wording.pluralize(len(profile.calls), one)
    lines = [
        f"{profile.model.name}: {wording.duration(profile.wall_seconds)} a {one}, "
        f"{wording.pluralize(profile.launches, 'launch')}; median of {count}{_after(profile)}"
    ]
    facts = [machine_text(profile.peaks)]
    if profile.cost is not None:
        facts.append(cost_text(profile.cost, one))
    if profile.clock is Clock.WAITED:
        facts.append(
            "note: the host waited for the GPU at every launch: each takes some microseconds longer than its kernels, "
            "and nothing overlaps"
        )
    return lines + [line for fact in facts for line in terminal_cells.wrapped(fact, width, "  ")]


def _after(profile: ModelProfile) -> str:
    """ ", after 3 to warm up"; on a GPU some of the calls before are timed without its profiler."""
    if profile.are_replays:
        return ""
    return f", after {profile.warm_up} {'others' if profile.clock is Clock.DEVICE else 'to warm up'}"


def call_word(profile: ModelProfile) -> str:
    """ "call", or "replay"."""
    return "replay" if profile.are_replays else "call"


def cost_text(cost: MeasuringCost, one: str) -> str:
    """A note on what is measured, and what measuring costs.

    Args:
        one: the word for what is measured: "call".
    """
    kind = "replays of a CUDA graph" if one == "replay" else "kernels"
    with_, without = wording.duration(cost.profiled), wording.duration(cost.unprofiled)
    text = f"note: times are those of {kind} on the GPU, by its profiler; with it a {one} takes {with_} until it has "
    text += f"completed, without it {without}"
    if cost.back_to_back is None:
        return text
    return f"{text}, and {wording.duration(cost.back_to_back)} where replays follow one another"


def machine_text(peaks: Peaks) -> str:
    """ "Xeon, 2 threads: 20 GB/s, 150 GFLOP/s in float32"."""
    rates = [f"{peaks.bandwidth / 1e9:.3g} GB/s"]
    rates += [f"{rate / 1e9:.3g} GFLOP/s in {dtype}" for dtype, rate in peaks.flops.items()]
    return f"{peaks.device}: {', '.join(rates)}"


def sum_lines(profile: ModelProfile) -> list[str]:
    """Launches and gaps, and how well their sum fits the time of a call."""
    wall = profile.wall_seconds
    one = call_word(profile)
    rows = [
        ("in launches", profile.launch_seconds, f"{profile.launch_seconds / wall:.1%}"),
        ("between launches", profile.gap_seconds, f"{profile.gap_seconds / wall:.1%}"),
        ("together", profile.launch_seconds + profile.gap_seconds, f"{profile.sum_to_wall:.1%} of a {one}"),
    ]
    if profile.outside_seconds is not None:
        rows.append(("outside the model", profile.outside_seconds, "a call: the loader"))
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{name:<{width}}  {wording.duration(seconds):>10}  {note}" for name, seconds, note in rows]
    if abs(profile.sum_to_wall - 1) > _STEADY:
        longer = "single launches took longer than their median"
        lines.append(f"note: the {one}s differ: {longer}; an idle machine may measure better")
    return lines


def _hidden(profile: ModelProfile, shown: int) -> list[str]:
    lines = []
    if shown < len(profile.sites):
        rest = profile.sites[shown:]
        seconds = wording.duration(sum(site.seconds for site in rest))
        lines.append(f"and {wording.pluralize(len(rest), 'more launch')} of {seconds} together; --all shows them all")
    return lines


def columns(profile: ModelProfile) -> tuple[Column, ...]:
    """The columns of the table of a profile."""
    device = _DEVICE_COLUMNS if _has_device_kernels(profile) else ()
    return (*_LAUNCH_COLUMNS, *_places(profile).columns, *_WORK_COLUMNS, *device)


def _places(profile: ModelProfile) -> PlaceColumns:
    return place_columns(site.site.provenance for site in profile.sites)


def rows(profile: ModelProfile, sites: Iterable[SiteProfile]) -> list[list[str | terminal_cells.Cell]]:
    """The cells of launches of a profile, under its columns."""
    places, has_kernels = _places(profile), _has_device_kernels(profile)
    return [[*_row(site, places), *(device_cells(site.kernel) if has_kernels else ())] for site in sites]


def device_cells(kernel: DeviceKernel | None) -> tuple[str, str, str, str]:
    """Registers of a thread, shared memory of a block, occupancy and its limit, and the configuration."""
    if kernel is None:
        return _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN
    held = kernel.occupancy
    warps = ((f"{kernel.warps} warps",) if kernel.warps else ()) + tuple(f"{n}={value}" for n, value in kernel.config)
    return (
        _UNKNOWN if kernel.registers is None else str(kernel.registers),
        wording.byte_size(kernel.shared),
        _UNKNOWN if held is None else f"{held.share:.0%}, {held.limit.value}",
        ", ".join(warps) or _UNKNOWN,
    )


def _has_device_kernels(profile: ModelProfile) -> bool:
    return any(site.kernel is not None for site in profile.sites)


def _row(site: SiteProfile, places: PlaceColumns) -> list[str | terminal_cells.Cell]:
    work, placement = site.work, site.placement
    return [
        site.launch.id.rpartition(".")[2],
        wording.duration(site.seconds),
        f"{site.share:.1%}",
        str(site.count),
        site.site.kernel,
        *places.cells(site.site.provenance),
        _UNKNOWN if work.bytes is None else wording.byte_size(work.bytes),
        _UNKNOWN if work.flops is None else f"{work.flops:.3g}",
        _rate(work.bytes, site.seconds),
        _rate(work.flops, site.seconds),
        _UNKNOWN if placement is None else f"{placement.share:.0%}",
        _UNKNOWN if placement is None else placement.bound.value,
        terminal_cells.Sentence(hint(site)),
    ]


def _rate(amount: int | None, seconds: float) -> str:
    return _UNKNOWN if amount is None or seconds <= 0 else f"{amount / seconds / 1e9:.3g}"
