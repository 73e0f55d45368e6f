"""A run of a model of equal blocks, as language models have: the same lines again and again, in modules that differ."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.abi import Phase
from aoti_debug.package.manifest import Certainty, Kind, Manifest, ModelLine, Provenance, Role, Site
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from tests.factories import JournalWriter, arg, in_home, make_manifest, run_directory, site, statistics, tensor

FILE = "/home/u/models/modeling_llama.py"
BLOCK = "language_model.layers"
ATTENTION = "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu"
HIDDEN, WEIGHT = tensor(2, 16, 64, data_ptr=0x1000), tensor(64, 64, data_ptr=0x2000)


def _site(kernel: str, line: int, modules: tuple[str, ...], read: tuple[str, ...], written: str) -> Site:
    frame = ModelLine(FILE, line, "forward", f"x = self.{modules[-1].rpartition('.')[2]}(x)")
    args = (*(arg(name) for name in read), arg(written, Role.OUT))
    kind = Kind.CPP if kernel.startswith("cpp") else Kind.SHIM_OUT
    return site(kernel, *args, kind=kind, provenance=Provenance(Certainty.EXACT, source=(frame,), modules=modules))


def manifest(blocks: int) -> Manifest:
    """Five launches a block."""
    sites = []
    for n in range(blocks):
        block, buf = f"{BLOCK}.{n}", f"buf{10 * n}"
        norms = (f"{block}.self_attn.o_proj", block, f"{block}.post_attention_layernorm")
        fused = f"cpp_fused__unsafe_view_add_embedding_mean_mul_pow_rsqrt_{n}"
        sites.append(_site(fused, 9, norms, ("arg39_1", f"{buf}_view"), f"{buf}1"))
        for name in ("q_proj", "k_proj"):
            weight = f"language_model_layers_{n}_self_attn_{name}_weight_view"
            modules = (f"{block}.self_attn.{name}",)
            sites.append(_site("aoti_torch_cpu_mm_out", 18, modules, (f"{buf}1_view", weight), f"{buf}_{name}"))
        heads = (f"{block}.self_attn.q_proj", f"{block}.self_attn", f"{block}.self_attn.k_proj")
        sites.append(_site(ATTENTION, 19, heads, (f"{buf}_q_proj", f"{buf}_k_proj"), f"{buf}4"))
        gate = f"language_model_layers_{n}_mlp_gate_proj_weight_view"
        sites.append(_site("aoti_torch_cpu_mm_out", 18, (f"{block}.mlp.gate_proj",), (f"{buf}4", gate), f"{buf}5"))
    return make_manifest(*sites)


def recorded(base: Path, blocks: int = 3) -> RunDir:
    """One call, with the statistics of what each launch writes."""
    package = manifest(blocks)
    writer = JournalWriter(level=2)
    writer.call_begin()
    for number, launched in enumerate(package.sites):
        writer.launch(number, number, *[HIDDEN, WEIGHT][: len(launched.args) - 1], HIDDEN)
        writer.tensor_stats(number, len(launched.args) - 1, Phase.AFTER, statistics(max=number), layout=HIDDEN.layout)
    writer.call_end(launches=len(package.sites))
    writer.run_end()
    return open_run(run_directory(in_home(base), package, writer, exit=Exit(ExitKind.CLEAN, seconds=0.0123)))
