"""What an instrumented package knows about itself: its launch sites, their arguments, its kernels.

The manifest is plain JSON (`aoti_debug_manifest.json` in the package, `manifest.json` in a run directory). These frozen
dataclasses are its only description; `to_json` and `from_json` are each other's inverse.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from aoti_debug.errors import ArtifactError
from aoti_debug.machine import json_data

FORMAT = 1
MEMBER = "aoti_debug_manifest.json"


class Kind(str, Enum):
    """The form in which a launch is written in the generated C++."""

    CPP = "cpp"  # a generated C++ kernel
    SHIM_OUT = "shim_out"  # a C-shim call into an allocated output
    SHIM_ALLOC = "shim_alloc"  # a C-shim call that allocates its outputs
    SHIM_INPLACE = "shim_inplace"  # bernoulli_, copy_, zero_, index_put, scatter
    CUSTOM_SHIM = "custom_shim"  # a custom operator with a C shim of its own
    PROXY = "proxy"  # an operator behind the proxy executor
    CLONE = "clone"
    ITEM = "item"  # a number read from a tensor
    TRITON = "triton"
    CUTLASS = "cutlass"


class PackageOrigin(str, Enum):
    """What a package was built from."""

    EXPORTED = "exported program"  # lowered and compiled here
    COMPILED = "compiled package"  # its kernels, kernel binaries and weights are the package's own
    STRIPPED = "compiled package without source"  # runs as it is; its launches are seen from outside
    UNCOMPILED = "package of C++ sources"  # kernel binaries and weights are its own; C++ is compiled here


class Form(int, Enum):
    """AotiDebugForm of aoti_debug.h."""

    TENSOR = 0
    OUTPUT_SLOT = 1
    OPTIONAL = 2
    LIST = 3
    OPTIONAL_LIST = 4
    POINTER = 5
    SCALAR = 6
    SCALAR_REF = 7
    INTS = 8
    STRING = 9
    OPAQUE = 10


class Role(int, Enum):
    """AotiDebugRole of aoti_debug.h."""

    NONE = 0
    IN = 1
    OUT = 2
    INOUT = 3
    UNKNOWN = 4


class CType(int, Enum):
    """AotiDebugType of aoti_debug.h."""

    NONE = 0
    BOOL = 1
    I8 = 2
    I16 = 3
    I32 = 4
    I64 = 5
    U8 = 6
    U16 = 7
    U32 = 8
    U64 = 9
    F32 = 10
    F64 = 11
    ADDRESS = 12
    HANDLE = 13


class Certainty(str, Enum):
    """Where a site's provenance comes from."""

    EXACT = "exact"  # Inductor's own record of this launch
    INFERRED = "inferred"  # from neighbouring sites or from the buffers that it writes
    NONE = "none"


@dataclass(frozen=True)
class Arg:
    """One recorded value of a launch (AotiDebugSlot)."""

    name: str  # unique in its launch: "buf4", "l_weight_view", "stride[0]"
    param: str  # the callee's parameter, "" if unknown
    form: Form
    role: Role
    ctype: str  # C type as the callee declares it: "AtenTensorHandle", "int64_t", "const float*"; "" if unknown
    text: str  # the C++ expression that the call passes
    value: int  # which expression of the call
    element: int = -1  # which element of a list, or -1
    base: str = ""  # the buffer or weight behind a view; otherwise the tensor's own variable
    referent: CType = CType.NONE  # what a SCALAR_REF points to


@dataclass(frozen=True)
class ModelLine:
    """A line of the model's source."""

    file: str
    line: int
    function: str
    text: str


@dataclass(frozen=True)
class Provenance:
    certainty: Certainty
    handle: str = ""  # Inductor's key: "aoti_torch_cpu_addmm_out:1"
    source: tuple[ModelLine, ...] = ()  # innermost frames of the model's own code, one a traced stack
    stacks: tuple[str, ...] = ()
    post_grad_nodes: tuple[str, ...] = ()
    pre_grad_nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operand:
    """An argument of an operator behind the proxy executor, in the order of the operator's schema."""

    name: str
    keyword: bool
    value: str  # JSON as torch.export writes it: {"as_float": 1.5}; tensors and integers are in the site's args


