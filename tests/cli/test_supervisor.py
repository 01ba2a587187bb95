"""The supervisor with real children: small programs that end in the ways trainers do."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.localcluster.waiting import wait_for
from tpujob.local import supervisor as supervisor_module
from tpujob.local.plan import LocalProcess
from tpujob.local.reports import tail
from tpujob.local.supervisor import Exit, Supervisor

FINISH = "print('done')"
CRASH = "raise SystemExit(3)"
WAIT = "import signal; print('up', flush=True); signal.sigwait([signal.SIGTERM]); raise SystemExit(75)"
WAIT_BLOCKED = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n" + WAIT
STUBBORN = (
    "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\nwhile True: signal.pause()"
)


def make(tmp_path: Path, *programs: str) -> list[LocalProcess]:
    return [
        LocalProcess(
            index=index,
            name=f"p{index}",
            argv=(sys.executable, "-c", program),
            environ=dict(os.environ),
            report_port=0,
            log=tmp_path / f"{index}.log",
            termination_log=tmp_path / f"{index}.ending",
        )
        for index, program in enumerate(programs)
    ]


def run(
    processes: list[LocalProcess],
    *,
    when_up: int = 0,
    interrupts: int = 0,
    grace_seconds: int = 5,
    finish_together: bool = False,
    told: list[tuple[list[int], float]] | None = None,
):
    """Runs to the end; sends Ctrl-C to this process once `when_up` children have said that they are up."""
    sent = 0

    def on_tick() -> None:
        nonlocal sent
        up = sum("up" in tail(p.log, 1) for p in processes)
        if sent < interrupts and up >= when_up:
            sent += 1
            os.kill(os.getpid(), signal.SIGINT)

    supervisor = Supervisor(
        processes,
        grace_seconds=grace_seconds,
        on_tick=on_tick,
        finish_together=finish_together,
    )
    if told is not None:
        supervisor.on_slow_stop = lambda running, seconds: told.append(([each.index for each in running], seconds))
    return {e.process.index: e for e in supervisor.run()}


def test_all_finish(tmp_path):
    processes = make(tmp_path, FINISH, FINISH)
    exits = run(processes)
    assert [exits[i].code for i in (0, 1)] == [0, 0]
    assert tail(processes[1].log, 5) == ["done"]


def test_the_first_failure_ends_the_others(tmp_path):
    crash_later = (
        f"from pathlib import Path\nwhile 'up' not in Path({str(tmp_path / '0.log')!r}).read_text(): pass\n{CRASH}"
    )
    exits = run(make(tmp_path, WAIT_BLOCKED, crash_later))
    assert list(exits) == [1, 0]
    assert (exits[1].code, exits[1].asked_to_stop) == (3, False)
    assert (exits[0].code, exits[0].asked_to_stop) == (75, True)


def test_ctrl_c_asks_all_to_stop(tmp_path):
    exits = run(make(tmp_path, WAIT_BLOCKED, WAIT_BLOCKED), when_up=2, interrupts=1)
    assert {(e.code, e.asked_to_stop, e.killed) for e in exits.values()} == {(75, True, False)}


def test_a_second_ctrl_c_leaves_at_once(tmp_path):
    exits = run(make(tmp_path, STUBBORN, STUBBORN), when_up=2, interrupts=2, grace_seconds=3600)
    assert {(e.code, e.killed) for e in exits.values()} == {(137, True)}


def test_daemons_of_a_killed_process_end_with_it(tmp_path):
    script = (
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"daemon = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], start_new_session=True)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(daemon.pid))\n"
        "daemon.wait()"
    )
    exits = run(make(tmp_path, script), when_up=1, interrupts=2, grace_seconds=3600)
    assert (exits[0].code, exits[0].killed) == (137, True)
    daemon = int((tmp_path / "pid").read_text())
    wait_for("the daemon to be gone", lambda: not _is_alive(daemon))


def test_who_ignores_the_request_is_killed_after_the_grace_period(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor_module, "KILL_MARGIN_SECONDS", 0)
    exits = run(make(tmp_path, STUBBORN), when_up=1, interrupts=1, grace_seconds=1)
    assert (exits[0].code, exits[0].killed) == (137, True)


DIES = "import signal\nprint('up', flush=True)\nwhile True: signal.pause()"


def test_who_waits_for_a_process_that_died_of_the_signal_is_killed_soon(tmp_path, monkeypatch):
    """As in a barrier of JAX, whose processes hear no SIGTERM."""
    monkeypatch.setattr(supervisor_module, "PEER_FAILED_GRACE_SECONDS", 0.5)
    exits = run(make(tmp_path, STUBBORN, DIES), when_up=2, interrupts=1, grace_seconds=3600)
    assert [(exits[i].code, exits[i].killed) for i in (0, 1)] == [(137, True), (143, False)]


def test_a_worker_saves_as_long_as_it_may_whatever_another_died_of(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor_module, "PEER_FAILED_GRACE_SECONDS", -10)
    looked = tmp_path / "looked"
    until_looked = f"from pathlib import Path\nwhile not Path({str(looked)!r}).exists(): pass\nraise"
    processes, ticks = make(tmp_path, WAIT_BLOCKED.replace("raise", until_looked), DIES), []

    def on_tick() -> None:
        if not supervisor._asked and all("up" in tail(each.log, 1) for each in processes):
            os.kill(os.getpid(), signal.SIGINT)
        ticks.extend([] if 1 in supervisor._running else [1])
        looked.touch() if len(ticks) == 5 else None  # its death was looked at

    supervisor = Supervisor(processes, grace_seconds=3600, on_tick=on_tick, restarts=0)
    exits = {end.process.index: end for end in supervisor.run()}
    assert [exits[i].code for i in (0, 1)] == [75, 143]


def test_an_independent_worker_starts_again_alone_until_its_restarts_are_used_up(tmp_path):
    told: list[tuple[int, int, int]] = []
    mark = tmp_path / "mark"
    dies_once = f"""
