"""Profiles of several processes at once: requests from this machine or in their containers, and the files."""

import base64
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tpujob.cluster import executing
from tpujob.cluster.client import Cluster
from tpujob.output.errors import CommandError
from tpujob_contract import profiling
from tpujob_contract.profiling import Message
from tpujob_contract.typed import object_in
from tpujob_launcher.reports import profiling as taking


def take_here(
    ports: Sequence[int], secret: str, *, steps: int, run: str, is_fetched: bool
) -> Iterator[tuple[int, Message]]:
    """Takes profiles of a run on this machine, which asks for its secret; messages have the index in `ports`."""
    found: queue.SimpleQueue[tuple[int, Message] | None] = queue.SimpleQueue()

    def take(number: int, port: int) -> None:
        for message in taking.messages(port, secret, steps=steps, run=run, is_fetched=is_fetched):
            found.put((number, message))
        found.put(None)

    for number, port in enumerate(ports):
        threading.Thread(target=take, args=(number, port), daemon=True).start()
    left = len(ports)
    while left:
        if (each := found.get()) is None:
            left -= 1
        else:
            yield each


def take_in_pods(
    cluster: Cluster, pods: Sequence[Mapping[str, Any]], *, steps: int, run: str, is_fetched: bool
) -> Iterator[tuple[int, Message]]:
    """Takes profiles of the processes in pods; yields messages with the pod's index in `pods`."""
    command = ["python", "-m", profiling.__name__, "--steps", str(steps), "--run", run]
    said: dict[int, list[str]] = {}
    has_failed: set[int] = set()
    for each in executing.run(cluster, pods, [*command, *(["--fetch"] if is_fetched else [])]):
        if isinstance(each, executing.Ended):
            if each.exit_code and each.pod not in has_failed:
                words = each.message or " ".join(said.get(each.pod, [])[-1:]) or f"exit code {each.exit_code}"
                yield each.pod, {"error": words}
        elif each.is_error or not (message := object_in(each.text)):
            said.setdefault(each.pod, []).append(each.text)
        else:
            if "error" in message or message.get("state") == "failed":
                has_failed.add(each.pod)
            yield each.pod, message


class Files:
    """The files of profiles, assembled from their parts in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun: set[Path] = set()

    def add(self, message: Message) -> None:
        """Adds a part of a file.

        Raises:
            CommandError: its name leads out of the folder, or the folder cannot be written to.
        """
        path = (self._folder / message["name"]).resolve()
        if not path.is_relative_to(self._folder.resolve()):
            raise CommandError(f"--to: the process named a file outside of the folder: {message['name']}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab" if path in self._begun else "wb") as file:
                file.write(base64.b64decode(message["data"]))
        except OSError as error:
            raise CommandError(f"--to: cannot write {path}: {error.strerror}") from error
        self._begun.add(path)


def sentence(message: Message) -> str | None:
    """The text of a message for people; None: it has none."""
    if "error" in message:
        return str(message["error"])
    match message.get("state"):
        case "waiting":
            return "waiting for the next step"
        case "tracing":
            first, last = message["steps"]
            return f"tracing steps {first} to {last}"
        case "done":
            return f"saved in {message['folder']}" if message["folder"] else "taken; the job has no checkpointDir"
        case "failed":
            return str(message["message"])
    return None
