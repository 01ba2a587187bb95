"""Takes a profile of the training process in this container.

    python -m tpujob_contract.profiling --steps 5 --run look

The process listens on its report port, and accepts such requests only from its own machine. `tpujob profile` starts
this program in the container, which writes each message as a line of JSON.
"""

import argparse
import base64
import http.client
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from tpujob_contract import environment, ports
from tpujob_contract.profiling import PATH, SCHEME, Message

POLL_SECONDS = 0.5
REQUEST_SECONDS = 10
CHUNK_BYTES = 48 * 1024
NOT_FOUND = 404


def messages(port: int, secret: str, *, steps: int, run: str, is_fetched: bool) -> Iterator[Message]:
    """Takes a profile of the process with report port `port`, and yields each change of its state, then its files.

    `secret` is the job's, or empty. At most `MOST_STEPS` are traced, and the name of a run must match `RUN_PATTERN`.
    """
    try:
        status, answer = _ask(port, "POST", secret, {"steps": steps, "run": run})
        if status != http.client.ACCEPTED:
            yield {"error": _refusal(status, answer)}
            return
        last: Message = {}
        while last.get("state") not in ("done", "failed"):
            _, profile = _ask(port, "GET")
            if profile.get("run") != run:
                yield {"error": f"profile {run} gave way to another one"}
                return
            if profile != last:
                yield profile
            last = profile
            time.sleep(POLL_SECONDS)
    except (OSError, http.client.HTTPException, ValueError) as error:
        yield {"error": f"no training process answers on port {port}; it ended, or does not run yet ({error})"}
        return
    if is_fetched:
        yield from _files(last["files"])


def _refusal(status: int, answer: Mapping[str, Any]) -> str:
    if status == NOT_FOUND:
        return "this program takes no profiles: the trainer does, while it trains"
    return str(answer.get("message"))


def _ask(
    port: int, method: str, secret: str = "", body: Optional[Mapping[str, Any]] = None
) -> Tuple[int, Dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_SECONDS)
    try:
        headers = {"Content-Type": "application/json", **({"Authorization": SCHEME + secret} if secret else {})}
        connection.request(method, PATH, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        content = response.read()
        is_json = (response.getheader("Content-Type") or "").startswith("application/json")
        return response.status, json.loads(content) if is_json else {}
    finally:
        connection.close()


def _files(files: Mapping[str, str]) -> Iterator[Message]:
    for name, path in files.items():
        with Path(path).open("rb") as file:
            while data := file.read(CHUNK_BYTES):
                yield {"name": name, "data": base64.b64encode(data).decode()}


def main() -> int:
    """Takes a profile of the process in this container; returns the exit code, which is 1 after a failure."""
    parser = argparse.ArgumentParser(description="Takes a profile of the training process in this container.")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--fetch", action="store_true")
    options = parser.parse_args()
    port = int(os.environ.get(environment.REPORT_PORT) or ports.REPORT)
    has_failed = False
    secret = os.environ.get(environment.SECRET, "")
    for message in messages(port, secret, steps=options.steps, run=options.run, is_fetched=options.fetch):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
        has_failed = has_failed or "error" in message or message.get("state") == "failed"
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
