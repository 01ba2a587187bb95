"""FLOPs of the matrix products in a compiled program, each counted as often as it runs.

`cost_analysis` counts the body of a loop once. Attention kernels are not counted.
"""

import math
import re

from tpujob_trainer.train.compile.hlo import Program

_PRODUCT = re.compile(
    r"= \w+\[([\d,]*)\]\S* convolution\(%?([\w.\-]+), %?([\w.\-]+)\)"
    r"(?:, window=\{([^}]*)\})?.*?dim_labels=(\w+)_(\w+)->(\w+)"
)
_DOT = re.compile(r"= \w+\[([\d,]*)\]\S* dot\(%?([\w.\-]+), %?[\w.\-]+\).*?lhs_contracting_dims=\{([\d,]*)\}")
_RAGGED = re.compile(r"%?ragged-dot-none\S* = \w+\[([\d,]*)\]\S* custom-call\((.*?)\), custom_call_target")
"""The product of a mixture's experts: a kernel of the compiler, which multiplies its last two operands."""
_OPERANDS = re.compile(r"%([\w.\-]+)")
_ARRAY = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (\w+)\[([\d,]*)\]")


def matrix_operations(program: str, experts: int | None = None) -> int:
    """FLOPs of one device, without those of attention kernels.

    Args:
        program: Its text.
        experts: Of a layer, on all devices; None: there are none, or each device has all of them.
    """
    read = Program(program)
    products = MatrixProducts(read, experts)
    return sum(run.times * products.of(run.line, run.computation)[0] for run in read.runs())


class MatrixProducts:
    """The matrix products of a program, by line."""

    def __init__(self, program: Program, experts: int | None = None) -> None:
        self._experts = experts
        self._arrays: dict[str, dict[str, tuple[str, str]]] = {
            name: {match.group(1): (match.group(2), match.group(3)) for line in lines if (match := _ARRAY.match(line))}
            for name, lines in program.computations.items()
        }

    def of(self, line: str, computation: str) -> tuple[int, str]:
        """FLOPs of a line, and the type of its left operand; zero: the line is no product."""
        arrays = self._arrays[computation]
        if match := _PRODUCT.search(line):
            operands = {name: shape for name, (_, shape) in arrays.items() if name in match.group(2, 3)}
            return _of_product(match, operands), arrays.get(match.group(2), ("", ""))[0]
        if match := _DOT.search(line):
            kind, dims = arrays.get(match.group(2), ("", ""))
            left = _sizes(dims)
            summed = math.prod(left[int(dim)] for dim in match.group(3).split(",") if dim)
            return 2 * math.prod(_sizes(match.group(1))) * summed, kind
        if match := _RAGGED.search(line):
            return self._ragged(match, arrays)
        return 0, ""

    def _ragged(self, match: re.Match[str], arrays: dict[str, tuple[str, str]]) -> tuple[int, str]:
        """The product of each expert's rows: [rows, in] with [experts, in, out], or, for a gradient, with [rows, out].

        The array has room for all rows to go to the experts of one device; an equal share of them counts.
        """
        (kind, left), (_, right) = (arrays.get(name, ("", "")) for name in _OPERANDS.findall(match.group(2))[-2:])
        rows, result = _sizes(left), _sizes(match.group(1))
        is_gradient = len(result) == 3
        pairs = math.prod(result[1:]) if is_gradient else rows[1] * result[1]
        here = result[0] if is_gradient else (_sizes(right) or [1])[0]
        return 2 * rows[0] * pairs * here // (self._experts or here), kind


def _of_product(match: re.Match[str], shapes: dict[str, str]) -> int:
    """FLOPs of a product that the TPU compiler writes as a convolution, with other dimensions as its window."""
    result, left, right, window, of_left, of_right, of_result = match.groups()
    lhs, rhs = (_named(of_left, shapes.get(left, "")), _named(of_right, shapes.get(right, "")))
    out = _named(of_result, result)
    pairs = 1
    for axis in (label for label in of_result if label.isdigit()):
        pairs *= _pairs(lhs.get(axis, 1), rhs.get(axis, 1), out[axis], _window(window or "", int(axis)))
    return 2 * out["b"] * out["f"] * rhs.get("i", 1) * pairs


def _named(labels: str, dims: str) -> dict[str, int]:
    """Sizes by the labels of their dimensions; empty for an array that is not in the text."""
    sizes = _sizes(dims)
    return dict(zip(labels, sizes, strict=True)) if sizes else {}


def _window(text: str, axis: int) -> dict[str, str]:
    return {key: values.split("x")[axis] for key, values in re.findall(r"(\w+)=(\S+)", text)}


def _pairs(size: int, kernel: int, results: int, window: dict[str, str]) -> int:
    """How many pairs of elements of the window and the array are multiplied; those in the padding do not count."""
    before = int(window.get("pad", "0_0").split("_")[0])
    stride, spread = int(window.get("stride", 1)), int(window.get("lhs_dilate", 1))
    step = int(window.get("rhs_dilate", 1))
    return sum(
        0 <= (at := result * stride + place * step - before) <= (size - 1) * spread and at % spread == 0
        for result in range(results)
        for place in range(kernel)
    )


def _sizes(dims: str) -> list[int]:
    return [int(dim) for dim in dims.split(",") if dim]
