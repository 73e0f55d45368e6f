"""The table of torch's dtypes: size, category, storage in tensor files, range, names in kernels; devices and layouts.

The rows are in the order of runtime_shims/tensors/dtype.cpp, which is c10::ScalarType's. Nothing here imports torch.
"""

from __future__ import annotations

import math
import re
from enum import Enum

from aoti_debug.base.frozen import dataclass

# torch's names by number: of c10::DeviceType and of c10::Layout
DEVICE_TYPES = (
    *("cpu", "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip", "fpga", "maia", "xla", "vulkan"),
    *("metal", "xpu", "mps", "meta", "hpu", "ve", "lazy", "ipu", "mtia", "privateuseone"),
)
LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")


class Category(Enum):
    """The kind of elements of a dtype."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOATING = "floating"
    COMPLEX = "complex"
    PACKED = "packed"  # bits, or several values per element
    QUANTIZED = "quantized"


_ABBREVIATED = re.compile(r"(?P<kind>bfloat|float|b?complex|uint|int|bool)(?P<rest>.*)")
_LETTERS = {"bfloat": "bf", "float": "f", "bcomplex": "bc", "complex": "c", "uint": "u", "int": "i", "bool": "b8"}


@dataclass(frozen=True)
class Dtype:
    """A dtype of torch.

    Attributes:
        name: torch's name: "float32".
        item_bytes: the size of an element.
        safetensors: the safetensors dtype in which elements are stored; "" if tensors of the dtype cannot be saved.
        stored_parts: the number of safetensors elements that store one element.
        numpy: the numpy dtype: "<f4"; "" if numpy has none.
        largest: the largest finite value of a floating dtype.
        has_infinity: True if a floating dtype has infinities.
        kernel_names: its names in generated C++ and Triton kernels: ("at::Half", "c10::Half").
    """

    name: str
    item_bytes: int
    category: Category
    safetensors: str = ""
    stored_parts: int = 1
    numpy: str = ""
    largest: float | None = None
    has_infinity: bool = False
    kernel_names: tuple[str, ...] = ()

    @property
    def torch_name(self) -> str:
        """The qualified name: "torch.float32"."""
        return f"torch.{self.name}"

    @property
    def abbreviation(self) -> str:
        """The short name of torch's traces: "f32", "bf16", "b8"; the name itself where they have none."""
        if self.name.startswith("bits"):
            return f"b{self.name[4:]}{'' if 'x' in self.name else 'x1'}"
        parts = _ABBREVIATED.fullmatch(self.name)
        is_short = self.category not in (Category.PACKED, Category.QUANTIZED) or self.name.startswith("float4")
        return _LETTERS[parts["kind"]] + parts["rest"].replace("_", "") if parts and is_short else self.name

    @property
    def has_values(self) -> bool:
        """True if an element is a number (real or complex) that can be read."""
        return self.category not in (Category.PACKED, Category.QUANTIZED)


def _integer(name: str, item_bytes: int, safetensors: str, numpy: str) -> Dtype:
    return Dtype(name, item_bytes, Category.INTEGER, safetensors, numpy=numpy)


def _float(name: str, item_bytes: int, safetensors: str, largest: float, *kernel_names: str, numpy: str = "") -> Dtype:
    return Dtype(
        name,
        item_bytes,
        Category.FLOATING,
        safetensors,
        numpy=numpy,
        largest=largest,
        has_infinity=True,
        kernel_names=kernel_names,
    )


def _finite_float(name: str, safetensors: str, largest: float, *kernel_names: str) -> Dtype:
    return Dtype(name, 1, Category.FLOATING, safetensors, largest=largest, kernel_names=kernel_names)


def _packed(name: str, safetensors: str = "U8", item_bytes: int = 1, stored_parts: int = 1) -> Dtype:
    return Dtype(name, item_bytes, Category.PACKED, safetensors, stored_parts)


def _quantized(name: str, item_bytes: int = 1) -> Dtype:
    return Dtype(name, item_bytes, Category.QUANTIZED)


