"""The commands of the command line for an extraction: `status|verify|merge DIRECTORY`, JSON on standard output.

Exit status: 0; 77 if there is no extraction; 1 if `verify` found a problem, or `merge` is not possible yet.
"""

import argparse
import hashlib
import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

import google_crc32c

from tpujob_trainer.corpus.extract import description, merge, progress
from tpujob_trainer.corpus.extract.merge import Problem
from tpujob_trainer.corpus.extract.progress import Finished
from tpujob_trainer.corpus.workers import claims, failures, results
from tpujob_trainer.corpus.workers.results import UnitResult
from tpujob_trainer.data.manifest.table import read_unit_rows
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.storage.directory import Directory, ListedFile
from tpujob_trainer.storage.errors import used
from tpujob_trainer.values import programs
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError, TrainerError
from tpujob_trainer.values.json_object import damaged, json_object

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Read:
    """A result as it was read; or the error, if it is damaged."""

    content: bytes
    time: float
    """When it was written."""
    result: UnitResult | ConfigurationError


class Inspection:
    """An output directory that is inspected repeatedly: each result is read once."""

    def __init__(self, url: str) -> None:
        """Reads what all files have in common.

        Raises:
            NotFoundError: there is no extraction.
            ConfigurationError: its description is damaged.
        """
        self.directory = Directory(url)
        try:
            content = self.directory.read(description.NAME)
        except FileNotFoundError as error:
            raise NotFoundError(
                f"{url}: no extraction has begun there ({description.NAME} is missing); give the spec.checkpointDir "
                "of a job with task: extract"
            ) from error
        self.described: dict[str, Any] = description.parse(content, url)
        self._units: int = self.described.get("units", -1)
        rows = self.described.get("rows")
        for key, count in (("units", self._units), ("rows", 0 if rows is None else rows)):
            if type(count) is not int or count < 0:
                where = f"{description.DIRECTORY}: {url}/{description.NAME}"
                raise damaged(where, f"{key}: {str(count)[:20]}", description.REMEDY)
        self._read: dict[str, _Read] = {}

    def finished(self) -> list[Finished]:
        """All units that are done.

        Raises:
            ConfigurationError: a result is damaged.
        """
        return self._finished(self._results())

    def _finished(self, read: Mapping[str, _Read]) -> list[Finished]:
        for each in read.values():
            if isinstance(each.result, ConfigurationError):
                raise each.result
        return [Finished(each.result, each.time) for each in read.values() if isinstance(each.result, UnitResult)]

    def _results(self) -> dict[str, _Read]:
        """Every result that exists, by the name of its object."""
        files = self.directory.files(results.FOLDER)
        listed = {file.name: file.time for file in files if self._unit_of(file.name)}
        kept = {name: each for name, each in self._read.items() if listed.get(name) == each.time}
        for name, content in self.directory.read_many([name for name in listed if name not in kept]).items():
            kept[name] = _Read(content, listed[name], self._parsed(content, name))
        self._read = {name: kept[name] for name in sorted(kept)}
        return self._read

    def status(self) -> dict[str, Any]:
        """The figures of `tpujob extract status`."""
        held = self._contents(claims.FOLDER, "worker")
        failed = self._contents(failures.FOLDER, "worker", "cause", "message")
        return progress.summary(self.described, self.finished(), held, failed)

    def verify(self, *, read_all: bool, repair: bool = False) -> dict[str, Any]:
        """The problems and leftover files; if `repair`, the results of damaged units are withdrawn."""
        problems, found = self._checked(self._results(), read_all=read_all)
        return {**found, "given_back": self._withdraw(problems)} if repair else found

    def withdraw_damaged(self, once: Callable[[str, Callable[[], bytes]], bytes]) -> bytes:
        """Withdraws results whose files are gone, or of another size or checksum in a listing; no file is read.

        Args:
            once: what its second argument returns, for all workers that give the same name: those of the same listing.
        """
        files = [*self.directory.files(results.FOLDER), *self.directory.files(results.OUTPUTS)]
        name = f"files-{hashlib.blake2b(repr(files).encode(), digest_size=8).hexdigest()}"
        return once(name, lambda: json.dumps(self._withdraw(self._checked(self._results(), reads=False)[0])).encode())

    def _withdraw(self, problems: Iterable[Problem]) -> list[int]:
        """The units that are to be made again: their results are withdrawn, unless they have changed meanwhile."""
        texts = {each.unit: each.text for each in problems if each.unit is not None}
        withdrawn = []
        with used(self.directory.url):
            for unit, text in sorted(texts.items()):
                name = results.name_of(unit)
                if results.withdraw(open_bucket(self.directory.url), name, self._read[name].content):
                    logger.warning("Unit %d is to be made again: %s", unit, text)
                    withdrawn.append(unit)
        return withdrawn

    def _checked(
        self, read: Mapping[str, _Read], *, read_all: bool = False, partial: bool = False, reads: bool = True
    ) -> tuple[list[Problem], dict[str, Any]]:
        """The problems, and what `verify` prints; units that are not done are a problem unless `partial`."""
        finished = [each.result for each in read.values() if isinstance(each.result, UnitResult)]
        listed = {file.name: file for file in self.directory.files(results.OUTPUTS)}
        problems = [
            Problem(str(each.result), *self._unit_of(name))
            for name, each in read.items()
            if isinstance(each.result, ConfigurationError)
        ]
        problems += merge.problems(
            finished,
            listed,
            units=None if partial else self._units,
            unit_rows=read_unit_rows(self.directory.url),
            read_crc32c=self._crc32c if reads else None,
            read_all=read_all,
        )
        left = merge.leftovers(finished, listed)
        return problems, {
            "problems": [each.text for each in problems],
            "units": len(finished),
            "rows": sum(result.rows for result in finished),
            "files": sum(len(result.files) for result in finished),
            "bytes": sum(result.num_bytes for result in finished),
            "not_finite": sum(result.not_finite for result in finished),
            "leftover_files": len(left),
            "leftover_bytes": sum(file.bytes for file in left),
        }

    def merge(self, *, remove_leftovers: bool, partial: bool = False) -> dict[str, Any]:
        """Writes index, statistics and card; if `partial`, of the units that are done so far.

        Raises:
            TrainerError: something is wrong or missing.
        """
        if partial and remove_leftovers:
            raise TrainerError(
                "--remove-leftovers: files of a unit that is not done yet may be on their way; leave --partial out"
            )
        # Listed once: what workers finish from now on was not verified, and is not merged.
        read = self._results()
        _, checked = self._checked(read, partial=partial)
        if checked["problems"]:
            raise TrainerError(
                f"{self.directory.url}: {len(checked['problems'])} problems, the first: {checked['problems'][0]}; "
                "`tpujob extract verify` names all"
            )
        finished = [each.result for each in self._finished(read)]
        if not finished:
            raise TrainerError(f"{self.directory.url}: no unit is done yet; wait for the first")
        found = merge.statistics(finished)
        self.directory.write(merge.INDEX, merge.index(finished))
        self.directory.write(merge.STATISTICS, (json.dumps(found, indent=1) + "\n").encode())
        self.directory.write(merge.CARD, merge.card(self.described, finished, found).encode())
        if remove_leftovers:
            listed = {file.name: file for file in self.directory.files(results.OUTPUTS)}
            for file in merge.leftovers(finished, listed):
                self.directory.remove(file.name)
        written = [merge.INDEX, merge.STATISTICS, merge.CARD]
        return {**checked, "of_units": self._units, "written": written, "statistics": found}

    def _contents(self, folder: str, *keys: str) -> list[dict[str, Any]]:
        """The objects of a folder that have text for these keys; others are damaged, or nobody's."""
        found = []
        for file in self.directory.files(folder):
            try:
                found.append({**json_object(self.directory.read(file.name)), "time": file.time})
            except (FileNotFoundError, ValueError):  # released since it was listed, or damaged
                continue
        return [each for each in found if all(isinstance(each.get(key), str) for key in keys)]

    def _unit_of(self, name: str) -> list[int]:
        """The unit whose result has this name; empty: none has it."""
        return results.units_in([name], self._units)

    def _parsed(self, content: bytes, name: str) -> UnitResult | ConfigurationError:
        where = f"{self.directory.url}/{name}"
        try:
            found = results.parse(content, where)
        except ConfigurationError as error:
            return error
        if [found.unit] == self._unit_of(name):
            return found
        return damaged(f"{description.DIRECTORY}: {where}", f"unit {found.unit}", results.REMEDY)

    def _crc32c(self, file: ListedFile) -> str:
        return f"{google_crc32c.value(self.directory.read(file.name, file.bytes)):08x}"