@dataclass(frozen=True)
class Site:
    """A call in the generated C++ that launches a kernel (AotiDebugSite)."""

    id: int
    kernel: str  # the name that filters and `repro` match
    kind: Kind
    function: str  # "run_impl" or "_const_run_impl"
    callee: str  # as written: "aoti_torch_cpu_addmm_out", "call_triton_poi_fused_0"
    line: int  # in the generated wrapper, from 1
    args: tuple[Arg, ...]
    provenance: Provenance
    op: str = ""  # "aten.addmm.out", "mylib::op.default"; "" for a generated kernel
    subgraph: str = ""  # "true_graph_0", "while_loop_body_graph_0"
    loops: int = 0  # how many while loops are around it
    launches: tuple[str, ...] = ()  # names of the device kernels that it may start (Triton)
    operands: tuple[Operand, ...] = ()  # of a call through the proxy executor
    results: tuple[str, ...] = ()  # JSON of what that call returns, one a return: {"as_tensors": [{"name": "buf2"}]}
    schema: str = ""  # of a custom operator with a C shim of its own: "mylib::op(Tensor x) -> Tensor"


@dataclass(frozen=True)
class KernelParam:
    name: str
    ctype: str  # "int32_t", "CUdeviceptr"
    type: CType


class Origin(str, Enum):
    """Where a value of a Triton kernel's configuration comes from."""

    RECORDED = "recorded"
    DERIVED = "derived from the launch"  # of the values that are possible, the one that gives its grid and warps
    CHOSEN = "chosen"  # others may fit as well


@dataclass(frozen=True)
class Inferred:
    """A value of a Triton kernel's configuration that is not recorded."""

    name: str  # "XBLOCK"
    origin: Origin


@dataclass(frozen=True)
class Kernel:
    """Source and binary of a generated kernel."""

    name: str  # as sites and `Site.launches` name it
    language: str  # "cpp" or "triton"
    source: str
    sha256: str
    # Triton only:
    id: int = -1  # AotiDebugKernel::id
    mangled: str = ""
    cubin: str = ""  # file name in the package
    num_warps: int = 0
    shared_bytes: int = 0
    params: tuple[KernelParam, ...] = ()
    config: tuple[tuple[str, str], ...] = ()  # what it was compiled with: ("XBLOCK", "128"), as Python source
    global_scratch: int = 0  # bytes that a launch is given besides its arguments
    profile_scratch: int = 0
    cubin_sha256: str = ""
    grid: tuple[tuple[str, str], ...] = ()  # how the wrapper computes it: ("grid_0", "((xnumel + (128 - 1)) / (128))")
    inferred: tuple[Inferred, ...] = ()  # the values of config that are not recorded
    other_configs: tuple[tuple[tuple[str, str], ...], ...] = ()  # that fit what is recorded as well, the likely first
    code_sha256: str = ""  # of its machine code: C++'s in the original library, Triton's in its binary

    def origin(self, name: str) -> Origin:
        """Where a value of `config` comes from."""
        return next((found.origin for found in self.inferred if found.name == name), Origin.RECORDED)


@dataclass(frozen=True)
class Unrecognised:
    """A call that looks like a launch and fits no known form."""

    function: str
    line: int
    text: str


@dataclass(frozen=True)
class KernelCompilation:
    """How the generated C++ kernels were compiled."""

    command: str = ""
    kernel_flags: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Constant:
    """A weight, a buffer or a folded constant of the model."""

    name: str  # the C++ variable: "l_weight"
    fqn: str  # the module's attribute: "l.weight"; "" of a folded constant
    dtype: str  # "float32"
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    folded: bool


