"""Least times are read from the order of a scheduled program. The programs below are shortened from what libtpu prints.

A product of them is 64 x 32 x 16: 65,536 operations, a second at the rate of the tests. A gather of bf16[8,4] over
eight devices sends 56 bytes, and takes as many seconds.
"""

import pytest

from tpujob_trainer.train.compile.schedule import Rates, StepTime, step_time

RATES = Rates(operations=2 * 64 * 32 * 16, narrow={"s8": 2.0}, link_bytes=1.0)
GROUPS = "channel_id=7, replica_groups=[1,8]<=[8]"
PRODUCT = "%p{} = bf16[64,16]{{1,0}} convolution(%a, %b), dim_labels=bf_io->bf"
GATHER = f"%whole = bf16[8,4]{{1,0}} all-gather(%part), {GROUPS}"
START = f"%started = (bf16[1,4]{{1,0}}, bf16[8,4]{{1,0}}) all-gather-start(%part), {GROUPS}"
DONE = "%whole = bf16[8,4]{1,0} all-gather-done(%started)"
PIECE = 'backend_config={"async_collective_fusion_config":{"flag_start":"2"}}'
ATTENTION = '%splash_mha_{}_segmented.2 = bf16[8,4]{{1,0}} custom-call(%q), custom_call_target="tpu_custom_call"'


def entry(*lines: str, kind: str = "bf16") -> str:
    arrays = [f"%a = {kind}[64,32]{{1,0}} parameter(0)", f"%b = {kind}[32,16]{{1,0}} parameter(1)"]
    return "\n".join(["ENTRY %main (a: f32[4]) -> f32[4] {", *(f"  {line}" for line in (*arrays, *lines)), "}"])


def products(count: int) -> list[str]:
    return [PRODUCT.format(number) for number in range(count)]


def least(text: str, *, attention_seconds: float = 0.0, devices_per_slice: int = 8) -> StepTime:
    return step_time(text, RATES, attention_seconds=attention_seconds, devices_per_slice=devices_per_slice)


@pytest.mark.parametrize(
    ("lines", "computing", "sending", "waiting"),
    [
        pytest.param([*products(3)], 3, 0, 0, id="products alone"),
        pytest.param([GATHER, *products(3)], 3, 56, 56, id="an exchange in one line waits"),
        pytest.param([START, DONE, *products(3)], 3, 56, 56, id="nothing between start and done"),
        pytest.param([START, *products(60), DONE], 60, 56, 0, id="hidden"),
        pytest.param([START, *products(6), DONE, *products(9)], 15, 56, 50, id="hidden in part"),
        pytest.param(
            [START, START.replace("%started", "%other"), *products(60), DONE, DONE.replace("%started", "%other")],
            60,
            112,
            52,
            id="two share the links",
        ),
        pytest.param([START, *products(6), GATHER, DONE], 6, 112, 106, id="one that waits behind one on its way"),
        pytest.param(["%x = (f32[4], u32[]) copy-start(%a)", "%y = f32[4] copy-done(%x)"], 0, 0, 0, id="a copy"),
    ],
)
def test_time_follows_the_order_of_lines(lines: list[str], computing: int, sending: int, waiting: int) -> None:
    found = least(entry(*lines))
    assert (found.computing, found.sending, found.waiting) == (computing, sending, waiting)
    assert found.total == computing + waiting


def test_pieces_of_one_exchange_run_beside_the_products_they_are_fused_with() -> None:
    gather = f"  ROOT %g = bf16[8,4]{{1,0}} all-gather(%x), {GROUPS}, {PIECE}"
    product = "  %p = bf16[64,16]{1,0} convolution(%x, %y), dim_labels=bf_io->bf"
    arrays = ["  %x = bf16[64,32]{1,0} parameter(0)", "  %y = bf16[32,16]{1,0} parameter(1)"]
    piece = "\n".join(["%piece (x: bf16[64,32]) -> bf16[8,4] {", *arrays, product, gather, "}"])
    lines = [f"%f{number} = bf16[8,4]{{1,0}} fusion(%a, %b), kind=kCustom, calls=%piece" for number in range(3)]
    found = least(f"{piece}\n\n{entry(lines[0], *products(5), lines[1], *products(2), lines[2], *products(9))}")
    assert (found.computing, found.sending) == (3 + 5 + 2 + 9, 56)
    assert found.waiting == 56 - (3 + 5 + 2)


