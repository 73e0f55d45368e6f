"""The manifest of an instrumented package: its launch sites, their arguments, its kernels.

It is plain JSON: `aoti_debug_manifest.json` in the package, `manifest.json` in a run directory; `from_json` reads it.
"""

from __future__ import annotations

from enum import Enum
from functools import cached_property, lru_cache

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.wording import printable, truncated
from aoti_debug.package.stream_order import StreamOrder
from aoti_debug.package.weights_file import KernelMatch, PackedWeights, WeightsFile

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
    """The source that a package was built from."""

    EXPORTED = "exported program"  # lowered and compiled here
    COMPILED = "compiled package"  # kernels, kernel binaries and weights are taken from the package
    STRIPPED = "compiled package without source"  # runs as it is; its launches are recorded by symbol interposition
    UNCOMPILED = "package of C++ sources"  # kernel binaries and weights are taken from it; C++ is compiled here


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
    """The reliability of a site's provenance."""

    EXACT = "exact"  # Inductor's own record of this launch
    INFERRED = "inferred"  # from neighbouring sites, or from the buffers that it writes
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
    value: int  # index of the call's expression
    element: int = -1  # index in a list, or -1
    base: str = ""  # the buffer or weight behind a view; otherwise the tensor's own variable
    referent: CType = CType.NONE  # what a SCALAR_REF points to
    fresh: bool = False  # in-out or unknown, and nothing has written its memory before the launch: it holds no data
    unread: bool = False  # an operator allocates it, and nothing uses its values

    @cached_property
    def written(self) -> bool:
        """True if the launch may write it."""
        return self.role in (Role.OUT, Role.INOUT, Role.UNKNOWN) or self.form is Form.OUTPUT_SLOT


@dataclass(frozen=True)
class ModelLine:
    """A line of the model's source."""

    file: str
    line: int
    function: str
    text: str

    @property
    def place(self) -> str:
        """ "/home/u/model.py:23"."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Provenance:
    """The origin of a launch site in the model's source and in Inductor's graphs."""

    certainty: Certainty
    handle: str = ""  # Inductor's key: "aoti_torch_cpu_addmm_out:1"
    source: tuple[ModelLine, ...] = ()  # innermost frame of the model's own code in each traced stack
    stacks: tuple[str, ...] = ()
    post_grad_nodes: tuple[str, ...] = ()
    pre_grad_nodes: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()  # innermost module paths of its nodes, "encoder.layers.0.norm1"; () if unknown


@dataclass(frozen=True)
class ProxyArgument:
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
    loops: int = 0  # number of enclosing while loops
    launches: tuple[str, ...] = ()  # names of the device kernels that it may start (Triton)
    operands: tuple[ProxyArgument, ...] = ()  # of a call through the proxy executor
    results: tuple[str, ...] = ()  # JSON of each value that the call returns: {"as_tensors": [{"name": "buf2"}]}
    stream: int = 0  # that it runs on: 0 the call's, 1… side streams as the wrapper numbers them
    waits_for: tuple[int, ...] = ()  # sites: of each other stream the last one that has surely ended when it begins


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operator."""

    name: str
    type: str  # as torch names it, without Optional: "Tensor", "int", "number", "List[int]", "ScalarType", "Device"
    optional: bool = False
    keyword_only: bool = False
    out: bool = False
    default: bool = False  # it has one
    since: int = 1  # the first version of the operator's C function that takes it


@dataclass(frozen=True)
class OperatorSchema:
    """The schema of an operator that the package calls, and facts about the operator's C function."""

    op: str  # "aten.addmm.out", "mylib.op.default"
    parameters: tuple[Parameter, ...]  # in the order of the schema
    returns: int  # the number of values that the C function hands out; 0 of an in-place or out variant
    random: bool = False  # it draws from a generator
    text: str = ""  # as torch prints it: "mylib::op(Tensor x) -> Tensor"


@dataclass(frozen=True)
class KernelParam:
    """A parameter of a device kernel."""

    name: str
    ctype: str  # "int32_t", "CUdeviceptr"
    type: CType


class ConfigOrigin(str, Enum):
    """The origin of a value of a Triton kernel's configuration."""

    RECORDED = "recorded"
    DERIVED = "derived from the launch"  # the possible value that yields the recorded grid and warps
    CHOSEN = "chosen"  # one of several values that fit


@dataclass(frozen=True)
class Inferred:
    """A value of a Triton kernel's configuration that is not recorded."""

    name: str  # "XBLOCK"
    origin: ConfigOrigin


@dataclass(frozen=True)
class Kernel:
    """Source and binary of a generated kernel."""

    name: str  # the same as in sites and `Site.launches`
    language: str  # "cpp" or "triton"
    source: str
    sha256: str
    id: int = -1  # AotiDebugKernel::id; from here on: Triton only, but for code_sha256
    mangled: str = ""
    cubin: str = ""  # file name in the package
    num_warps: int = 0
    shared_bytes: int = 0
    params: tuple[KernelParam, ...] = ()
    config: tuple[tuple[str, str], ...] = ()  # constants that it was compiled with: ("XBLOCK", "128"), as Python source
    global_scratch: int = 0  # bytes of scratch memory per launch
    profile_scratch: int = 0
    cubin_sha256: str = ""
    grid: tuple[tuple[str, str], ...] = ()  # expressions of the wrapper: ("grid_0", "((xnumel + (128 - 1)) / (128))")
    inferred: tuple[Inferred, ...] = ()  # the values of config that are not recorded
    other_configs: tuple[tuple[tuple[str, str], ...], ...] = ()  # that fit the recorded values, too; most likely first
    overlaps: bool = False  # it may begin before the kernel before it has ended (programmatic dependent launch)
    code_sha256: str = ""  # of its machine code in the original library (C++) or in its binary (Triton)
    first_line: int = 0  # of the source in the file that Triton compiled, from 1; 0 if it is not known

    def origin(self, name: str) -> ConfigOrigin:
        """The origin of a value of `config`."""
        return next((value.origin for value in self.inferred if value.name == name), ConfigOrigin.RECORDED)


