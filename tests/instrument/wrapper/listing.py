"""Sites and kernels as text to read, one argument a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aoti_debug.package.manifest import Arg, CType, Form, Kernel, Site, Unrecognised


def listing(sites: Iterable[Site], kernels: Iterable[Kernel] = (), unrecognised: Iterable[Unrecognised] = ()) -> str:
    """All of it, for people and for golden files."""
    lines = [line for site in sites for line in _site(site)]
    lines += [line for kernel in kernels for line in _kernel(kernel)]
    for call in unrecognised:
        lines.append(f"unrecognised {call.function}:{call.line} {call.text}")
        lines += [f"  {call.reason}"] if call.reason else []
    return "".join(f"{line}\n" for line in lines)


def _site(site: Site) -> Iterator[str]:
    yield f"{site.id} {site.kernel} [{site.kind.value}]"
    place = [f"{site.function}:{site.line}"]
    place += [f"subgraph {site.subgraph}"] if site.subgraph else []
    place += [f"loops {site.loops}"] if site.loops else []
    place += [f"stream {site.stream}"] if site.stream else []
    place += [f"op {site.op}"] if site.op else []
    place += [f"launches {' '.join(site.launches)}"] if site.launches else []
    yield "  " + ", ".join(place)
    yield from (f"  {_arg(arg)}" for arg in site.args)
    provenance = site.provenance
    yield (
        f"  {provenance.certainty.value}"
        + (f" {provenance.handle}" if provenance.handle else "")
        + _list(provenance.pre_grad_nodes)
    )
    yield from (f"  at {frame.file}:{frame.line} {frame.text}" for frame in provenance.source)


def _arg(arg: Arg) -> str:
    words = [f"{arg.value}" if arg.element < 0 else f"{arg.value}.{arg.element}", arg.name, arg.form.name.lower()]
    words += [arg.role.name.lower()] if arg.form not in (Form.SCALAR, Form.INTS, Form.STRING) else []
    words += ["fresh"] if arg.fresh else []
    words += ["unread"] if arg.unread else []
    words += [f"-> {arg.referent.name.lower()}"] if arg.referent is not CType.NONE else []
    words += [f"({arg.ctype}{' ' if arg.ctype and arg.param else ''}{arg.param})"] if arg.ctype or arg.param else []
    words += [f"of {arg.base}"] if arg.base and arg.base != arg.name else []
    return " ".join([*words, "=", " ".join(arg.text.split())])


def _kernel(kernel: Kernel) -> Iterator[str]:
    lines = kernel.source.count("\n")
    yield f"kernel {kernel.name} [{kernel.language}] {lines} lines, sha256 {kernel.sha256[:12]}"
    if kernel.language == "triton":
        overlaps = ", overlaps the kernel before it" if kernel.overlaps else ""
        size = f"warps {kernel.num_warps} shared {kernel.shared_bytes}"
        yield f"  {kernel.id} {kernel.cubin} {kernel.mangled} {size}{overlaps}"
        yield "  " + ", ".join(f"{p.ctype or '?'} {p.name}:{p.type.name.lower()}" for p in kernel.params)


def _list(names: tuple[str, ...]) -> str:
    return f" from {' '.join(names)}" if names else ""
