"""What of a source is trained on, and what its rows depend on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

from tpujob_trainer.parsing.references import source_digest

MEBIBYTE = 1 << 20

LossOn = Literal["assistant", "all"]
SpecialTokens = Literal["refuse", "text", "allow"]


@dataclass(frozen=True)
class ChatCall:
    """What a chat template is called with, beside the messages."""

    arguments: str = "{}"
    """Names and values, as JSON."""
    date: str = ""
    """The day that it writes where it asks for one, YYYY-MM-DD; empty: none."""

    @property
    def rule(self) -> str:
        """Another call, another text."""
        return "" if self == ChatCall() else hashlib.blake2b(repr(self).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Column:
    """What of a source is trained on: a column, or the columns that a template asks for."""

    kind: Literal["text", "messages", "tokens", "row"]
    name: str
    """Of the column; of several, all with commas between them."""
    field: str
    """Where it was written, for messages."""
    loss_on: LossOn = "all"
    """What of it is learned."""
    special_tokens: SpecialTokens = "refuse"
    """What becomes of special tokens in texts."""
    template: str | None = None
    """Makes a text of a row."""
    messages: tuple[tuple[str, str], ...] = ()
    """Role and template of each message, which make a conversation of a row."""
    custom: str | None = None
    """The user's function that makes a text of a row, or what the next two say."""
    makes_messages: bool = False
    """A conversation, whose text the tokenizer's chat template writes."""
    makes_tokens: bool = False
    """Token ids."""
    conversation: tuple[str, str] | None = None
    """Of several columns, the one that holds a conversation, and the one that holds the tools of it."""
    chat: ChatCall = ChatCall()
    is_prompt: bool = False
    """A conversation is written up to where its last answer begins."""
    max_rows: int | None = None
    """The first rows, beyond which nothing is read; None: all."""
    max_unpacked_bytes: int = 4096 * MEBIBYTE
    """That a compressed file may become."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(self.name.split(", ")) if self.kind == "row" else (self.name,)

    @property
    def writes_text(self) -> bool:
        """Whether a template or a function writes the text of a row, without a chat template."""
        return self.kind == "row" and not self.makes_messages

    @property
    def rules(self) -> dict[str, str]:
        """What else the rows, their tokens and their loss depend on, by key; only what is not `plain_rule`."""
        written = json.dumps([self.template, self.messages])
        rules = {
            "lossOn": self.loss_on,
            "specialTokens": self.special_tokens,
            "template": hashlib.blake2b(written.encode(), digest_size=8).hexdigest() if self.kind == "row" else "",
            "maxRows": str(self.max_rows or ""),
            "returns": "tokens" if self.makes_tokens else "",
            "chatTemplate": self.chat.rule,
            "custom": f"{self.custom} {source_digest(self.custom, self.field)}" if self.custom else "",
        }
        return {key: rule for key, rule in rules.items() if rule != plain_rule(key, self.kind)}


def plain_rule(key: str, kind: str) -> str:
    """What holds where `Column.rules` says nothing."""
    return {"lossOn": "all", "specialTokens": "allow" if kind == "messages" else "refuse"}.get(key, "")
