"""Exchanges are counted as often as they run. The programs below are shortened from what libtpu prints."""

from __future__ import annotations

import pytest

from tpujob_trainer.compile.collectives import Exchange, exchanges

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
        Exchange("all-gather", "fsdp", is_asynchronous=True, count=32, bytes=32 * 8 * 4 * 2),
        Exchange("collective-permute", "", is_asynchronous=True, count=32, bytes=32 * 4 * 2),
        Exchange("all-reduce", "fsdp", is_asynchronous=False, count=1, bytes=5 * 4),
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


def test_exchange_without_the_mark_is_synchronous() -> None:
    found = exchanges(PROGRAM.replace("async_collective_fusion_config", "flag_configs"))
    assert [each.is_asynchronous for each in found if each.kind == "all-gather"] == [False]