def test_a_loop_repeats_its_body() -> None:
    body = f"""\
%condition (argument: (s32[], bf16[8,4])) -> pred[] {{
  %end = s32[]{{:T(128)}} constant(32)
  ROOT %lt = pred[]{{:T(512)}} compare(%counter, %end), direction=LT
}}

%body (argument: (s32[], bf16[8,4])) -> (s32[], bf16[8,4]) {{
  %a = bf16[64,32]{{1,0}} parameter(0)
  %b = bf16[32,16]{{1,0}} parameter(1)
  {START}
  {PRODUCT.format(0)}
  {DONE}
}}
"""
    loop = "%loop = (s32[], bf16[8,4]) while(%begin), condition=%condition, body=%body"
    found = least(f"{body}\n{entry(loop, GATHER)}")
    assert found == StepTime(computing=32, sending=33 * 56, waiting=32 * 55 + 56, waiting_in_loops=32 * 55)
    assert least(f"{body}\n{entry(loop)}").waiting == found.waiting_in_loops


def test_an_exchange_goes_on_while_a_loop_runs() -> None:
    body = f"%body (x: s32[]) -> s32[] {{\n  {entry(*products(2)).split(chr(10), 1)[1]}"
    known = 'backend_config={"known_trip_count":{"n":"20"}}'
    loop = f"%loop = s32[] while(%begin), condition=%condition, body=%body, {known}"
    found = least(f"{body}\n\n{entry(START, loop, DONE)}")
    assert (found.computing, found.waiting) == (40, 16)


def test_narrow_products_take_less() -> None:
    assert least(entry(*products(4), kind="s8")).computing == 2


def test_kernels_of_attention_have_the_time_of_their_passes() -> None:
    """Two layers with recomputation: two forward passes each, and a backward pass of two kernels."""
    kernels = [ATTENTION.format(kind) for kind in ("fwd", "fwd", "fwd", "dq", "dkv", "fwd", "dq", "dkv")]
    assert least(entry(*kernels), attention_seconds=3.0).computing == pytest.approx(8 * 1.5)
    assert least(entry(ATTENTION.format("fwd")), attention_seconds=3.0).computing == 3.0


def test_experts_are_products() -> None:
    rows = "%rows = bf16[64,32]{1,0} parameter(2)"
    kernel = '%ragged-dot-none.1 = bf16[{}]{{1,0}} custom-call({}, %rows, %{}), custom_call_target="tpu_custom_call"'
    assert least(entry(rows, kernel.format("64,16", "%m", "weights"))).computing == 1
    assert least(entry(rows, kernel.format("8,32,16", "%m", "gradient"))).computing == 1


def test_a_device_with_some_of_the_experts_computes_its_share() -> None:
    arrays = ["%rows = bf16[64,32]{1,0} parameter(2)", "%weights = bf16[2,32,16]{2,1,0} parameter(3)"]
    call = 'custom-call({}), custom_call_target="tpu_custom_call"'
    forward = f"%ragged-dot-none.1 = bf16[64,16]{{1,0}} {call.format('%m, %rows, %weights')}"
    backward = f"%ragged-dot-none.2 = bf16[2,32,16]{{2,1,0}} {call.format('%m, %rows, %gradient')}"
    for line in (forward, backward):
        found = step_time(entry(*arrays, line), RATES, attention_seconds=0.0, devices_per_slice=8, experts=8)
        assert found.computing == 0.25


def test_exchanges_between_slices_are_left_out() -> None:
    assert least(entry(GATHER, *products(2)), devices_per_slice=4) == StepTime(computing=2)
