"""A model of which parts were rounded, as a result of `precision`."""

from __future__ import annotations

import math

from aoti_debug.base.dtypes import FLOAT_FORMATS
from aoti_debug.compare.measure.output_errors import OutputError, ReturnedElement
from aoti_debug.compare.modules import ModelPart, PartedBy
from aoti_debug.compare.what_if.precision import RoundedModel, RoundedPart, RoundedParts
from aoti_debug.compare.what_if.rounding import Headroom, OtherChoices, OutputEffect
from aoti_debug.runs.rundir.run_directory import RunDir

REFUSED = "0.2 buf7 was not rounded: its memory cannot be written: Input/output error"


def effect(relative: float, other: int = 0, misplaced: int = 0) -> OutputEffect:
    """The change of an output of 32 rows of 100 elements."""
    error = OutputError(
        index=0,
        dtype="float32",
        elements=3200,
        different=int(relative > 0) * 3200,
        relative=relative,
        misplaced=misplaced,
        example=ReturnedElement((31, 7), "inf" if misplaced else "1.25", "1.2512") if relative else None,
    )
    return OutputEffect(error, (32, 100), OtherChoices(32, other))


def rounded_model(run: RunDir, *, kept: int = 2) -> RoundedModel:
    """Three parts, of which the first overflows.

    Args:
        kept: the number of parts that the proposal keeps.
    """
    launches = run.launches[:3]
    names = ("language_model.layers.0.self_attn.softmax", "language_model.layers.0.norm", "language_model.head")
    effects = (effect(math.inf, 3, misplaced=2), effect(0.02, 1), effect(0.0004))
    rooms = (Headroom(2000, 3, 1, 40, 3.5e5), Headroom(1000, 0, 0, 7, 12.0), Headroom(4000, largest=3.25))
    parts = tuple(
        RoundedPart(
            part=ModelPart(name, (launch,)),
            dtypes=("float32",),
            headroom=room,
            effects=(of,),
            refused=(REFUSED,) if of is effects[2] else (),
        )
        for name, launch, room, of in zip(names, launches, rooms, effects, strict=True)
    )
    trials = (RoundedParts((), (effects[0],)), RoundedParts(names[:1], (effect(0.021, 1),)))
    more = (RoundedParts(names[:kept], (effect(0.0004),)),)
    return RoundedModel(
        run=run,
        target=FLOAT_FORMATS["float16"],
        by=PartedBy.MODULE,
        tolerance=0.01,
        parts=parts,
        untouched=("language_model.positions",),
        trials=(*trials, *more),
        noise=0.0,
        runs=7,
        directory=run.path.parent,
    )
