"""Loads a model of a package into this process, with weights that lie in the archive or that the package refers to.

It is called through torch's C++ loader: `torch._inductor.package`, which torch's own Python loader imports, takes
longer to import than torch itself, and nothing of it is needed to call a model.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aoti_debug.base.abi import Variable
from aoti_debug.base.errors import ArtifactError, InputMismatch
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.instrument.frontend import compatibility
from aoti_debug.package import weights_file
from aoti_debug.package.inputs import validate
from aoti_debug.package.inputs.signature import Leaf, ModelSignature
from aoti_debug.package.manifest import Manifest
from aoti_debug.package.pt2 import archive, program_weights
from aoti_debug.package.pt2.archive import AOTINDUCTOR, WEIGHTS_CONFIG, Artifact, ArtifactKind
from aoti_debug.package.pt2.program_weights import StoredWeight, mapped, stored_weights
from aoti_debug.package.weights_file import WeightsFile
from aoti_debug.runs.run import required_room

if TYPE_CHECKING:
    import torch


def referenced(package: Artifact, weights: WeightsFile, device: str) -> Mapping[str, torch.Tensor]:
    """The weights of the package's model, by their names in it.

    On the CPU they are mapped: nothing is read before it is used, and what is overwritten is copied page by page.

    Args:
        device: "cpu" or "cuda"; the current device gets a copy of the weights that the model has on a GPU.

    Raises:
        ArtifactError: the file lacks one of them.
    """
    import torch

    here = f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device
    found: dict[str, torch.Tensor] = _tensors(package.read(weights_file.MEMBER))
    path = Path(weights.path)
    stored = stored_weights(path)
    for name, attribute in weights.names.items():
        if attribute not in stored:
            raise ArtifactError(f"{path} has no weight {attribute} that can be mapped", hint="build the package again")
        found[name] = mapped(path, stored[attribute]).to(here)
    return found


_Result = TypeVar("_Result")
_DRIVER = "libcuda.so.1"
_COMPILER = "torch._inductor.package"
_FIRST_WITHOUT_SOURCE = (2, 13)  # the first torch that finds a model's metadata without its C++ source


class LoadedModel:
    """A callable model with the call signature of its exported program.

    Attributes:
        in_spec: the structure of `(args, kwargs)`, as text.
    """

    def __init__(self, loader: Any) -> None:
        """Reads the structure of the inputs and outputs.

        Args:
            loader: a `torch._C._aoti.AOTIModelPackageLoader`.
        """
        from torch.utils import _pytree as pytree

        self._loader = loader
        self.in_spec, out_spec = loader.get_call_spec()
        self._in_spec = pytree.treespec_loads(self.in_spec)
        self._out_spec = pytree.treespec_loads(out_spec)

    def replace_weights(self, weights: Mapping[str, Any]) -> None:
        """Puts tensors in the place of weights and buffers, by their names in the model; the others stay."""
        active, partly = False, False
        self._loader.load_constants(dict(weights), active, partly)

    def replay(self, changes: Sequence[Mapping[str, Any]]) -> None:
        """Gives it weights in several steps, as a script did: of each, the method of the loader and its tensors."""
        active, partly = False, False
        for change in changes:
            getattr(self._loader, change["method"])(change["tensors"], active, partly)

    def use_weights(self, weights: Mapping[str, Any]) -> None:
        """Gives a model without weights all of them, by their names in the model; they are not copied."""
        active, partly, users = False, True, True
        self._loader.load_constants(dict(weights), active, partly, users)

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """The tensors of the arguments of a call, as the loader takes them.

        Raises:
            ValueError: other keyword arguments than those of the export.
        """
        import torch
        from torch.export._tree_utils import reorder_kwargs
        from torch.utils import _pytree as pytree

        leaves, _ = pytree.tree_flatten((tuple(args), reorder_kwargs(dict(kwargs), self._in_spec)))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model.

        Raises:
            ValueError: other keyword arguments than those of the export.
        """
        from torch.utils import _pytree as pytree

        outputs = self._loader.boxed_run(self.tensors(args, kwargs))
        return pytree.tree_unflatten(outputs, self._out_spec)