import os, pathlib, signal
print("start", flush=True)
if not pathlib.Path({str(mark)!r}).exists():
    pathlib.Path({str(mark)!r}).touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    lost = f"print('start', flush=True)\n{CRASH}"
    goes_on = f"from pathlib import Path\nwhile Path({str(tmp_path / '1.log')!r}).read_text().count('start') < 3: pass"
    supervisor = Supervisor(make(tmp_path, dies_once, lost, goes_on), grace_seconds=5, on_tick=lambda: None, restarts=2)
    supervisor.on_worker_failure = lambda end, left: told.append((end.process.index, end.code, left))
    exits = {end.process.index: (end.code, end.asked_to_stop) for end in supervisor.run()}
    assert exits == {0: (0, False), 1: (3, False), 2: (0, False)}
    assert [each for each in told if each[0] == 0] == [(0, 137, 1)]
    assert [each for each in told if each[0] == 1] == [(1, 3, 1), (1, 3, 0), (1, 3, -1)]
    assert (tmp_path / "0.log").read_text().count("start") == 2


@pytest.mark.parametrize("code", [77, 78])
def test_a_final_code_of_one_worker_ends_all(tmp_path, code):
    supervisor = Supervisor(
        make(tmp_path, f"raise SystemExit({code})", WAIT_BLOCKED), grace_seconds=5, on_tick=lambda: None, restarts=2
    )
    exits = {end.process.index: end for end in supervisor.run()}
    assert (exits[0].code, exits[1].asked_to_stop) == (code, True)


def test_a_stop_that_takes_its_time_names_who_runs_and_the_seconds_that_are_left(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor_module, "SLOW_STOP_SECONDS", 0)
    monkeypatch.setattr(supervisor_module, "KILL_MARGIN_SECONDS", 0)
    told: list[tuple[list[int], float]] = []
    run(make(tmp_path, STUBBORN), when_up=1, interrupts=1, grace_seconds=1, told=told)
    ((running, seconds),) = told
    assert (running, seconds <= 1) == ([0], True)


def test_a_peer_that_goes_on_after_the_others_finished_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor_module, "FINISHED_PEERS_LIMIT_SECONDS", 1)
    exits = run(make(tmp_path, FINISH, STUBBORN), finish_together=True)
    assert (exits[1].code, exits[1].killed) == (137, True)


