"""The memory of a recorded launch: storages, and arguments that are views of them, on the devices that are here."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file

from .accesses import Access, CodeLine

ALIGNMENT = 128


@dataclass(frozen=True)
class Storage:
    """A block of memory behind one argument, or behind several that share it.

    Attributes:
        bytes: its size.
        address: where it began, modulo 128.
    """

    name: str
    bytes: int
    address: int
    device: str


@dataclass(frozen=True)
class LaunchArgument:
    """A tensor that the launch takes. `before_<name>.safetensors` holds its values, row-major.

    Attributes:
        role: "in", "out", "in-out" or "unknown".
        stride, offset: in elements; the offset counts from the storage's beginning.
        recorded: False for an output that has no such file: its memory begins as zeros.
    """

    name: str
    role: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    storage: str
    offset: int
    recorded: bool = True

    @property
    def written(self) -> bool:
        """True unless the launch only reads it."""
        return self.role != "in"


@dataclass(frozen=True)
class Result:
    """A tensor that the launch allocates. `after_<name>.safetensors` holds what was recorded."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class Block:
    """A storage in memory, with what lies around it.

    Attributes:
        whole: uint8, guard zones included.
        first: where in `whole` the storage begins (bytes).
        storage, begins: what views of it are made from, and where in that it begins (bytes).
    """

    described: Storage
    whole: torch.Tensor
    first: int
    storage: torch.UntypedStorage
    begins: int

    @property
    def bytes(self) -> torch.Tensor:
        """The storage itself, uint8 [bytes]."""
        return self.whole[self.first : self.first + self.described.bytes]


@dataclass(frozen=True)
class LaunchMemory:
    """The storages of a launch and its arguments, which are views of them; both by name."""

    blocks: dict[str, Block]
    views: dict[str, torch.Tensor]


def memory_of(arguments: Sequence[LaunchArgument], storages: Sequence[Storage], guard: int = 0) -> LaunchMemory:
    """Allocates zeros at the recorded alignments; arguments that shared a storage share it again.

    Args:
        guard: at least so many bytes belong to nothing before and after each storage.

    Raises:
        ValueError: an argument's alignment cannot be had on its device.
    """
    return _viewed(arguments, {s.name: _allocate(s, guard) for s in storages})


def separate_memory(arguments: Sequence[LaunchArgument], storages: Sequence[Storage]) -> LaunchMemory:
    """Allocates each storage separately, ending where the storage ends, so that a sanitizer sees every access past it.

    CUDA allocations are exact where PYTORCH_NO_CUDA_MEMORY_CACHING is set; they are left uninitialised, so that
    uninitialised reads are found.
    """
    return _viewed(arguments, {s.name: _separate(s) for s in storages})


def available_device(name: str) -> str:
    """Returns the device itself, or the first GPU in place of one that this machine lacks. Without any GPU: the name.

    Args:
        name: as torch writes it: "cpu", "cuda:1".
    """
    index = torch.device(name).index or 0
    return "cuda:0" if name.startswith("cuda") and index >= torch.cuda.device_count() > 0 else name


def fill(view: torch.Tensor, values: torch.Tensor) -> None:
    """Copies values to a view, whose elements may overlap where they are repeated."""
    for dim, stride in enumerate(view.stride()):
        if stride == 0 and view.shape[dim] > 1:
            view, values = view.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    view.copy_(values)


def load(path: Path, described: LaunchArgument | Result) -> torch.Tensor:
    """The values in a file, row-major, on the CPU. What safetensors has no dtype for lies there as pairs or as bytes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it does not hold what is described.
    """
    (tensor,) = load_file(path).values()
    if tensor.dtype != described.dtype:
        tensor = tensor.view(described.dtype)
        tensor = tensor.squeeze(-1) if described.dtype.is_complex else tensor
    if tuple(tensor.shape) != described.shape:
        raise ValueError(f"{path} has shape {tuple(tensor.shape)}; {described.name} has {described.shape}")
    return tensor


def _viewed(arguments: Sequence[LaunchArgument], blocks: dict[str, Block]) -> LaunchMemory:
    return LaunchMemory(blocks, {a.name: _view(a, blocks[a.storage]) for a in arguments})


def _allocate(storage: Storage, guard: int) -> Block:
    room = storage.bytes + ALIGNMENT + 2 * guard
    if torch.device(storage.device).type == "cpu":
        whole = torch.from_numpy(numpy.zeros(room, dtype=numpy.uint8))
    else:
        whole = torch.zeros(room, dtype=torch.uint8, device=storage.device)
    first = guard + (storage.address - whole.data_ptr() - guard) % ALIGNMENT
    return _block(storage, whole, first)


