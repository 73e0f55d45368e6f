from __future__ import annotations

import pytest

from aoti_debug.base.native.function_names import demangle, short_name


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZN10native_ops8read_rowEPKi", "native_ops::read_row(int const*)"),
        ("_Z3fooi.constprop.0", "foo(int) [constprop.0]"),
        ("main", "main"),
        ("cpp_fused_relu_1._omp_fn.0", "cpp_fused_relu_1._omp_fn.0"),
        ("_Zbroken", "_Zbroken"),
    ],
)
def test_demangling(mangled: str, name: str) -> None:
    assert demangle(mangled) == name


@pytest.mark.parametrize(
    ("function", "short"),
    [
        ("native_ops::read_row(int const*)", "native_ops::read_row"),
        ("at::native::(anonymous namespace)::sum_kernel<float, 4>(at::TensorIterator&)", "at::native::sum_kernel"),
        ("std::vector<int, std::allocator<int> > ops::make<int>(long)", "ops::make"),
        ("ops::Row::operator()(int) const", "ops::Row::operator()"),
        ("ops::Row::operator<(ops::Row const&) const", "ops::Row::operator<"),
        ("std::ostream& operator<<(std::ostream&, ops::Row const&)", "operator<<"),
        ("operator new(unsigned long)", "operator new"),
        ("cpp_fused_relu_1._omp_fn.0", "cpp_fused_relu_1"),
        ("ops::scale(float) [isra.0]", "ops::scale"),
        ("ops::Guard::~Guard()", "ops::Guard::~Guard"),
    ],
)
def test_short_names(function: str, short: str) -> None:
    assert short_name(function) == short


def test_a_long_name_is_cut() -> None:
    assert len(short_name("n" * 500)) == 110