def test_programs_of_ones_own_may_end_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor_module, "FINISHED_PEERS_LIMIT_SECONDS", 0)
    slower = (
        f"from pathlib import Path\nwhile 'done' not in Path({str(tmp_path / '0.log')!r}).read_text(): pass\n"
        "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
    )
    exits = run(make(tmp_path, FINISH, slower))
    assert [exits[i].code for i in (0, 1)] == [0, 0]


def test_an_early_finish_is_named_once_and_a_failure_names_who_ends_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor_module, "EARLY_FINISH_SECONDS", 0)
    named: list[int] = []
    failed: list[tuple[int, int]] = []
    supervisor = Supervisor(
        make(tmp_path, FINISH, WAIT_BLOCKED, WAIT_BLOCKED),
        grace_seconds=5,
        on_tick=lambda: (
            os.kill(supervisor._running[1][1].pid, signal.SIGKILL) if named and 1 in supervisor._running else None
        ),
    )
    supervisor.on_early_finish = lambda end, failed: named.append(end.process.index)
    supervisor.on_failure = lambda end: failed.append((end.process.index, end.code))
    exits = supervisor.run()
    assert named == [0]
    assert failed == [(1, 137)]
    assert [end.asked_to_stop for end in exits] == [False, False, True]
    assert sorted(end.ended_at for end in exits) == [end.ended_at for end in exits]


def test_a_process_that_had_finished_is_named_when_another_one_fails(tmp_path):
    fail = f"from pathlib import Path\nwhile not Path({str(tmp_path / 'gone')!r}).exists(): pass\n1 / 0"
    named: list[tuple[Exit, Exit | None]] = []
    supervisor = Supervisor(
        make(tmp_path, FINISH, fail),
        grace_seconds=5,
        on_tick=lambda: None if 0 in supervisor._running else (tmp_path / "gone").touch(),
    )
    supervisor.on_early_finish = lambda end, failed: named.append((end, failed))
    exits = supervisor.run()
    assert named == [(exits[0], exits[1])]
    assert exits[0].process.index == 0


def test_death_by_a_signal_reads_as_in_a_shell(tmp_path):
    assert run(make(tmp_path, "import os; os.kill(os.getpid(), 9)"))[0].code == 137


def test_handlers_are_given_back(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    run(make(tmp_path, FINISH))
    assert signal.getsignal(signal.SIGINT) is before


def test_children_die_with_a_killed_supervisor(tmp_path):
    script = f"""
import os, sys
from pathlib import Path
from tests.cli.test_supervisor import STUBBORN, make
from tpujob.local.supervisor import Supervisor
child = (
    "import os, signal; open({str(tmp_path / "pid")!r}, 'w').write(str(os.getpid()))\\n"
    "while True: signal.pause()"
)
Supervisor(make(Path({str(tmp_path)!r}), child), grace_seconds=5, on_tick=lambda: None).run()
"""
    parent = subprocess.Popen([sys.executable, "-c", script])
    try:
        pid_file = tmp_path / "pid"
        wait_for("the child to be up", lambda: pid_file.exists() and pid_file.read_text())
        child = int(pid_file.read_text())
    finally:
        parent.kill()
        parent.wait()
    wait_for("the child to be gone", lambda: not _is_alive(child))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("lines", "expected"), [(1, ["b"]), (5, ["a", "b"])])
def test_tail_takes_the_last_lines(tmp_path, lines, expected):
    (tmp_path / "log").write_text("a\nb\n")
    assert tail(tmp_path / "log", lines) == expected
    assert tail(tmp_path / "none", lines) == []


def test_a_frozen_launcher_is_told_of_once(tmp_path):
    """Frozen by somebody: nothing ends, nothing works, and no deadline runs."""
    told = []
    (process,) = make(tmp_path, WAIT_BLOCKED)
    freezes = iter([True])

    def on_tick() -> None:
        if "up" in tail(process.log, 1) and next(freezes, False):
            (child,) = supervisor._running.values()
            os.kill(child[1].pid, signal.SIGSTOP)

    def on_frozen(frozen: LocalProcess, pid: int) -> None:
        told.append(frozen.index)
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGTERM)

    supervisor = Supervisor([process], grace_seconds=5, on_tick=on_tick)
    supervisor.on_frozen = on_frozen
    (end,) = supervisor.run()
    assert told == [0]
    assert end.code == 75
