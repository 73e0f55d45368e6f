"""The launch that a core file shows: by the frames of the package, by the runtime's memory, and by an address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from aoti_debug.base import wording
from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.native.core_file import CoreFile
from aoti_debug.base.native.crash_stacks import Stack
from aoti_debug.base.native.exception_text import MARK, RaisedException, raised
from aoti_debug.base.native.frames import StackFrame, short_name, thrower_of
from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Manifest, Role, Site
from aoti_debug.package.pt2.archive import AOTINDUCTOR, Artifact
from aoti_debug.runs.diagnosis.dataflow import input_or_weight_name
from aoti_debug.runs.diagnosis.findings import Place, place_of
from aoti_debug.runs.diagnosis.rescue import InputBytes
from aoti_debug.runs.diagnosis.verdict_text import element_text
from aoti_debug.runs.run import running_process
from aoti_debug.runs.run.running_process import PackageState
from aoti_debug.runs.rundir.launch import Argument, Launch

_CALLS = ("torch::aot_inductor::AOTInductorModel::", "run_impl")  # the functions of a wrapper that launch kernels
_MOST_LINES = 24  # of a call in the wrapper
_NEAR = 1 << 30  # bytes
_MOST_MESSAGES = 3
_OVERWRITTEN, _JUNK = 8, 3  # bytes that the allocator writes at least over freed memory, and that may look like text
_OF_RUNNER = "API call failed"
_OF_SYSTEM = ("/usr/", "/lib")
_RUNNER_THROWS = "a launch may have failed before: the runner throws when the model has returned an error"
_READ = (Role.IN, Role.INOUT, Role.UNKNOWN)


def package_states(core: CoreFile) -> tuple[PackageState, ...]:
    """The states that the runtimes of the instrumented packages in the process had written down."""
    pages = (m for m in core.mappings if m.path.startswith(running_process.PAGE_FILE) and m.offset == 0)
    found = (core.read(page.start, running_process.PAGE.size) for page in pages)
    states = (None if page is None else running_process.state_in(page) for page in found)
    return tuple(state for state in states if state is not None)


def packages_in(core: CoreFile) -> tuple[str, ...]:
    """The libraries of packages that the process had loaded, as far as torch had unpacked them."""
    return tuple(path for path in core.files if f"/{AOTINDUCTOR}" in path and path.endswith(".so"))


def library_of(core: CoreFile, package: Artifact, folder: Path) -> str:
    """The path at which the process had mapped the library of a package.

    Where that file is gone, or another one lies there now, the core reads the package's own, which is unpacked.

    Args:
        folder: to unpack it in.

    Raises:
        UsageError: the process had loaded another package.
        ArtifactError: the package is damaged.
    """
    members = [name for name in package.members if name.startswith(AOTINDUCTOR) and name.endswith(".so")]
    for member in members:
        name = PurePosixPath(member).name
        mapped = [path for path in core.files if PurePosixPath(path).name == name]
        if not mapped:
            continue
        own = folder / name
        own.write_bytes(package.read(member))
        for path in mapped:
            if core.is_of(path, own) is not False:
                if not _is_unchanged(core, path):
                    core.replacements[path] = own
                return path
    loaded = packages_in(core)
    names = wording.join_truncated(loaded, 3) if loaded else "no library that torch had unpacked from a package"
    raise UsageError(
        f"{package.path} is not the package of {core.path}: the process had loaded {names}",
        hint="--package: the .pt2 file that the process had loaded, as it was then",
    )


def _is_unchanged(core: CoreFile, path: str) -> bool:
    try:
        return core.is_of(path, Path(path)) is not False
    except OSError:
        return False


@dataclass(frozen=True)
class SiteInCore:
    """The launch site that a stack is in.

    Attributes:
        sites: one, or several that nothing tells apart; none if the thread was in no launch of the package.
        why: how that is known, a sentence.
    """

    sites: tuple[Site, ...]
    why: str

    @property
    def site(self) -> Site | None:
        """The site; None if there are several, or none."""
        return self.sites[0] if len(self.sites) == 1 else None


def site_of(stack: Stack, library: str, manifest: Manifest) -> SiteInCore:
    """The launch site of a package that the frames of a thread are in.

    Args:
        library: that was mapped, or the file that it is read from.
    """
    frames = [frame for frame in stack.frames if PurePosixPath(frame.library).name == PurePosixPath(library).name]
    if not frames:
        return SiteInCore((), f"no frame of thread {stack.thread} is of the package")
    caller = next((frame for frame in frames if _is_call(frame)), None)
    kernels = tuple(site for site in manifest.sites if any(site.callee == short_name(f.function) for f in frames))
    if caller is not None and caller.line:
        found = _at_line(manifest.sites, caller)
        if found is not None:
            return SiteInCore((found,), f"the frame of {_function(caller)} is at {_line(caller)}, which launches it")
    called = kernels or _called(stack, caller, manifest.sites)
    if len(called) == 1:
        return SiteInCore(called, f"{called[0].callee} is on the stack, and the package calls it in one place")
    if called:
        return SiteInCore(called, f"{called[0].callee} is on the stack; the package calls it in {len(called)} places")
    if caller is not None:
        at = f" at {_line(caller)}" if caller.line else ""
        return SiteInCore((), f"the thread was in {_function(caller)}{at}, in no launch")
    return SiteInCore((), f"the thread was in {short_name(frames[0].function) or 'the package'}, in no launch")


def others_in_launches(stacks: Iterable[Stack], guilty: Stack, library: str, manifest: Manifest) -> tuple[str, ...]:
    """A sentence for each further thread that is in a launch: "thread 7 was in mine::op.default, mine::op at op.cpp:9".

    Args:
        library: as of `site_of`.
    """
    found = [(stack, site_of(stack, library, manifest)) for stack in stacks if stack != guilty]
    lines = []
    for stack, inside in found:
        if inside.sites:
            own = (frame.text for frame in stack.frames if frame.file and not frame.file.startswith(_OF_SYSTEM))
            at = next(own, "")
            name = inside.sites[0].op or inside.sites[0].kernel
            lines.append(f"thread {stack.thread} was in {name}{f', {at}' if at else ''}")
    return tuple(lines)


@dataclass(frozen=True)
class Thrown:
    """The exception that ended a process, as far as its core tells.

    Attributes:
        message: of the exception that was raised at a line on the stack; "" if none is known.
        evidence, possible: sentences.
    """

    message: str = ""
    evidence: tuple[str, ...] = ()
    possible: tuple[str, ...] = ()


def thrown(core: CoreFile, stack: Stack) -> Thrown:
    """The exception that a thread ended with, if nothing caught it."""
    thrower = thrower_of(stack.frames)
    if not thrower:
        return Thrown()
    evidence = [f"nothing caught the exception that {thrower} threw"]
    possible = [_RUNNER_THROWS] if "AOTIModelContainerRunner" in thrower else []
    found = [one for text in core.texts(MARK.encode()) if (one := raised(text)) is not None]
    lines = {(PurePosixPath(frame.file).name, frame.line) for frame in stack.frames if frame.file}
    here = _whole(one for one in found if (PurePosixPath(one.file).name, one.line) in lines)
    if len(here) == 1:
        at = f"{PurePosixPath(here[0].file).name}:{here[0].line}"
        evidence.append(f"the memory of the process holds what was raised at {at}: {here[0].message}")
        return Thrown(here[0].message, tuple(evidence), tuple(possible))
    for one in [one for one in here or _whole(found) if _OF_RUNNER not in one.message][:_MOST_MESSAGES]:
        at = f"{one.function} at {PurePosixPath(one.file).name}:{one.line}"
        possible.append(f"the exception may be this, which is in the memory of the process: {one.message} ({at})")
    return Thrown("", tuple(evidence), tuple(dict.fromkeys(possible)))


def _whole(found: Iterable[RaisedException]) -> list[RaisedException]:
    """The exceptions, each once, without what is left of the texts of freed ones, whose beginning was overwritten."""
    each = list(dict.fromkeys(found))
    return [one for one in each if not any(_is_rest(one.message, other.message) for other in each)]


def _is_rest(text: str, whole: str) -> bool:
    """True if a text is the end of another one, but for at most three characters in front of it."""
    ends = (text[index:] for index in range(min(_JUNK, len(text) - 1) + 1))
    return len(whole) - len(text) >= _OVERWRITTEN - _JUNK and any(whole.endswith(end) for end in ends)


def _is_call(frame: StackFrame) -> bool:
    name = short_name(frame.function)
    return name.startswith(_CALLS[0]) and name.endswith(_CALLS[1])


def _function(frame: StackFrame) -> str:
    return short_name(frame.function).rpartition("::")[2]


def _line(frame: StackFrame) -> str:
    """ "wrapper.cpp:941", also of a file whose name begins with a hash."""
    name = PurePosixPath(frame.file).name
    return f"{'wrapper.cpp' if name.endswith('.wrapper.cpp') else name}:{frame.line}"


def _at_line(sites: Sequence[Site], caller: StackFrame) -> Site | None:
    """The site whose call has a line of the wrapper: that of its first line, or of another one of a long call."""
    own = [site for site in sites if site.function == _function(caller) and site.line <= caller.line]
    last = max(own, key=lambda site: site.line, default=None)
    if last is None or [site.line for site in own].count(last.line) > 1:
        return None
    exact = last.line == caller.line
    return last if exact or (last.kind.value == "proxy" and caller.line - last.line < _MOST_LINES) else None


def _called(stack: Stack, caller: StackFrame | None, sites: Sequence[Site]) -> tuple[Site, ...]:
    """The sites whose operator's C function is the frame that the wrapper has called."""
    if caller is None:
        return ()
    position = stack.frames.index(caller)
    inner = {short_name(frame.function) for frame in stack.frames[:position]}
    return tuple(site for site in sites if site.callee in inner)


