"""Which columns of a source are trained on, and the settings that its rows depend on."""

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

from tpujob_trainer.values.references import source_digests

MEBIBYTE = 1 << 20

LossOn = Literal["assistant", "all"]
SpecialTokens = Literal["refuse", "text", "allow"]


@dataclass(frozen=True)
class ChatCall:
    """The arguments of a chat template, apart from the messages."""

    arguments: str = "{}"
    """Names and values, as JSON."""
    date: str = ""
    """The date for a template that asks for today's, YYYY-MM-DD; empty: none."""

    @property
    def rule(self) -> str:
        """A digest of the call, on which the text depends; empty for the default call."""
        return "" if self == ChatCall() else hashlib.blake2b(repr(self).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Column:
    """The part of a source that is trained on: a column, or the columns that a template uses."""

    kind: Literal["text", "messages", "tokens", "row"]
    name: str
    """Of the column; of several, all names, separated by commas."""
    field: str
    """The field of the configuration that names it, for messages."""
    loss_on: LossOn = "all"
    """Which part of it is learned."""
    special_tokens: SpecialTokens = "refuse"
    """How special tokens in texts are handled."""
    template: str | None = None
    """Template that makes a text from a row."""
    messages: tuple[tuple[str, str], ...] = ()
    """Role and template of each message, which make a conversation from a row."""
    custom: str | None = None
    """The user's function that makes a text from a row, or what the next two fields state."""
    makes_messages: bool = False
    """Whether a row becomes a conversation, whose text the tokenizer's chat template writes."""
    makes_tokens: bool = False
    """Whether a row becomes token ids."""
    conversation: tuple[str, str] | None = None
    """Of several columns, the one with the conversation, and the one with its tools."""
    chat: ChatCall = ChatCall()
    is_prompt: bool = False
    """Whether a conversation is written only up to the start of its last answer."""
    max_rows: int | None = None
    """How many rows are read, from the first on; None: all."""
    max_unpacked_bytes: int = 4096 * MEBIBYTE
    """The largest size of a compressed file after decompression."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(self.name.split(", ")) if self.kind == "row" else (self.name,)

    def field_of(self, name: str) -> str:
        """The field that names one of the columns."""
        is_tools = self.conversation is not None and name == self.conversation[1]
        return f"{self.field.rpartition('.')[0]}.toolsColumn" if is_tools else self.field

    @property
    def writes_text(self) -> bool:
        """Whether a template or a function writes the text of a row, without a chat template."""
        return self.kind == "row" and not self.makes_messages

    @property
    def rules(self) -> dict[str, str]:
        """Further settings that rows, tokens and loss depend on, by key; those equal to `plain_rule` are left out."""
        written = json.dumps([self.template, self.messages])
        rules = {
            "lossOn": self.loss_on,
            "specialTokens": self.special_tokens,
            "template": hashlib.blake2b(written.encode(), digest_size=8).hexdigest() if self.kind == "row" else "",
            "maxRows": str(self.max_rows or ""),
            "returns": "tokens" if self.makes_tokens else "",
            "chatTemplate": self.chat.rule,
            "custom": self.custom or "",
        }
        if self.custom:
            rules |= {f"{CODE}{name}": digest for name, digest in source_digests(self.custom, self.field).items()}
        return {key: rule for key, rule in rules.items() if rule != plain_rule(key, self.kind)}


CODE = "custom's "
"""Before the name of a definition, among the rules."""


def plain_rule(key: str, kind: str) -> str:
    """The value of a setting that `Column.rules` omits."""
    return {"lossOn": "all", "specialTokens": "allow" if kind == "messages" else "refuse"}.get(key, "")
