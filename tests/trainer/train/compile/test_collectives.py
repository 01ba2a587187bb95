"""Exchanges are counted as often as they run. The programs below are shortened from what libtpu prints."""

import pytest

from tpujob_trainer.train.compile.collectives import Exchange, exchanges

PROGRAM = """\
HloModule jit_step

%condition (argument: (s32[], bf16[8,4])) -> pred[] {
  %argument = (s32[], bf16[8,4]{1,0:T(8,128)(2,1)}) parameter(0)
  %end = s32[]{:T(128)} constant(32)
  %counter = s32[]{:T(128)} get-tuple-element(%argument), index=0
  ROOT %lt = pred[]{:T(512)} compare(%counter, %end), direction=LT
}

%piece (argument: bf16[1,4]) -> bf16[8,4] {
  ROOT %gather.2 = bf16[8,4]{1,0} all-gather(%argument), channel_id=2, replica_groups=mesh['fsdp'=8] {'fsdp'}, GATHER
}

%other_piece (argument: bf16[1,4]) -> bf16[8,4] {
  ROOT %gather.3 = bf16[8,4]{1,0} all-gather(%argument), channel_id=2, replica_groups=mesh['fsdp'=8] {'fsdp'}, GATHER
}

%body (argument: (s32[], bf16[8,4])) -> (s32[], bf16[8,4]) {
  %started = bf16[8,4] fusion(%part), kind=kCustom, calls=%piece
  %ended = bf16[8,4] fusion(%started), kind=kCustom, calls=%other_piece
  %exchange = (bf16[1,4]{1,0}, bf16[1,4]{1,0}, u32[]) collective-permute-start(%gradient), channel_id=3
  ROOT %next = (s32[], bf16[8,4]) tuple(%counter, %ended)
}

ENTRY %main (argument: bf16[8,4]) -> f32[5] {
  %loop = (s32[], bf16[8,4]) while(%begin), condition=%condition, body=%body
  ROOT %sum = f32[5]{0} all-reduce(%flags), channel_id=1, replica_groups=mesh['data'=1,'fsdp'=8] {'data','fsdp'}
}
""".replace("GATHER", 'backend_config={"async_collective_fusion_config":{"flag_start":"2"}}')


def test_loop_counts_by_its_condition() -> None:
    assert exchanges(PROGRAM) == [
        Exchange("all-gather", "fsdp", True, 32, bytes=32 * 64, sent_bytes=32 * 56, is_in_loop=True),
        Exchange("collective-permute", "", True, 32, bytes=32 * 8, sent_bytes=32 * 8, is_in_loop=True),
        Exchange("all-reduce", "fsdp", False, 1, bytes=20, sent_bytes=35),
    ]


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        pytest.param("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"7"}}', 7, id="compiler says"),
        pytest.param("constant(32)", "constant(3)", 3, id="another end"),
        pytest.param("direction=LT", "direction=NE", 1, id="no end known"),
    ],
)
def test_loop_counts_as_often_as_is_known(before: str, after: str, count: int) -> None:
    gather = exchanges(PROGRAM.replace(before, after))[0]
    assert gather.count == count


def test_sum_of_which_a_part_is_kept_is_a_scatter() -> None:
    """As libtpu writes one: a fusion, whose name says so."""
    program = """\
%all-reduce-scatter.1 (input: bf16[8,4]) -> bf16[1,4] {
  %sum = bf16[8,4]{1,0} all-reduce(%input), channel_id=1, replica_groups=mesh['fsdp'=8] {'fsdp'}
}

ENTRY %main (argument: bf16[8,4]) -> bf16[1,4] {
  ROOT %kept = bf16[1,4] fusion(%argument), kind=kCustom, calls=%all-reduce-scatter.1
}
"""
    assert exchanges(program) == [Exchange("reduce-scatter", "fsdp", False, 1, bytes=8, sent_bytes=56)]


