"""The page about versions of the API: the promises are fixed text, the table comes from the CRD."""

from __future__ import annotations

from tools.reference.text import HEADER, table
from tpujob_contract import kubernetes_names
from tpujob_resource.crd.build import custom_resource_definition

_PROMISES = f"""\
## What is promised

Both versions have one schema, and every job can be read and written as either. `tpujob`, `kubectl`, Kueue and the
operator take both.

- Fields of `spec` and `status`, reasons of conditions, exit codes, names of metrics, and the labels of pods are stable:
  each keeps its name, its type and its meaning as long as `{kubernetes_names.NEWEST_VERSION}` is served.
- New fields, and new values of `phase`, `reason` and the like, may come with every release. Programs ignore those they
  do not know.
- Texts of messages, Events and logs, pod names beyond the documented labels, and default values that the log reports
  as derived (`mesh`, parts of a batch) are not stable.
- A field that is to go is first deprecated: its description says since when and what takes its place, the changelog
  names it, and `tpujob migrate` rewrites it. It works for two minor releases more. No field is deprecated today.

## Move to {kubernetes_names.NEWEST_VERSION}

```bash
tpujob migrate job.yaml           # prints the difference
tpujob migrate job.yaml --write   # changes only those words: comments, order and other objects stay
```

Jobs that are in the cluster need no change. The API server warns whoever writes
`{kubernetes_names.API_VERSION}`; nothing else differs.

## What an upgrade may do

| | upgrade | rollback to the release before |
|---|---|---|
| running jobs | keep JobSet, pods and counts; no restart | the same |
| the definition | gets versions and fields, loses none | loses the newer ones |
| what is stored | stays `{kubernetes_names.VERSION}` | can be read: it is the version that the older release has |
| a spec with newer fields | | the fields are dropped when it is next written: suspend or delete such jobs first |
| files in `{kubernetes_names.NEWEST_VERSION}` | | kubectl: `no matches for kind`; `tpujob submit` takes them |
| checkpoints | are read | may hold what an older trainer refuses: keep `trainerImage` of such jobs |

An edit of a job, its next incarnation or a restart in new pods may use the newer release's images and JobSet; nothing
does so to a job that is left alone.

`{kubernetes_names.VERSION}` stays the stored version in this release, since an operator that can be rolled back to
reads no other. The release after the next may store `{kubernetes_names.NEWEST_VERSION}`; `{kubernetes_names.VERSION}`
stays served, as the owner references of running JobSets name it.

A test plays upgrade, rollback and upgrade with running jobs of both versions, on a real API server and with the
operator of 0.1: `tests/control_plane/test_versions.py`; `make upgrade` plays it with 50 jobs.
"""


def api() -> str:
    """The versions of the API, and what they promise."""
    rows = [
        (
            f"`{kubernetes_names.GROUP}/{each['name']}`",
            *("yes" if each.get(key) else "no" for key in ("served", "storage", "deprecated")),
        )
        for each in custom_resource_definition()["spec"]["versions"]
    ]
    return f"{HEADER}# Versions of the API\n\n{table(('version', 'served', 'stored', 'deprecated'), rows)}\n{_PROMISES}"