class Interposer:
    """Records the calls of one model, whose library is loaded into this process later; torch was loaded before.

    Args:
        front, recorder: the libraries that `interposer.prepare` has made for the model.
        device: "cpu" or "cuda".
    """

    def __init__(self, front: str, recorder: str, device: str) -> None:
        self._on_device = device == "cuda"
        # The dynamic linker asks the libraries of the global scope, in this order, before those that the package's
        # library needs. The recorder finds the driver there.
        self._front = ctypes.CDLL(front, mode=ctypes.RTLD_GLOBAL)
        if self._on_device:
            ctypes.CDLL(_DRIVER, mode=ctypes.RTLD_GLOBAL)
        self._recorder = ctypes.CDLL(recorder)
        self._recorder.aoti_debug_interposer_hooks.restype = ctypes.c_void_p
        self._recorder.aoti_debug_interposer_begin.argtypes = (ctypes.c_void_p,)
        self._recorder.aoti_debug_interposer_end.argtypes = (ctypes.c_uint32,)
        self._front.aoti_debug_interposer_attach.argtypes = (ctypes.c_void_p,)
        self._front.aoti_debug_interposer_attach(self._recorder.aoti_debug_interposer_hooks())

    def recorded(self, call: Callable[..., _Result], *args: Any, **kwargs: Any) -> _Result:
        """Calls the model."""
        self._recorder.aoti_debug_interposer_begin(self._stream())
        try:
            result = call(*args, **kwargs)
        except BaseException:
            self._recorder.aoti_debug_interposer_end(1)
            raise
        self._recorder.aoti_debug_interposer_end(0)
        return result

    def _stream(self) -> int | None:
        """The handle of the stream that torch runs the model on; None on a CPU."""
        import torch

        return int(torch.cuda.current_stream().cuda_stream) if self._on_device else None


class Interposed:
    """A model whose calls are recorded. Created after torch is loaded and before the package is."""

    def __init__(
        self, *, front: str, recorder: str, package: str, model: str, device: str, single_threaded: bool = False
    ) -> None:
        self._interposer = Interposer(front, recorder, device)
        self._model = load(archive.inspect(package), model, device, single_threaded=single_threaded)

    @property
    def signature(self) -> ModelSignature:
        """The number of inputs and their structure, which is all that torch keeps of them."""
        from torch.utils import _pytree as pytree

        in_spec = self._model.in_spec
        count = pytree.treespec_loads(in_spec).num_leaves
        return ModelSignature((Leaf(""),) * count, in_spec)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._interposer.recorded(self._model, *args, **kwargs)


def load(package: Artifact, model: str, device: str, *, single_threaded: bool = False) -> LoadedModel:
    """Loads a model, with its weights, onto the current device.

    torch before 2.13 finds the metadata of a model by the name of its C++ source, and cannot load a package without
    any source; such a package is copied and gets an empty source.

    Args:
        single_threaded: one thread calls it, and a CUDA graph can capture that.

    Raises:
        ArtifactError: the package was compiled for another GPU.
    """
    if device == "cuda":
        compatibility.check_this_gpu(package, f"{AOTINDUCTOR}{model}/")
    if not _needs_source() or _has_any_source(package, model):
        return _load(package, package.path, model, single_threaded=single_threaded)
    with cache.scratch() as work:
        return _load(package, with_empty_source(package, model, work), model, single_threaded=single_threaded)


def _needs_source() -> bool:
    import torch

    return bool(torch.__version__ < _FIRST_WITHOUT_SOURCE)


def _has_any_source(package: Artifact, model: str) -> bool:
    folder = f"{AOTINDUCTOR}{model}/"
    return any(name.startswith(folder) and name.endswith(".cpp") for name in package.members)


def with_empty_source(package: Artifact, model: str, directory: Path) -> Path:
    """A copy of the package with an empty C++ source beside each library of a model."""
    copy = directory / package.path.name
    shutil.copyfile(package.path, copy)
    folder = f"{AOTINDUCTOR}{model}/"
    with zipfile.ZipFile(copy, "a") as archive:
        for name in package.members:
            if name.startswith(folder) and name.endswith(".so"):
                archive.writestr(f"{package.root}/{name.removesuffix('.so')}.cpp", "")
    return copy


def load_recorded(package: Artifact, manifest: Manifest, *, single_threaded: bool = False) -> LoadedModel:
    """Loads the model of an instrumented package, with its weights, onto the current device.

    Raises:
        ArtifactError: the package has no weights, or their file has changed; it was compiled for another GPU.
        InputMismatch: the weights that it is given are not laid out as it reads them.
        TargetError: the GPU has no room for the weights.
    """
    is_given = weights_file.REPLACED in package.members
    if manifest.without_weights and not is_given:
        raise ArtifactError(
            f"{package.path} has no weights: {manifest.without_weights}",
            hint="run your own program that loads its weights, with AOTI_DEBUG_LEVEL=3, then: aoti-debug show",
        )
    if manifest.weights is not None:
        program_weights.check(manifest.weights)
    if manifest.device == "cuda":
        _require_device_room(manifest)
    if manifest.packed is not None:
        folder = Path(tempfile.mkdtemp(".weights"))  # among the temporary files of the run
        os.environ[Variable.WEIGHTS.value] = str(folder)  # which the runtime may read while the package is loaded
        write_table(folder, package, manifest, manifest.program)
    model = load(package, manifest.model, manifest.device, single_threaded=single_threaded)
    if manifest.weights is not None:
        tensors = referenced(package, manifest.weights, manifest.device)
        tell_places(manifest.weights, tensors)
        model.use_weights(tensors)
    if is_given:
        replaced = _tensors(package.read(weights_file.REPLACED))
        changes = replaced["changes"]
        given = {name: tensor for change in changes for name, tensor in change["tensors"].items()}
        missing = () if replaced["is_whole"] else validate.missing_weights(given, manifest.constants)
        if mismatches := (*validate.weight_mismatches(given, manifest.constants), *missing):
            raise InputMismatch(mismatches)
        model.replay(changes)
    return model