def test_parts_of_a_long_tuple_are_all_counted() -> None:
    """The compiler numbers every fifth."""
    parts = ", ".join(
        "bf16[4]{0}" if number % 5 or not number else f"/*index={number}*/bf16[4]{{0}}" for number in range(7)
    )
    program = f"ENTRY %main (argument: bf16[4]) -> bf16[4] {{\n  %sums = ({parts}) all-reduce(%a), channel_id=1\n}}\n"
    assert [each.bytes for each in exchanges(program)] == [7 * 8]


def test_exchange_without_the_mark_is_synchronous() -> None:
    found = exchanges(PROGRAM.replace("async_collective_fusion_config", "flag_configs"))
    assert [each.is_asynchronous for each in found if each.kind == "all-gather"] == [False]


def test_unrolled_loop_counts_by_the_growth_of_its_counter() -> None:
    unrolled = """\
  %two = s32[]{:T(128)} constant(2)
  %grown = s32[]{:T(128)} add(%counter, %two)
  ROOT %next = (s32[], bf16[8,4]) tuple(%grown, /*index=1*/%ended)
"""
    once = "  ROOT %next = (s32[], bf16[8,4]) tuple(%counter, %ended)\n"
    assert exchanges(PROGRAM.replace(once, unrolled))[0].count == 16


def test_exchanges_of_one_channel_all_count() -> None:
    lines = [line for line in PROGRAM.splitlines() if "all-reduce" in line]
    again = PROGRAM.replace(lines[0], f"{lines[0].replace('ROOT ', '')}\n{lines[0]}")
    assert exchanges(again)[-1].count == 2


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("all-gather", 14), ("all-to-all", 14), ("reduce-scatter", 112), ("all-reduce", 28), ("collective-permute", 16)],
)
@pytest.mark.parametrize("groups", ["[2,8]<=[16]", "{{0,1,2,3,4,5,6,7},{8,9,10,11,12,13,14,15}}"], ids=["iota", "all"])
def test_sent_bytes_are_those_of_a_ring(kind: str, sent: int, groups: str) -> None:
    line = f"ENTRY %main (a: f32[4]) -> f32[4] {{\n  %x = f32[4]{{0}} {kind}(%a), replica_groups={groups}\n}}"
    assert [each.sent_bytes for each in exchanges(line)] == [sent]


@pytest.mark.parametrize(
    ("groups", "is_between"),
    [
        pytest.param("replica_groups=mesh['slice'=2,'fsdp'=4] {'fsdp'}", False, id="an axis within"),
        pytest.param("replica_groups=mesh['slice'=2,'fsdp'=4] {'slice'}", True, id="an axis between"),
        pytest.param("replica_groups=[2,4]<=[8]", False, id="neighbours"),
        pytest.param("replica_groups=[4,2]<=[2,4]T(1,0)", True, id="every fourth"),
        pytest.param("replica_groups={{0,4},{1,5},{2,6},{3,7}}", True, id="listed"),
        pytest.param("source_target_pairs={{0,1},{1,2},{2,3},{3,0}}", False, id="pairs"),
    ],
)
def test_exchange_between_slices_is_told(groups: str, is_between: bool) -> None:
    line = f"ENTRY %main (a: f32[4]) -> f32[4] {{\n  %x = f32[4]{{0}} all-reduce(%a), {groups}\n}}"
    assert [each.is_between_slices for each in exchanges(line, devices_per_slice=4)] == [is_between]


def test_what_is_sent_to_the_host_goes_between_slices() -> None:
    line = (
        "ENTRY %main (a: f32[4]) -> f32[4] {\n"
        "  %x = (f32[4]{0}, u32[]{:S(2)}, token[]) send(%a, %b), channel_id=14, is_host_transfer=true, "
        'frontend_attributes={_xla_megascale_target="{1,2}x{0:63}",_xla_megascale_transfer_type="ALL_REDUCE"}\n}'
    )
    assert exchanges(line) == [Exchange("all-reduce", "", True, 1, 16, 16, is_between_slices=True)]
