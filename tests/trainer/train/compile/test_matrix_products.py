"""Operations are those of the products that a program writes as it does on TPU."""

import pytest

from tpujob_trainer.train.compile.matrix_products import matrix_operations

TEXT = """\
ENTRY %main (a: bf16[{left}], b: bf16[{right}]) -> bf16[{result}] {{
  %a = bf16[{left}]{{1,0}} parameter(0)
  %b = bf16[{right}]{{1,0}} parameter(1)
  ROOT %c = bf16[{result}]{{1,0}} {operation}
}}
"""


@pytest.mark.parametrize(
    ("left", "right", "result", "operation", "products"),
    [
        pytest.param("64,32", "32,16", "64,16", "convolution(%a, %b), dim_labels=bf_io->bf", 64 * 32 * 16, id="plain"),
        pytest.param(
            "64,32",
            "32,16",
            "64,16",
            "dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            64 * 32 * 16,
            id="as elsewhere",
        ),
        pytest.param(
            "64,32,1",
            "32,8,16",
            "64,8,16",
            "convolution(%a, %b), window={size=8 pad=7_7 rhs_reversal=1}, dim_labels=bf0_i0o->b0f",
            64 * 32 * 8 * 16,
            id="heads as a window",
        ),
        pytest.param(
            "64,8,16",
            "32,8,16",
            "64,32,1",
            "convolution(%a, %b), window={size=8}, dim_labels=b0f_o0i->bf0",
            64 * 32 * 8 * 16,
            id="a sum over heads",
        ),
    ],
)
def test_product_counts_what_it_multiplies(left: str, right: str, result: str, operation: str, products: int) -> None:
    text = TEXT.format(left=left, right=right, result=result, operation=operation)
    assert matrix_operations(text) == 2 * products
