"""A job in sentences: its state, the reasons for it, what happened, what to do. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from tpujob.cluster.table import age
from tpujob.output.words import counted
from tpujob_contract.exit_codes import describe as describe_code
from tpujob_resource.models.job import other_manager
from tpujob_resource.models.phases import Phase
from tpujob_resource.models.restart_causes import RESTARTS

ALARMS = ("Blocked", "Stalled")
"""Conditions that are bad when true."""
HEALTH = ("CheckpointHealthy", "DataHealthy", "FullSize")
"""Conditions that are bad when false."""
MOST_EVENTS = 8


def describe(
    job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]], now: datetime
) -> Iterator[str]:
    """Lines about a job.

    Args:
        job: The TpuTrainingJob.
        pods: Its pods.
        events: Warning events about it, its JobSet and its pods.
        now: For ages.
    """
    status = job.get("status") or {}
    yield _headline(job, status, now)
    yield from _manager(job["spec"])
    if message := status.get("message"):
        yield f"  {message}"
    for warning in status.get("warnings") or ():
        yield f"  warning: {warning}"
    yield from _progress(status, now)
    yield from _troubles(status)
    yield from _restarts(status)
    yield from _at_the_end(job["spec"], status)
    yield from _avoided_nodes(status)
    yield from _failure(status, now)
    yield from _waiting_pods(pods)
    yield from _events(events, now)
    yield from _advice(job, status)


def _headline(job: Mapping[str, Any], status: Mapping[str, Any], now: datetime) -> str:
    spec, metadata = job["spec"], job["metadata"]
    shape = spec["accelerator"]
    if (spec.get("slices") or 1) > 1:
        shape = f"{spec['slices']} slices of {shape}"
    if spec.get("workers"):
        shape = f"{spec['workers']} workers of {shape}"
    manager = other_manager(spec.get("managedBy"))
    seen_by = "the operator" if manager is None else manager
    phase = status.get("phase") or f"not seen by {seen_by} yet"
    made = age(metadata.get("creationTimestamp"), now)
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}: {phase}. {shape}, created {made} ago."


def _manager(spec: Mapping[str, Any]) -> Iterator[str]:
    manager = other_manager(spec.get("managedBy"))
    if manager is not None:
        yield f"  managed by: {manager}, which writes this status; this cluster's operator makes no pods for the job"
    if manager is not None and spec.get("suspend"):
        yield "  suspend is true: its pods go, and the status stays that of the last run"


def _progress(status: Mapping[str, Any], now: datetime) -> Iterator[str]:
    figures, restarts = status.get("progress") or {}, status.get("restarts") or {}
    if status.get("hosts") is not None:
        yield f"  hosts: {status.get('hostsReady') or 0} of {status['hosts']} ready"
    if status.get("step") is not None:
        parts = [f"step {status['step']}" + (f" of {status['steps']}" if status.get("steps") else "")]
        if figures.get("loss") is not None:
            parts.append(f"loss {figures['loss']:.4g}")
        if figures.get("tokensPerSecond") is not None:
            parts.append(f"{figures['tokensPerSecond']:,.0f} tokens/s")
        yield f"  progress: {', '.join(parts)}"
    if restarts.get("inThesePods"):
        times = counted(restarts["inThesePods"], "restart")
        yield f"  {times} in the same pods; the last after {restarts.get('inPlaceCause') or 'an unknown cause'}"
    if figures.get("stragglerMessage"):
        yield f"  behind the others: {figures['stragglerMessage']}"
    if figures.get("preflightMessage"):
        yield f"  slow or odd hosts, found before the first step: {figures['preflightMessage']}"
    yield from _units(figures.get("units"))
    if status.get("lastCheckpointStep") is not None:
        since = age(status.get("lastCheckpointTime"), now)
        yield f"  last checkpoint: step {status['lastCheckpointStep']}, {since} ago"
    elif status.get("step") or (restarts.get("total") and status.get("steps")):
        yield "  last checkpoint: none yet"


def _units(units: Mapping[str, Any] | None) -> Iterator[str]:
    """The progress of workers that share a list of units."""
    if units is None:
        return
    parts = [f"{units['done']:,} of {units['total']:,} done"]
    parts += [f"{units[key]:,} {key}" for key in ("claimed", "left") if units.get(key) is not None]
    if units.get("rowsPerSecond") is not None:
        parts.append(f"{units['rowsPerSecond']:,.1f} rows/s")
    yield f"  units: {', '.join(parts)}"
    if units.get("failures"):
        causes = ", ".join(f"{cause} {count:,}" for cause, count in sorted(units["failures"].items()))
        yield f"  units that were not finished, by cause: {causes}"


def _troubles(status: Mapping[str, Any]) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        is_bad = (condition["type"] in ALARMS and condition["status"] == "True") or (
            condition["type"] in HEALTH and condition["status"] == "False"
        )
        if is_bad and condition.get("message") != status.get("message"):
            yield f"  {condition['type']} ({condition['reason']}): {condition.get('message', '')}"


def _restarts(status: Mapping[str, Any]) -> Iterator[str]:
    restarts = status.get("restarts") or {}
    if not restarts.get("total"):
        return
    kinds = {cause.label: restarts.get(cause.status_field.rpartition(".")[2]) for cause in RESTARTS}
    kinds |= {"in the same pods": restarts.get("inPlace"), "charged since the last progress": restarts.get("charged")}
    known = ", ".join(f"{kind} {count}" for kind, count in kinds.items() if count)
    yield f"  restarts: {restarts['total']}" + (f" ({known})" if known else "")
    yield from _in_place(restarts.get("inPlaceAttempts") or ())


def _in_place(attempts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The ends of the last attempts after which all programs restarted in the same pods."""
    if attempts:
        yield "  the last restarts in the same pods:"
    for each in attempts:
        what = each["cause"].lower()
        if each.get("host"):
            what += f" of {each['host']}"
        if each.get("exitCode") is not None:
            what += f", exit code {describe_code(each['exitCode'])}"
        parts = [what]
        if each.get("step") is not None:
            parts.append(f"at step {each['step']}")
        if each.get("nextStep") is not None:
            parts.append(f"on from step {each['nextStep']}")
        if each.get("seconds") is not None:
            parts.append(f"{each['seconds']} s without training")
        yield f"    attempt {each['attempt']}.{each['number'] - 1}: {'; '.join(parts)}"
        for line in (each.get("message") or "").splitlines():
            yield f"      {line}"