# An address and the arguments of a launch


@dataclass(frozen=True)
class NearArgument:
    """The argument of a launch that an address lies in or next to.

    Attributes:
        place: of the launch, with the argument; with the element if the address lies in the argument.
        observed: a sentence on where the address lies.
        possible: a sentence on what may have been accessed; "" if there is nothing to add.
    """

    place: Place
    observed: str
    possible: str = ""


def near_argument(
    address: int, launch: Launch, manifest: Manifest, may_be: Callable[[Argument, Tensor], bool] | None = None
) -> NearArgument | None:
    """The argument that an address lies in, or next to; None if the launch has no tensors.

    Args:
        may_be: tells the arguments that the access may have meant. If that is one, it is named however far away the
            address is: an index may be anything.
    """
    tensors = [(a, a.tensor) for a in launch.args if a.tensor is not None and a.tensor.layout.extent_bytes]
    if not tensors:
        return None
    argument, tensor = min(tensors, key=lambda found: _distance(address, found[1]))
    meant = [found for found in tensors if may_be is not None and may_be(*found)]
    if _distance(address, tensor) and meant:
        argument, tensor = min(meant, key=lambda found: _distance(address, found[1]))
    layout, offset = tensor.layout, address - tensor.data_ptr
    name = input_or_weight_name(manifest, argument)
    shown = name or argument.name
    described = f"{shown}, {layout.dtype}[{','.join(map(str, layout.shape))}]"
    if 0 <= offset < layout.extent_bytes:
        element = layout.row_major(offset // layout.item_bytes)
        at = "" if element is None else f", element {element}"
        place = place_of(launch, argument.name, element, name)
        return NearArgument(place, f"address {address:#x} lies in {described}{at}")
    place = place_of(launch, argument.name, None, name)
    behind = offset >= layout.extent_bytes
    distance = wording.byte_size(offset - layout.extent_bytes if behind else -offset)
    observed = f"address {address:#x} lies {distance} {'behind the end' if behind else 'in front'} of {described}"
    if _distance(address, tensor) > _NEAR and len(meant) != 1:
        return NearArgument(place_of(launch), f"address {address:#x} lies near no argument of {launch.id}")
    index = offset // layout.item_bytes
    possible = f"it may be element {index} of {element_text(shown, ())}, which has {layout.numel} elements"
    return NearArgument(place, observed, f"{observed}: {possible}")


def _distance(address: int, tensor: Tensor) -> int:
    """Bytes between an address and a tensor; 0 within it."""
    begin = tensor.data_ptr
    return max(begin - address, address - (begin + tensor.layout.extent_bytes - 1), 0)


# The inputs of a launch


def inputs_in(core: CoreFile, launch: Launch) -> Iterator[InputBytes]:
    """The inputs of a launch that its run did not save, out of the memory of the process on the host."""
    for argument in launch.args:
        tensor = argument.before
        if not isinstance(tensor, Tensor) or argument.role not in _READ or _is_saved(argument):
            continue
        layout = tensor.layout
        data, reason = None, f"the tensor is on {layout.device}"
        if layout.device == "cpu":
            reason = f"{core.path.name} does not hold all of its memory"
            data = core.read(tensor.data_ptr, layout.extent_bytes)
        if layout.kind != "strided":
            data, reason = None, f"its layout is {layout.kind}"
        yield InputBytes(launch, argument.slot, layout, data or b"", "" if data is not None else reason)


def _is_saved(argument: Argument) -> bool:
    saved = argument.files.get(Phase.BEFORE)
    return saved is not None and bool(saved.path)


def may_have_changed(launch: Launch) -> tuple[str, ...]:
    """The names of the arguments that the launch itself may have written before the core was made."""
    return tuple(
        dict.fromkeys(a.name for a in launch.args if a.tensor is not None and a.role in (Role.INOUT, Role.UNKNOWN))
    )


def unknown_package(core: CoreFile) -> ArtifactError | UsageError:
    """The error of a core whose package was not given, and is not known."""
    loaded = packages_in(core)
    if not loaded:
        return ArtifactError(
            f"{core.path} shows no package that the process had loaded",
            hint="--package MODEL.pt2 names the package, if it had one",
        )
    return UsageError(
        f"the package of {core.path} is not known: the process had loaded {wording.join_truncated(loaded, 3)}",
        hint="--package MODEL.pt2 names it",
    )