def _tensors(data: bytes) -> Any:
    """What torch.save has written, with tensors of any GPU on the current one."""
    import torch

    return torch.load(
        io.BytesIO(data),
        weights_only=True,
        map_location=lambda storage, place: storage if place == "cpu" else storage.cuda(),
    )


def _require_device_room(manifest: Manifest) -> None:
    import torch

    device = torch.cuda.current_device()
    free, total = torch.cuda.mem_get_info(device)
    required_room.require_on_device(manifest, free, total, f"cuda:{device}")


def tell_places(weights: WeightsFile, tensors: Mapping[str, torch.Tensor]) -> None:
    """Tells the runtime which weights lie where in the file, so that it refers to those that it would save.

    Args:
        tensors: the weights of the model, by their names in it; others than those of the file may be among them.
    """
    stored = stored_weights(Path(weights.path))
    places = {name: stored[attribute] for name, attribute in weights.names.items() if attribute in stored}
    keys = {
        str(tensor.data_ptr()): places[name]
        for name, tensor in tensors.items()
        if name in places and tensor.stride() == places[name].strides
    }
    if table := _table(weights, keys):
        descriptor, path = tempfile.mkstemp(".weights")  # among the temporary files of the run
        with os.fdopen(descriptor, "w") as file:
            file.write(table)
        os.environ[Variable.WEIGHTS.value] = path


def write_table(folder: Path, package: Artifact, manifest: Manifest, program: WeightsFile | None = None) -> None:
    """Writes where the large weights lie that a package has inside, by the arguments of launches: for the runtime.

    Nothing is written where it has none: the runtime saves all weights.

    Args:
        folder: for the tables of the packages of a process: AOTI_DEBUG_WEIGHTS.
        program: the file that the weights come from; None, or where it is gone or has changed: the package itself.

    Raises:
        OSError: it cannot be written, or the package not be read.
    """
    if manifest.packed is None:
        return
    file, places = _places(package, manifest, program)
    arguments = (argument for site in manifest.sites for argument in site.args)
    named = {argument.name: places.get(argument.base) or places.get(argument.name) for argument in arguments}
    table = _table(file, {f"={name}": place for name, place in named.items() if place is not None})
    if table:
        atomic_write.write(folder / manifest.source_sha256, table)


def _places(
    package: Artifact, manifest: Manifest, program: WeightsFile | None
) -> tuple[WeightsFile, Mapping[str, StoredWeight]]:
    """The file of the weights, and where they lie in it, by their names in the package."""
    if program is not None:
        try:
            program_weights.check(program)
            file = archive.inspect(program.path)
            if file.kind is not ArtifactKind.EXPORTED:
                return program, program_weights.packed_weights(file, manifest)
            stored = stored_weights(file.path)
            return program, {name: stored[of] for name, of in program.names.items() if of in stored}
        except ArtifactError:
            pass
    return program_weights.describe(package.path, {}), program_weights.packed_weights(package, manifest)


def _table(weights: WeightsFile, keys: Mapping[str, StoredWeight]) -> str:
    """The text for the runtime; "" where it cannot say it, or without weights."""
    lines = [f"{key}\t{place.nbytes}\t{place.begin}" for key, place in keys.items()]
    head = f"{weights.path}\t{weights.size}\t{weights.sha256}"
    return "\n".join([head, *lines]) if lines and len(head.split("\t")) == 3 and "\n" not in head else ""


def _load(package: Artifact, path: Path, model: str, *, single_threaded: bool) -> LoadedModel:
    if f"{AOTINDUCTOR}{model}/{WEIGHTS_CONFIG}" not in package.members:
        return load_file(path, model, single_threaded=single_threaded)
    from torch.export.pt2_archive._package import load_pt2

    contents = load_pt2(str(path), run_single_threaded=single_threaded, load_weights_from_disk=True)
    return LoadedModel(contents.aoti_runners[model].loader)


def load_file(path: Path, model: str, *, single_threaded: bool = False) -> LoadedModel:
    """Loads a model of a package, without weights that lie beside it, onto the current device.

    Some operators and types of inputs are only known to torch after its compiler is imported; a package that cannot be
    loaded is loaded again after that.
    """
    try:
        return _load_file(path, model, single_threaded=single_threaded)
    except Exception:
        if _COMPILER in sys.modules:
            raise
    importlib.import_module(_COMPILER)
    return _load_file(path, model, single_threaded=single_threaded)


def _load_file(path: Path, model: str, *, single_threaded: bool) -> LoadedModel:
    import torch

    runners, current_device = 1, -1
    return LoadedModel(
        torch._C._aoti.AOTIModelPackageLoader(str(path), model, single_threaded, runners, current_device)
    )
