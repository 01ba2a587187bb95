"""Jinja templates that render texts in a sandbox, and mark which characters are learned.

The same environment as in Hugging Face transformers (utils/chat_template_utils.py): a sandbox in which a template can
change nothing, and call only what is provided here. `strftime_now` is not provided: a text must not depend on the date.

The model learns to write the text between `{% generation %}` and `{% endgeneration %}`. Because filters and macros may
move this text, the template puts it between two marks, which are then removed.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

_SECRET = secrets.token_hex(8)  # not in any input text, and removed from every text that is returned
_BEGIN, _END = f"\x02{_SECRET}(", f"\x02{_SECRET})"
_MARKS = re.compile(f"({re.escape(_BEGIN)}|{re.escape(_END)})")

RENDER_ERRORS = (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError)
"""Errors that a template may raise for values that it was not written for."""


@dataclass(frozen=True)
class Rendered:
    """A text, and which part of it is learned."""

    text: str
    learned: tuple[tuple[int, int], ...]
    """Characters [begin, end), ascending, without overlap."""

    @classmethod
    def whole(cls, text: str) -> Rendered:
        """A text that is learned as a whole."""
        return cls(text, ((0, len(text)),))


class Template:
    """A compiled template.

    Raises:
        jinja2.TemplateError: it is not Jinja.
    """

    def __init__(self, source: str, *, strict: bool = False) -> None:
        """Compiles the template; a `strict` one raises for undefined names, another one writes nothing for them."""
        undefined = jinja2.StrictUndefined if strict else jinja2.Undefined
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=undefined,
            keep_trailing_newline=strict,  # chat templates are written for an environment that drops it
            extensions=[_Generation, jinja2.ext.loopcontrols],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        try:
            self._template = environment.from_string(source)
            tree = environment.parse(source)
        except RecursionError:
            raise jinja2.TemplateSyntaxError("brackets are nested too deeply", 1) from None
        self.names = frozenset(jinja2.meta.find_undeclared_variables(tree)) - set(environment.globals)
        """The names of the values that it uses."""
        self.marks_learned = any(True for _ in tree.find_all(jinja2.nodes.CallBlock)) and "generation" in source
        """Whether it marks what is learned."""

    def __call__(self, **values: Any) -> Rendered:
        """The text for these values.

        Raises:
            RENDER_ERRORS: it refuses them, or a value that it needs is missing.
        """
        return _without_marks(self._template.render(**values))


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what is learned."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller: Callable[[], str]) -> str:
        return f"{_BEGIN}{caller()}{_END}"


def _without_marks(text: str) -> Rendered:
    pieces: list[str] = []
    learned: list[tuple[int, int]] = []
    at, depth, begin = 0, 0, 0
    for piece in _MARKS.split(text):
        if piece == _BEGIN:
            if depth == 0:
                begin = at
            depth += 1
        elif piece == _END:
            depth -= 1
            if depth == 0 and at > begin:
                learned.append((begin, at))
        else:
            pieces.append(piece)
            at += len(piece)
    return Rendered("".join(pieces), tuple(learned))


def without_nothing(value: Any) -> Any:
    """A value without the keys that are null: Arrow gives each struct the keys of all structs."""
    if isinstance(value, Mapping):
        return {key: without_nothing(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nothing(item) for item in value]
    return value


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter of transformers: JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class RefusedByTemplate(jinja2.TemplateError):
    """The template itself refused the values: it called `raise_exception`."""


def _refuse(message: str) -> None:
    raise RefusedByTemplate(message)
