"""FX repros: the part of the program's graph that one launch computes, as a script with its recorded tensors."""

from aoti_debug.compare.fx_repro.fx_repro import FxExtra, FxRepro, write_fx_repro

__all__ = ["FxExtra", "FxRepro", "write_fx_repro"]