def _at_the_end(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[str]:
    """For a failed job: its crashes out of those allowed, and what a retry would lose."""
    if status.get("phase") != Phase.FAILED:
        return
    used, allowed = (status.get("restarts") or {}).get("charged"), (spec.get("restarts") or {}).get("crashes")
    if used is not None and allowed is not None:
        yield f"  crashes since the last progress: {used} of {allowed} allowed"
    step, saved = status.get("step"), status.get("lastCheckpointStep")
    if step is not None and saved is not None:
        lost = f"steps {saved + 1} to {step} are done again" if step > saved else "nothing is lost"
        yield f"  a retry goes on from step {saved}: {lost}"
    elif step is not None:
        yield "  a retry starts from step 0: no checkpoint was committed"


def _avoided_nodes(status: Mapping[str, Any]) -> Iterator[str]:
    for entry in status.get("nodeFailures") or ():
        if entry.get("avoidedLabel"):
            label = f"{entry['avoidedLabel']}={entry.get('avoidedValue', '')}"
            yield f"  avoids: {label}, after {entry.get('failures', 0)} crashes on node {entry['node']}"


def _failure(status: Mapping[str, Any], now: datetime) -> Iterator[str]:
    failure = status.get("failure")
    if not failure:
        return
    where = failure.get("host") or failure.get("pod") or "a host"
    code = failure.get("exitCode")
    node = f" on node {failure['node']}" if failure.get("node") else ""
    how = "" if code is None else f" with exit code {describe_code(code)}"
    when = f", {age(failure['time'], now)} ago" if failure.get("time") else ""
    yield f"  first failure of the last failed attempt: {where}{node}{how}{when}"
    for line in (failure.get("message") or "").splitlines():
        yield f"    {line}"


def _waiting_pods(pods: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Pods that do not start, each reason once."""
    waiting: dict[str, list[str]] = {}
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses") or ():
            state = container.get("state", {}).get("waiting")
            if state and state.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
                why = f"{state['reason']}: {state.get('message', '')}".rstrip(": ")
                waiting.setdefault(why, []).append(pod["metadata"]["name"])
    for why, names in waiting.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"  {names[0]}{more} cannot start: {why}"


def _events(events: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    latest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for event in sorted(events, key=lambda e: e.get("lastTimestamp") or e.get("eventTime") or ""):
        latest[event.get("reason", ""), event.get("message", "")] = event
    if latest:
        yield "  warnings:"
    for event in list(latest.values())[-MOST_EVENTS:]:
        when = age(event.get("lastTimestamp") or event.get("eventTime"), now)
        name = event.get("involvedObject", {}).get("name", "")
        yield f"    {when} ago, {name}: {event.get('reason')}: {event.get('message')}"


def _advice(job: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[str]:
    name = job["metadata"]["name"]
    match status.get("phase"):
        case Phase.SUSPENDED:
            yield f"To go on: tpujob resume {name}"
        case Phase.FAILED:
            yield f"Its logs: tpujob logs {name}. How each attempt ended: tpujob logs {name} --attempts"
            yield f"To try again from the last checkpoint: tpujob retry {name}"
        case Phase.STALLED | Phase.RESTARTING:
            yield f"The logs, first failure first: tpujob logs {name}"
        case None if other_manager(job["spec"].get("managedBy")) is None:
            yield "Does the operator run? tpujob doctor"
