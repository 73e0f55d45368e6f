"""Origins of launches: lines of the model, from Python stack traces as text, paths of its modules, and FX nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, takewhile

from aoti_debug.package.manifest import ModelLine, Provenance, Site

_USERS_KERNEL = re.compile(r"triton_kernel_wrapper_mutation(?:_proxy)?(?:_\d+)?\Z")


def is_users_kernel(nodes: Sequence[str]) -> bool:
    """True if the nodes that Inductor has recorded for a launch are those of a Triton kernel that the user wrote.

    The node of the kernel is the first; the others make its arguments.
    """
    return bool(nodes) and _USERS_KERNEL.match(nodes[0]) is not None


def own_nodes(site: Site, sites: Sequence[Site]) -> tuple[str, ...]:
    """The nodes of the graph after Inductor's passes that this launch computes, without those of other launches.

    Inductor lists the nodes of an operator also with the kernels that prepare its arguments, and theirs with the
    operator: a node that is named after an operator belongs only to the launch that calls it, which computes no other.
    """
    nodes = site.provenance.post_grad_nodes
    if called := _called(site):
        return called
    others = {node for other in sites if other.id != site.id for node in _called(other)}
    return tuple(node for node in nodes if node not in others) or nodes


def _called(site: Site) -> tuple[str, ...]:
    """The nodes that are named after the operator: "addmm", "addmm_1" of aten.addmm.out; that of the user's kernel."""
    operator, nodes = _name(site.op), site.provenance.post_grad_nodes
    if not operator:
        return nodes[:1] if is_users_kernel(nodes) else ()
    named = re.compile(rf"{re.escape(operator)}(?:_\d+)?\Z")
    return tuple(node for node in nodes if named.match(node))


def _name(op: str) -> str:
    """The operator without namespace, overload and in-place underscore: index_put of "aten.index_put_.default"."""
    _, _, name = op.replace("::", ".").partition(".")
    return name.partition(".")[0].rstrip("_")


_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>[^\n]*)'
    r'(?:\n(?P<text>(?!\s*File ")[^\n]*))?',
    re.MULTILINE,
)
_TORCH_FILE = re.compile(r"^<|/(?:site|dist)-packages/torch/|/torch/(?:nn|fx|utils|export|_\w+|functional\.py)(?:/|$)")


def frames(stack: str) -> tuple[ModelLine, ...]:
    """Parses the frames of a stack trace, outermost first."""
    return tuple(
        ModelLine(m["file"], int(m["line"]), m["function"].strip(), (m["text"] or "").strip())
        for m in _FRAME.finditer(stack)
    )


def own_frames(stacks: Sequence[str]) -> tuple[ModelLine, ...]:
    """Returns the innermost frame of each stack that is not in torch; each line once."""
    innermost = (
        next((frame for frame in reversed(frames(stack)) if not _TORCH_FILE.search(frame.file)), None)
        for stack in stacks
    )
    return tuple({(f.file, f.line): f for f in innermost if f is not None}.values())


def line_names(provenance: Provenance) -> tuple[str, ...]:
    """The lines of the model's own code through which operations were traced, innermost first: "/home/model.py:23"."""
    own = (
        frame for stack in provenance.stacks for frame in reversed(frames(stack)) if not _TORCH_FILE.search(frame.file)
    )
    return tuple(dict.fromkeys(line.place for line in (*provenance.source, *own)))


def containing(path: str) -> tuple[str, ...]:
    """A module path after those of the modules that contain it: "encoder", "encoder.layers", "encoder.layers.0"."""
    return tuple(accumulate(path.split("."), "{}.{}".format))


def common_module(paths: Sequence[str]) -> str:
    """The path of the innermost module that contains all of these; "" for the model itself."""
    levels = zip(*(path.split(".") for path in paths), strict=False)
    return ".".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels))