@dataclass(frozen=True)
class Promise:
    """What the graph promised of a buffer or of a model's input.

    Sizes and strides (elements) are expressions of symbols as Inductor writes them: "16", "s77", "2*s77"; "" where they
    are not known.
    """

    name: str  # the C++ variable: "buf3", "true_graph_0_buf1"
    device: str  # "cpu", "cuda:0"
    dtype: str  # "float32"
    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    function: str = "run_impl"  # or "_const_run_impl": each has buffers of its own


@dataclass(frozen=True)
class Allocation:
    """Where the memory of a buffer comes from, and whether a run with guards puts zones of known bytes around it."""

    name: str  # the C++ variable: "buf3", "pool0"
    line: int  # in the generated wrapper, from 1; 0 where it is not allocated there
    guarded: bool
    reason: str = ""  # why it has no guards


@dataclass(frozen=True)
class Sameness:
    """Whether the kernels are those of the compiled package that this one was built from.

    Attributes:
        kernels: how many that package has: exported functions of its library, and kernel binaries.
        different: those that are missing here or not the same, sorted.
    """

    kernels: int
    different: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kernels - len(self.different)} of {self.kernels} kernels identical to the original"


@dataclass(frozen=True)
class Manifest:
    format: int
    tool_version: str
    torch_version: str
    device: str  # "cpu" or "cuda"
    level: int
    filters: tuple[str, ...]
    sites: tuple[Site, ...]
    kernels: tuple[Kernel, ...]
    unrecognised: tuple[Unrecognised, ...] = ()
    compiler: KernelCompilation = KernelCompilation()
    imports: tuple[str, ...] = ()  # --import
    libraries: tuple[str, ...] = ()  # --load-library, absolute paths
    source_sha256: str = ""  # of the generated wrapper before instrumentation
    inputs: tuple[str, ...] = ()  # the C++ variables of the model's inputs, in order: "arg5_1"
    input_names: tuple[str, ...] = ()  # as the exported program names them: "index"; empty where that is not known
    constants: tuple[Constant, ...] = ()
    outputs: tuple[str, ...] = ()  # the C++ variable behind each output, in order; "" where that is not known
    promises: tuple[Promise, ...] = ()
    without_promises: str = ""  # why those of some buffers are missing; "" where they are not
    allocations: tuple[Allocation, ...] = ()  # of buffers; GuardDamage::allocation is an index in it
    handed_out: tuple[str, ...] = ()  # variables of branches and loops that are moved into an output
    model: str = "model"  # its name in the package
    source: PackageOrigin = PackageOrigin.EXPORTED
    without_weights: str = ""  # why the package has none for its constants; "" where it has
    other_torch: str = ""  # what tells that another torch than torch_version compiled the original; "" if nothing does
    sameness: Sameness | None = None  # with the compiled package; each kernel's hash is in `kernels`
    without_source: str = ""  # what is not known of a package without the source of its wrapper; "" where it has one
    triton_helpers: str = ""  # Python source of Inductor's functions that the Triton kernels call

    def kernel(self, name: str) -> Kernel | None:
        return next((k for k in self.kernels if k.name == name), None)

    def unmatched(self, filters: Iterable[str]) -> tuple[str, ...]:
        """Those of the patterns (fnmatch, "!" excludes) that match the kernel of no site."""
        kernels = {site.kernel for site in self.sites}
        patterns = ((text, text.removeprefix("!")) for text in filters)
        return tuple(text for text, pattern in patterns if not any(fnmatchcase(k, pattern) for k in kernels))


def to_json(manifest: Manifest) -> str:
    """The manifest as JSON text (UTF-8, one object)."""
    return json_data.to_text(manifest)


def from_json(text: str | bytes) -> Manifest:
    """Parses a manifest.

    Raises:
        ArtifactError: the text is no manifest, or one of another format version.
    """
    try:
        data = json_data.parse_object(text)
        if data.get("format") != FORMAT:
            raise ArtifactError(
                f"the manifest has format {data.get('format')}; this version reads format {FORMAT}",
                hint="build the package again with this version of aoti-debug",
            )
        return json_data.from_data(Manifest, data)
    except json_data.DamagedJsonError as error:
        raise ArtifactError(f"the manifest is damaged: {error}", hint="build the package again") from error