def main(arguments: list[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Prints one JSON object, or with --every one each time; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tpujob_trainer.corpus.extract.inspection", description=main.__doc__
    )
    parser.add_argument("verb", choices=("status", "verify", "merge"))
    parser.add_argument("directory")
    parser.add_argument("--every", type=float, help="status: print again after so many seconds, until all is done")
    parser.add_argument("--read-all", action="store_true", help="verify: read all files")
    parser.add_argument("--repair", action="store_true", help="verify: give damaged units back to the workers")
    parser.add_argument("--remove-leftovers", action="store_true", help="merge: remove files of no result")
    parser.add_argument("--partial", action="store_true", help="merge: only what is done so far")
    options = parser.parse_args(arguments)
    try:
        inspection = Inspection(options.directory)
        if options.verb == "verify":
            found = inspection.verify(read_all=options.read_all, repair=options.repair)
        elif options.verb == "merge":
            found = inspection.merge(remove_leftovers=options.remove_leftovers, partial=options.partial)
        else:
            found = inspection.status()
            while options.every and found["done"] < found["units"]:
                _print(found, out)
                time.sleep(options.every)
                found = inspection.status()
    except TrainerError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    _print(found, out)
    return 1 if found.get("problems") else 0


def _print(value: dict[str, Any], out: TextIO) -> None:
    out.write(json.dumps(value) + "\n")
    out.flush()


if __name__ == "__main__":
    programs.end(main())
