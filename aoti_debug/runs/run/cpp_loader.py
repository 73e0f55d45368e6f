"""A model in this process, called through torch's C++ loader.

`torch._inductor.package`, which torch's own Python loader imports, takes longer to import than torch itself; nothing of
it is needed to call a model.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_COMPILER = "torch._inductor.package"


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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model.

        Raises:
            ValueError: other keyword arguments than those of the export.
        """
        import torch
        from torch.export._tree_utils import reorder_kwargs
        from torch.utils import _pytree as pytree

        leaves, _ = pytree.tree_flatten((args, reorder_kwargs(kwargs, self._in_spec)))
        outputs = self._loader.boxed_run([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
        return pytree.tree_unflatten(outputs, self._out_spec)


def load(path: Path, model: str, single_threaded: bool = False) -> LoadedModel:
    """Loads a model of a package, without weights that lie beside it, onto the current device.

    Some operators and types of inputs are only known to torch after its compiler is imported; a package that cannot be
    loaded is loaded again after that.

    Args:
        single_threaded: one thread calls it, and a CUDA graph can capture that.
    """
    try:
        return _load(path, model, single_threaded)
    except Exception:
        if _COMPILER in sys.modules:
            raise
    importlib.import_module(_COMPILER)
    return _load(path, model, single_threaded)


def load_with_weights(path: Path, model: str, single_threaded: bool = False) -> LoadedModel:
    """Loads a model of a package together with the weights that lie beside it, onto the current device."""
    from torch.export.pt2_archive._package import load_pt2

    contents = load_pt2(str(path), run_single_threaded=single_threaded, load_weights_from_disk=True)
    return LoadedModel(contents.aoti_runners[model].loader)


def _load(path: Path, model: str, single_threaded: bool) -> LoadedModel:
    import torch

    runners, current_device = 1, -1
    return LoadedModel(
        torch._C._aoti.AOTIModelPackageLoader(str(path), model, single_threaded, runners, current_device)
    )