def _separate(storage: Storage) -> Block:
    if torch.device(storage.device).type != "cpu":
        whole = torch.empty(storage.address + storage.bytes, dtype=torch.uint8, device=storage.device)
        if whole.data_ptr() % ALIGNMENT:
            return _allocate(storage, 0)
        return _block(storage, whole, storage.address)
    library = ctypes.CDLL(None)
    room, place = storage.address + storage.bytes, ctypes.c_void_p()
    if library.posix_memalign(ctypes.byref(place), ctypes.c_size_t(ALIGNMENT), ctypes.c_size_t(room)):
        raise MemoryError(f"{room} bytes for {storage.name}")
    begin = place.value or 0
    ctypes.memset(begin, 0, room)
    poison = getattr(library, "__asan_poison_memory_region", None)
    if poison is not None:
        poison(ctypes.c_void_p(begin), ctypes.c_size_t(storage.address))
    memory = (ctypes.c_ubyte * room).from_address(begin)
    return _block(storage, torch.from_numpy(numpy.ctypeslib.as_array(memory)), storage.address)


def _block(storage: Storage, whole: torch.Tensor, first: int) -> Block:
    if whole.device.type == "cpu":  # a storage that ends where the recorded one did
        exact = torch.from_numpy(whole.numpy()[first : first + storage.bytes]).untyped_storage()
        return Block(storage, whole, first, exact, 0)
    return Block(storage, whole, first, whole.untyped_storage(), first)


def _view(argument: LaunchArgument, block: Block) -> torch.Tensor:
    skipped, rest = divmod(block.begins, argument.dtype.itemsize)
    if rest:
        raise ValueError(f"{argument.name} cannot have its recorded alignment on {block.whole.device}")
    empty = torch.empty(0, dtype=argument.dtype, device=block.whole.device)
    return empty.set_(block.storage, skipped + argument.offset, argument.shape, argument.stride)


@dataclass(frozen=True)
class Extent:
    """The address range of an argument; ends are exclusive.

    Attributes:
        begin, end: from its first element to its last one.
        storage_begin, storage_end: the storage behind it.
    """

    name: str
    begin: int
    end: int
    storage_begin: int
    storage_end: int
    item_bytes: int

    def words(self) -> list[str | int]:
        """For a message to the parent process; `Extent.from_words` reads them."""
        return list(astuple(self))

    @classmethod
    def from_words(cls, words: Sequence[str]) -> Extent:
        """Reads what `words` wrote."""
        return cls(words[0], *(int(word) for word in words[1:]))

    def element(self, address: int) -> int:
        """The element that an address lies in, from the argument's first one."""
        return (address - self.begin) // self.item_bytes


def extents_of(arguments: Iterable[LaunchArgument], memory: LaunchMemory) -> list[Extent]:
    """Returns the address ranges of the arguments that have elements."""
    extents = []
    for argument in arguments:
        view = memory.views[argument.name]
        if view.numel() == 0:
            continue
        block = memory.blocks[argument.storage]
        begin, item = view.data_ptr(), view.element_size()
        storage = block.whole.data_ptr() + block.first
        extents.append(
            Extent(argument.name, begin, begin + reach(view) * item, storage, storage + block.described.bytes, item)
        )
    return extents


def reach(view: torch.Tensor) -> int:
    """The number of elements from its first one to its last one, gaps included."""
    return 1 + sum((int(size) - 1) * int(step) for size, step in zip(view.shape, view.stride(), strict=True))


def placed(access: Access, address: int, extents: Sequence[Extent]) -> Access:
    """The access with the argument that an address lies in, or else is nearest to; unchanged without arguments."""
    if not extents:
        return access

    def distance(extent: Extent) -> int:
        if address >= extent.end:
            return address - extent.end + 1
        return max(extent.begin - address, 0)

    nearest = min(extents, key=lambda e: (distance(e), e.begin < address < e.end, e.storage_end - e.storage_begin))
    element, count = nearest.element(address), (nearest.end - nearest.begin) // nearest.item_bytes
    beyond = element - count + 1 if element >= count else min(element, 0)
    in_storage = beyond != 0 and nearest.storage_begin <= address < nearest.storage_end
    return replace(access, argument=nearest.name, element=element, elements=count, beyond=beyond, in_storage=in_storage)


def locate_accesses(
    accesses: Sequence[Access], extents: Sequence[Extent], text: Mapping[str, str], named: Mapping[str, str]
) -> Iterator[Access]:
    """Yields one access for each source line and kind: the first one, with the count of all.

    Args:
        text: "repro.py:23" -> the text there.
        named: "repro.py:23" -> the argument whose pointer the access there starts from. Without it, an address belongs
            to the argument that it lies in or is nearest to.
    """
    counts = Counter(_alike(access) for access in accesses)
    for access in dict.fromkeys(accesses):
        count = counts.pop(_alike(access), 0)
        if not count:
            continue
        line = _line(access.source)
        own = [extent for extent in extents if extent.name == named.get(line)]
        told = replace(access, source=_told(access.source, text), count=count)
        wild = access.bytes == 0  # the processor does not say where an address that cannot be one leads
        yield told if access.address is None or wild else placed(told, access.address, own or extents)


def _alike(access: Access) -> Access:
    return replace(access, address=None, thread="", program=None, notes=() if access.address else access.notes)


def _line(source: CodeLine | None) -> str:
    return "" if source is None else f"{source.file}:{source.line}"


def _told(source: CodeLine | None, text: Mapping[str, str]) -> CodeLine | None:
    return None if source is None else replace(source, text=text.get(_line(source), ""))