@dataclass(frozen=True)
class Unrecognised:
    """A call that looks like a launch but has no known form."""

    function: str
    line: int
    text: str
    reason: str = ""  # what of it is not read: "parameter desc_type_ desc of call_k"; "" if nothing of it is


@dataclass(frozen=True)
class KernelCompilation:
    """The compiler command and flags of the generated C++ kernels."""

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
    kind: str = ""  # "Parameter", "Buffer", "TensorConstant"; "" if unknown


@dataclass(frozen=True)
class Promise:
    """The layout that the graph guarantees for a buffer or a model input.

    Sizes and strides (in elements) are Inductor's symbolic expressions: "16", "s77", "2*s77"; "" if unknown.
    """

    name: str  # the C++ variable: "buf3", "true_graph_0_buf1"
    device: str  # "cpu", "cuda:0"
    dtype: str  # "float32"
    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    function: str = "run_impl"  # or "_const_run_impl": each has buffers of its own


@dataclass(frozen=True)
class Allocation:
    """The allocation of a buffer; a run with guards puts zones of known bytes around it if `guarded`."""

    name: str  # the C++ variable: "buf3", "pool0"
    line: int  # in the generated wrapper, from 1; 0 if it is not allocated there
    guarded: bool
    reason: str = ""  # for which it has no guards


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest."""

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
    input_names: tuple[str, ...] = ()  # names in the exported program: "index"; empty if unknown
    constants: tuple[Constant, ...] = ()
    outputs: tuple[str, ...] = ()  # the C++ variable of each output, in order; "" if unknown
    promises: tuple[Promise, ...] = ()
    without_promises: str = ""  # the reason why promises of some buffers are missing; "" if none are
    allocations: tuple[Allocation, ...] = ()  # of buffers; GuardDamage::allocation is an index in this tuple
    handed_out: tuple[str, ...] = ()  # variables of branches and loops that are moved into an output
    model: str = "model"  # its name in the package
    source: PackageOrigin = PackageOrigin.EXPORTED
    without_weights: str = ""  # the reason why the package has no weights; "" if it has them
    other_torch: str = ""  # evidence that another torch than torch_version compiled the original; "" without any
    sameness: KernelMatch | None = None  # with the compiled package; each kernel's hash is in `kernels`
    without_source: str = ""  # the limits of recording a package without wrapper source; "" if it has the source
    triton_helpers: str = ""  # Python source of Inductor's functions that the Triton kernels call
    operators: tuple[OperatorSchema, ...] = ()  # those that the sites call, each once
    module_filters: tuple[str, ...] = ()  # beside `filters`
    line_filters: tuple[str, ...] = ()
    weights: WeightsFile | None = None  # None if they are inside the package
    program: WeightsFile | None = None  # where weights inside come from, above LARGE bytes; None otherwise
    packed: PackedWeights | None = None  # those of the weights inside that a run refers to; None if it has copies
    stream_order: StreamOrder | None = None  # of run_impl; None if all of it runs on the stream of the call

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of its JSON text, in hexadecimal digits: as another version wrote it where it was read."""
        import hashlib  # loads OpenSSL: what only reads a run does without it

        return hashlib.sha256(self.json_text.encode()).hexdigest()

    @cached_property
    def json_text(self) -> str:
        """Its JSON text: the one that it was read from, else made once."""
        return json_data.to_text(self)

    def kernel(self, name: str) -> Kernel | None:
        """The kernel of a name; None if there is none."""
        return next((k for k in self.kernels if k.name == name), None)

    def operator(self, op: str) -> OperatorSchema | None:
        """The schema of an operator, "aten.addmm.out" or "mylib::op.default"; None if the package does not hold it."""
        return next((schema for schema in self.operators if schema.op == op.replace("::", ".")), None)


@lru_cache(maxsize=2)  # a triage runs one package several times, and every run has a copy
def from_json(text: str | bytes) -> Manifest:
    """Parses a manifest.

    Raises:
        ArtifactError: the text is not a manifest, or has another format version.
    """
    try:
        data = json_data.parse_object(text)
        if data.get("format") != FORMAT:
            shown = truncated(printable(str(data.get("format"))), 80)
            raise ArtifactError(
                f"the manifest has format {shown}; this version reads format {FORMAT}",
                hint="build the package again with this version of aoti-debug",
            )
        manifest = json_data.from_data(Manifest, data)
        vars(manifest)["json_text"] = text if isinstance(text, str) else text.decode()  # fields of ours would change it
        return manifest
    except json_data.DamagedJsonError as error:
        raise ArtifactError(f"the manifest is damaged: {error}", hint="build the package again") from error