DTYPES: tuple[Dtype, ...] = (  # the index is c10::ScalarType
    _integer("uint8", 1, "U8", "<u1"),
    _integer("int8", 1, "I8", "<i1"),
    _integer("int16", 2, "I16", "<i2"),
    _integer("int32", 4, "I32", "<i4"),
    _integer("int64", 8, "I64", "<i8"),
    _float("float16", 2, "F16", 65504.0, "at::Half", "c10::Half", numpy="<f2"),
    _float("float32", 4, "F32", 3.4028234663852886e38, "float", numpy="<f4"),
    _float("float64", 8, "F64", 1.7976931348623157e308, "double", numpy="<f8"),
    Dtype("complex32", 4, Category.COMPLEX, "F16", stored_parts=2),
    Dtype("complex64", 8, Category.COMPLEX, "C64", numpy="<c8"),
    Dtype("complex128", 16, Category.COMPLEX, "F64", stored_parts=2, numpy="<c16"),
    Dtype("bool", 1, Category.BOOLEAN, "BOOL", numpy="?"),
    _quantized("qint8"),
    _quantized("quint8"),
    _quantized("qint32", 4),
    _float("bfloat16", 2, "BF16", 3.3895313892515355e38, "at::BFloat16", "c10::BFloat16"),
    _quantized("quint4x2"),
    _quantized("quint2x4"),
    _packed("bits1x8"),
    _packed("bits2x4"),
    _packed("bits4x2"),
    _packed("bits8"),
    _packed("bits16", "U16", 2),
    _float("float8_e5m2", 1, "F8_E5M2", 57344.0, "at::Float8_e5m2", "c10::Float8_e5m2", "float8e5"),
    _finite_float("float8_e4m3fn", "F8_E4M3", 448.0, "at::Float8_e4m3fn", "c10::Float8_e4m3fn", "float8e4nv"),
    _finite_float("float8_e5m2fnuz", "F8_E5M2FNUZ", 57344.0),
    _finite_float("float8_e4m3fnuz", "F8_E4M3FNUZ", 240.0),
    _integer("uint16", 2, "U16", "<u2"),
    _integer("uint32", 4, "U32", "<u4"),
    _integer("uint64", 8, "U64", "<u8"),
    *(_packed(f"uint{bits}") for bits in range(1, 8)),
    *(_packed(f"int{bits}") for bits in range(1, 8)),
    _finite_float("float8_e8m0fnu", "F8_E8M0", 2.0**127),
    _packed("float4_e2m1fn_x2", "F4", stored_parts=2),
    Dtype("bcomplex32", 4, Category.COMPLEX, "BF16", stored_parts=2),  # torch 2.14
)
_EXEMPT = ("float64", "float8_e8m0fnu")  # no wider dtype to compare with; powers of two that scale other tensors
LARGEST = {d.name: d.largest for d in DTYPES if d.largest is not None and d.name not in _EXEMPT}
SHARE = 0.5  # of the maximum: doubling the value overflows
_BY_NAME = {dtype.name: dtype for dtype in DTYPES}


@dataclass(frozen=True)
class FloatFormat:
    """The numbers of a floating dtype of at most 32 bits.

    Attributes:
        mantissa_bits: the bits behind the leading one.
        least_exponent: of the smallest number that is not subnormal, as a power of two.
    """

    name: str
    mantissa_bits: int
    least_exponent: int

    @property
    def least_normal(self) -> float:
        """The smallest number that is not subnormal."""
        return math.ldexp(1.0, self.least_exponent)

    @property
    def smallest(self) -> float:
        """The smallest number above 0."""
        return math.ldexp(1.0, self.least_exponent - self.mantissa_bits)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        largest = _BY_NAME[self.name].largest
        assert largest is not None
        return largest

    @property
    def limit(self) -> float:
        """The least number that is rounded to one beyond the largest: half a step after it."""
        return self.largest + math.ldexp(0.5, math.frexp(self.largest)[1] - 1 - self.mantissa_bits)


_FORMATS = (
    FloatFormat("bfloat16", 7, -126),
    FloatFormat("float16", 10, -14),
    FloatFormat("float8_e4m3fn", 3, -6),
    FloatFormat("float8_e5m2", 2, -14),
    FloatFormat("float32", 23, -126),
)
FLOAT_FORMATS = {format_.name: format_ for format_ in _FORMATS}


def of_scalar_type(scalar_type: int) -> Dtype | None:
    """The dtype of a c10::ScalarType; None if it is unknown (of a newer torch)."""
    return DTYPES[scalar_type] if 0 <= scalar_type < len(DTYPES) else None


def of_name(name: str) -> Dtype | None:
    """The dtype of a name, "float32" or "torch.float32"; None if it is unknown."""
    return _BY_NAME.get(bare_name(name))


def name_of_number(scalar_type: int) -> str:
    """The name of a c10::ScalarType; "dtype99" if it is unknown."""
    dtype = of_scalar_type(scalar_type)
    return dtype.name if dtype else f"dtype{scalar_type}"


def bare_name(dtype: object) -> str:
    """The name without "torch." of a torch.dtype or of its text: "float32"."""
    return str(dtype).removeprefix("torch.")


def item_bytes(name: str) -> int:
    """The size in bytes of an element; 0 if the dtype is unknown."""
    dtype = of_name(name)
    return dtype.item_bytes if dtype else 0


def is_integer(name: str) -> bool:
    """True for a signed or unsigned integer dtype."""
    dtype = of_name(name)
    return dtype is not None and dtype.category is Category.INTEGER


def has_fractions(name: str) -> bool:
    """True for a floating or complex dtype."""
    dtype = of_name(name)
    return dtype is not None and dtype.category in (Category.FLOATING, Category.COMPLEX)


def device_name(device_type: int, index: int) -> str:
    """The device in torch's notation: "cpu", "cuda:0"."""
    name = DEVICE_TYPES[device_type] if 0 <= device_type < len(DEVICE_TYPES) else f"device{device_type}"
    return name if name == "cpu" or index < 0 else f"{name}:{index}"


def layout_name(layout: int) -> str:
    """torch's name of a c10::Layout: "strided"."""
    return LAYOUTS[layout] if 0 <= layout < len(LAYOUTS) else f"layout{layout}"
