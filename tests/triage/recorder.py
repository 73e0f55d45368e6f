"""Writes a run as levels 1, 2 and hash record it, of tensors that a test makes up: no model, no runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.abi import Phase, StatsFlag
from aoti_debug.package.argument_values import Number, Tensor, Value
from aoti_debug.package.manifest import Arg, Constant, CType, Form, Kernel, Kind, ProxyArgument, Role, Site
from aoti_debug.runs.rundir.formats import statistics
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site
from tests.operator_schemas import registered
from tests.saved_tensors import described, save, stored, tensor_bytes

if TYPE_CHECKING:
    import torch

_ADDRESS = 0x10000
_SPACE = 0x100000  # bytes between two buffers


@dataclass
class Recorder:
    """A run in the making. A buffer's name decides its address, so that launches share memory as a model's do.

    Attributes:
        inputs, outputs: variables of the model.
        weights: variables that hold weights.
        save: whether the tensors are saved, besides their statistics.
        hashes_only: whether their hashes alone are recorded.
        replays: by captured call, the replay that has measured it, and how many had begun.
    """

    base: Path
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    save: bool = True
    hashes_only: bool = False
    replays: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    journal: JournalWriter = field(default_factory=lambda: JournalWriter(level=2))
    _sites: list[Site] = field(default_factory=list)
    _files: list[tuple[str, str, torch.Tensor]] = field(default_factory=list)
    _memory: dict[str, int] = field(default_factory=dict)
    _launches: dict[int, int] = field(default_factory=dict)

    def launch(
        self,
        kernel: str,
        reads: Mapping[str, torch.Tensor],
        writes: Mapping[str, torch.Tensor],
        *,
        changes: Mapping[str, tuple[torch.Tensor, torch.Tensor]] | None = None,
        numbers: Mapping[str, float] | None = None,
        params: Mapping[str, str] | None = None,
        op: str = "",
        kind: Kind = Kind.SHIM_OUT,
        call: int = 0,
        loops: Sequence[int] = (),
        subgraph: str = "",
        operands: tuple[ProxyArgument, ...] = (),
        line: int = 12,
        read_after: Mapping[str, torch.Tensor] | None = None,
        unread: Sequence[str] = (),
    ) -> str:
        """A launch that returns; its id.

        Args:
            changes: buffers that it reads and writes: (before, after).
            read_after: what `reads` hold after the launch, where something else has written to them.
            unread: those of `writes` that nothing uses.
            params: the kernel's parameter of each buffer; by default those of Inductor's kernels, in order.
        """
        changes, numbers = changes or {}, numbers or {}
        params = params or {
            **{name: f"in_ptr{i}" for i, name in enumerate(reads)},
            **{name: f"out_ptr{i}" for i, name in enumerate(writes)},
            **{name: f"in_out_ptr{i}" for i, name in enumerate(changes)},
        }
        roles = {
            **dict.fromkeys(reads, Role.IN),
            **dict.fromkeys(writes, Role.OUT),
            **dict.fromkeys(changes, Role.INOUT),
        }
        args: list[Arg] = [
            arg(name, role, base=name, param=params[name], unread=name in unread) for name, role in roles.items()
        ]
        args += [arg(name, Role.NONE, Form.SCALAR, param=name) for name in numbers]
        before = {**reads, **writes, **{name: pair[0] for name, pair in changes.items()}}
        after = {**reads, **(read_after or {}), **writes, **{name: pair[1] for name, pair in changes.items()}}
        number = self._launches.get(call, 0)
        self._launches[call] = number + 1
        launches = tuple(known.name for known in self.kernels if known.name == kernel)
        fields: dict[str, Any] = {
            "launches": launches,
            "op": op,
            "kind": kind,
            "subgraph": subgraph,
            "loops": len(loops),
            "operands": operands,
        }
        self._sites.append(site(kernel, *args, line=line, **fields))
        values: list[Value] = [self._value(name, before[name]) for name in roles]
        values += [Number(value, CType.F64) for value in numbers.values()]
        self.journal.launch_begin(number, len(self._sites) - 1, *values, call=call, loops=loops)
        for slot, (name, role) in enumerate(roles.items()):
            self._tensor(call, number, slot, Phase.BEFORE, name, before[name], unset=role is Role.OUT)
        self.journal.launch_end(number, call=call)
        for slot, name in enumerate(roles):
            self._tensor(call, number, slot, Phase.AFTER, name, after[name], unset=False)
        return f"{call}.{number}"

    def take_over(self, name: str, old: str) -> None:
        """Gives a buffer the memory of one that is not used any more."""
        self._memory[name] = self._memory[old]

    def run(self) -> RunDir:
        """The run; the same one when asked again."""
        if (self.base / "latest").exists():
            return open_run(self.base / "latest")
        return open_run(self.write())

    def write(self, **fields: Any) -> Path:
        """Writes the run directory; `fields` are those of factories.run_directory."""
        manifest = replace(
            make_manifest(*self._sites, kernels=self.kernels),
            inputs=self.inputs,
            outputs=self.outputs,
            operators=registered(*sorted({site.op for site in self._sites})),
            constants=tuple(map(self._constant, self.weights)),
        )
        path = run_directory(self.base, manifest, self.journal, **fields)
        for file, name, tensor in self._files:
            (path / file).parent.mkdir(parents=True, exist_ok=True)
            save(path / file, name, tensor)
        return path

    def _constant(self, name: str) -> Constant:
        """A weight with the shape that launches read it in."""
        read = next((tensor for _, saved, tensor in self._files if saved == name), None)
        shape, strides = ((), ()) if read is None else (tuple(read.shape), tuple(read.stride()))
        return Constant(name, name.replace("_", "."), "float32", shape, strides, False)

    def _value(self, name: str, tensor: torch.Tensor) -> Value:
        place = self._memory.setdefault(name, _ADDRESS + _SPACE * len(self._memory))
        found = described(tensor)
        assert isinstance(found, Tensor)
        return replace(found, data_ptr=place)

    def _tensor(
        self, call: int, launch: int, slot: int, phase: Phase, name: str, tensor: torch.Tensor, *, unset: bool
    ) -> None:
        if unset:
            flags = int(StatsFlag.UNINITIALISED)
            self.journal.tensor_stats(launch, slot, phase, None, flags=flags, call=call, replay=self.replays.get(call))
            return
        found = None if self.hashes_only else statistics.tensor_statistics(stored(tensor))
        flags = int(StatsFlag.HASH_ONLY) if self.hashes_only else 0
        integer = int(not tensor.dtype.is_floating_point and not tensor.dtype.is_complex)
        content = int.from_bytes(sha256(tensor_bytes(tensor)).digest()[:8], "big")
        layout = described(tensor).layout
        self.journal.tensor_stats(
            launch,
            slot,
            phase,
            found,
            integer=integer,
            call=call,
            content=content,
            flags=flags,
            layout=layout,
            replay=self.replays.get(call),
        )
        if not self.save or self.hashes_only:
            return
        file = f"tensors/{call}/{launch:04}_{slot}_{phase.name}_{name}.safetensors"
        size = tensor.numel() * tensor.element_size()
        self.journal.tensor_file(launch, slot, phase, file, size=size, call=call, content=content)
        self._files.append((file, name, tensor))
