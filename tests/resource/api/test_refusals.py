"""docs/refusals.md says what refused resources are told; UPDATE_GOLDEN=1 rewrites it."""

import os
import re
from pathlib import Path
from typing import Any

from tests.operator.manifests import manifest
from tests.operator.refusals import LEFT_TO_THE_OPERATOR, REFUSED
from tpujob_resource.errors import InvalidJob
from tpujob_resource.rules.load import load_job

PAGE = Path(__file__).parents[3] / "docs" / "refusals.md"
LONGEST = 240
HEAD = """# Refused jobs

Every row is a resource that is refused, and what `tpujob check`, `tpujob run` and the condition `Valid` say of it.
`kubectl apply` refuses those of the first table too, in the words of the CRD's rules. `make generate` writes this page.
"""


def _table(title: str, cases: dict[str, Any]) -> list[str]:
    lines = [f"## {title}", "", "| case | message |", "|---|---|"]
    for name, (body, _) in cases.items():
        try:
            load_job(body)
        except InvalidJob as error:
            lines.append(f"| {name} | {'<br>'.join(map(_cell, error.problems))} |")
        else:
            raise AssertionError(f"{name} is accepted")
    return [*lines, ""]


def _cell(text: str) -> str:
    # Without the list of all fields, which grows.
    plain = text.partition("; known: ")[0].replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")
    shown = plain if len(plain) <= LONGEST else plain[: LONGEST - 1] + "…"
    # A pattern is no link and no emphasis.
    return re.sub(r"([\[\]*_])", r"\\\1", shown)


def test_golden_list_of_refusals() -> None:
    tables = [
        *_table("At admission", REFUSED),
        *_table("By the operator, as soon as it sees the job", LEFT_TO_THE_OPERATOR),
    ]
    page = HEAD + "\n" + "\n".join(tables)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page


def test_there_are_enough_to_mean_something() -> None:
    assert len(REFUSED) >= 70
    load_job(manifest())
