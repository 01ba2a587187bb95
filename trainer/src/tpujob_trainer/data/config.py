"""The `data` block of a trainer configuration."""

import dataclasses
import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from jinja2 import TemplateError

from tpujob_contract import storage_address
from tpujob_trainer.data.column import MEBIBYTE, ChatCall, Column, LossOn, SpecialTokens
from tpujob_trainer.data.template import Template
from tpujob_trainer.values.from_mapping import Range
from tpujob_trainer.values.references import require_reference

FIELD = "spec.trainer.data"

FormatName = Literal["parquet", "arrow", "arrayrecord", "tfrecord", "webdataset", "jsonl", "csv", "text"]

SPECIAL_NAMES = frozenset({"bos_token", "eos_token", "unk_token", "pad_token"})
"""Names that templates get from the tokenizer; all other names are columns."""
OF_CHAT = SPECIAL_NAMES | {"messages", "tools", "documents", "add_generation_prompt"}
"""Names that the trainer passes to chat templates."""


@dataclass(frozen=True, kw_only=True)
class MessageConfig:
    """A message of the conversation that a row becomes."""

    role: str
    """Who says it, as the tokenizer's chat template calls them: system, user, assistant."""
    content: str
    """What is said: a template in which the row's columns are names, as in {{ query }}."""


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """Where rows come from, and which of their columns is trained on. One of path and dataset."""

    one_of: ClassVar[tuple[str, ...]] = ("path", "dataset")
    """Keys of which exactly one is given."""

    path: str | None = None
    """A file, a folder (all its levels) or a pattern; local or a URL, as in gs://bucket/text/*.parquet. Parquet, Arrow,
    jsonl and CSV (also .gz and .zst), text, array records, TFRecords, webdataset tars, what datasets.save_to_disk
    writes, or the folder of one version of a TFDS data set."""
    dataset: str | None = None
    """A data set of the Hugging Face hub, as in HuggingFaceFW/fineweb-edu, or a folder laid out like one."""
    dataset_config: str | None = None
    """Which of the dataset's configurations (the hub calls them subsets). Default: its default one."""
    split: str | None = None
    """Which split of a dataset, a DatasetDict on disk or a TFDS folder (default: train), or of a folder whose names say
    train, test or validation (default: all files)."""
    revision: str | None = None
    """Branch, tag or commit of the dataset. The commit it means when the run begins is kept for the whole run."""
    format: FormatName | None = None
    """Format of the files; others in the folder are left out. Default: follows from their names."""
    text_column: str = "text"
    """The column, or the key of a record, that holds the text; one row is one document."""
    messages_column: str | None = None
    """The column that holds conversations, lists of role and content; the tokenizer's chat template makes them text.
    Instead of textColumn."""
    tokens_column: str | None = None
    """The column that holds token ids, made by the tokenizer named; each row is a whole document. Instead of
    textColumn."""

    tools_column: str | None = None
    """The column that holds the tools a conversation of messagesColumn may call, a list of JSON schemas (or the same as
    JSON); the chat template writes them as it does for who serves the model."""
    chat_template_arguments: Mapping[str, Any] | None = None
    """What the chat template is called with beside the messages, as enable_thinking: false."""
    chat_template_date: str | None = None
    """The day that the chat template writes where it asks for today, as 2026-01-31. Default: a template that asks
    refuses the conversation, since a text must not depend on the day of the run."""
    template: str | None = None
    """Makes the text of a row from any of its columns, a Jinja template in which they are names, as in
    Question: {{ query }}. What stands in a generation block is learned; without one, all is. Instead of textColumn."""
    messages: tuple[MessageConfig, ...] | None = None
    """Makes a conversation of a row from any of its columns; the tokenizer's chat template makes it text. Instead of
    messagesColumn."""
    custom: str | None = None
    """A function of your own, module:name, from a row as a dict of columns to its text, or to None, which leaves the
    row out; with lossOn, to its messages, a list of role and content. Instead of textColumn."""
    columns: tuple[str, ...] = ()
    """The columns that custom gets."""
    returns: Literal["tokens"] | None = None
    """What custom returns, where it is neither a text nor messages: token ids of the tokenizer named; each row is a
    whole document."""
    loss_on: LossOn | None = None
    """What of a conversation is learned: assistant (what stands between generation and endgeneration in the chat
    template, or else each assistant turn) or all. Default: assistant. Other data is learned as a whole."""
    special_tokens: SpecialTokens | None = None
    """What becomes of a special token, such as <|im_start|>, in the text of a row: refuse leaves the row out, text
    takes it for ordinary characters, allow makes it the token. What template and messages write around the columns
    is the token unless this is text. Default: refuse; for messagesColumn allow."""
    max_rows: Annotated[int, Range(1, 1e15)] | None = None
    """Use the first rows only, in the order of file names: ten of them are the first ten of a thousand. Not for files
    that can only be read whole (compressed lines, tars). Default: all rows."""

    max_unpacked_bytes: Annotated[int, Range(1, 1 << 40)] = 4096 * MEBIBYTE
    """The most that one compressed file, tar or parquet row group may become in memory. One that grows more than 200
    times is refused beyond 256 MiB, whatever this says. A line or a TFRecord may have a quarter of it."""

    def __post_init__(self) -> None:
        _require_one({key: getattr(self, key) for key in self.one_of})
        self._require_consistent()

    @property
    def query(self) -> str:
        """The query of the address, which may be a signature; empty if there is none."""
        return storage_address.without_query(self.path)[1] if self.path else ""

    def column(self, field: str = FIELD) -> Column:
        """The column that is read; `field` is the place of this source in the configuration."""
        arguments = json.dumps(dict(self.chat_template_arguments or {}), sort_keys=True)
        return dataclasses.replace(
            self._column(field),
            max_unpacked_bytes=self.max_unpacked_bytes,
            chat=ChatCall(arguments, self.chat_template_date or ""),
        )

    @property
    def makes_conversations(self) -> bool:
        """Whether the chat template writes its rows."""
        is_made = self.messages is not None or (self.custom is not None and self.loss_on is not None)
        return is_made or self.messages_column is not None

    def _column(self, field: str) -> Column:
        special, limit = self.special_tokens, self.max_rows
        if self.custom is not None:
            return Column(
                "row",
                ", ".join(self.columns),
                f"{field}.custom",
                self.loss_on or "all",
                special or "refuse",
                custom=self.custom,
                makes_messages=self.loss_on is not None,
                makes_tokens=self.returns is not None,
                max_rows=limit,
            )
        if self.template is not None or self.messages is not None:
            key = "template" if self.template is not None else "messages"
            templates = [self.template] if self.template is not None else [part.content for part in self.messages or ()]
            names = sorted(set().union(*(Template(source).names for source in templates)) - SPECIAL_NAMES)
            is_marked = self.template is None or Template(self.template).marks_learned
            return Column(
                "row",
                ", ".join(names),
                f"{field}.{key}",
                self.loss_on or ("assistant" if is_marked else "all"),
                special or "refuse",
                self.template,
                tuple((part.role, part.content) for part in self.messages or ()),
                makes_messages=self.messages is not None,
                max_rows=limit,
            )
        if self.messages_column is not None:
            where, loss_on = f"{field}.messagesColumn", self.loss_on or "assistant"
            if self.tools_column is not None:
                both = (self.messages_column, self.tools_column)
                return Column(
                    "row",
                    ", ".join(both),
                    where,
                    loss_on,
                    special or "allow",
                    makes_messages=True,
                    conversation=both,
                    max_rows=limit,
                )
            return Column("messages", self.messages_column, where, loss_on, special or "allow", max_rows=limit)
        if self.tokens_column is not None:
            return Column("tokens", self.tokens_column, f"{field}.tokensColumn", max_rows=limit)
        return Column(
            "text", self.text_column, f"{field}.textColumn", special_tokens=special or "refuse", max_rows=limit
        )

    def _require_consistent(self) -> None:
        instead = {
            "messagesColumn": self.messages_column,
            "tokensColumn": self.tokens_column,
            "template": self.template,
            "messages": self.messages,
            "custom": self.custom,
        }
        given = [key for key, value in instead.items() if value]
        if len(given) > 1:
            raise ValueError(f"{given[1]}: excludes {given[0]}; keep one of the two")
        if self.special_tokens is not None and self.tokens_column is not None:
            raise ValueError("specialTokens: goes with texts, and tokensColumn has none")
        if self.returns is not None:
            if self.custom is None:
                raise ValueError("returns: is about custom, which is missing; name a function there, or leave it out")
            if self.loss_on is not None or self.special_tokens is not None:
                other = "lossOn" if self.loss_on is not None else "specialTokens"
                raise ValueError(f"{other}: goes with texts, and custom returns tokens; leave it out")
        if self.custom is not None:
            require_reference(self.custom, "custom")
        if (self.custom is None) != (not self.columns):
            missing, there = ("columns", "custom") if self.custom else ("custom", "columns")
            raise ValueError(f"{missing}: required with {there}, and missing; custom gets the columns that are named")
        if wrong := [name for name in self.columns if ", " in name]:
            raise ValueError(f"columns: {wrong[0]!r} is no name of a column")
        templates = [("template", self.template)] if self.template is not None else []
        templates += [(f"messages[{at}].content", part.content) for at, part in enumerate(self.messages or ())]
        for key, source in templates:
            _require_template(key, source)
        if templates and not any(Template(source).names - SPECIAL_NAMES for _, source in templates):
            raise ValueError(f"{given[0]}: names no column of a row; write one, as in {{{{ text }}}}")
        is_chat = any(each is not None for each in (self.messages_column, self.messages, self.custom))
        is_marked = is_chat or (self.template is not None and Template(self.template).marks_learned)
        if self.loss_on == "assistant" and not is_marked:
            raise ValueError("lossOn: assistant goes with conversations, or a template with a generation block")
        self._require_chat()
        for key, value in (("datasetConfig", self.dataset_config), ("revision", self.revision)):
            if value is not None and self.dataset is None:
                raise ValueError(f"{key}: goes with dataset, and there is none")

    def _require_chat(self) -> None:
        if self.tools_column is not None and self.messages_column is None:
            raise ValueError("toolsColumn: goes with messagesColumn, which is missing; name the conversations there")
        for name in (self.messages_column, self.tools_column) if self.tools_column is not None else ():
            if ", " in (name or ""):
                raise ValueError(f"toolsColumn: {name!r} is no name of a column")
        for key, value in (
            ("chatTemplateArguments", self.chat_template_arguments),
            ("chatTemplateDate", self.chat_template_date),
        ):
            if value is not None and not self.makes_conversations:
                raise ValueError(f"{key}: goes with conversations, and there are none; leave it out")
        if taken := sorted({*(self.chat_template_arguments or {})} & OF_CHAT):
            raise ValueError(f"chatTemplateArguments: {taken[0]} is given by the trainer; leave it out")
        if self.chat_template_date is not None:
            try:
                datetime.date.fromisoformat(self.chat_template_date)
            except ValueError:
                raise ValueError(
                    f"chatTemplateDate: {self.chat_template_date!r} is no day; write it as 2026-01-31"
                ) from None


@dataclass(frozen=True, kw_only=True)
class MixturePart(SourceConfig):
    """A source of a mixture."""

    weight: Annotated[float, Range(1e-9, 1e15)] = 1.0
    """Its share of all rows of all batches, next to the other weights; their sum need not be 1."""


@dataclass(frozen=True, kw_only=True)
class DataConfig(SourceConfig):
    """Which text is trained on, and how it becomes tokens. One of path, dataset and mixture."""

    one_of: ClassVar[tuple[str, ...]] = ("path", "dataset", "mixture")
    """Keys of which exactly one is given."""
    mixture: tuple[MixturePart, ...] | None = None
    """Several sources with weights. Each row of a batch comes from one of them, and each has epochs of its own."""
    epochs: Annotated[int, Range(1, 1000000)] | None = None
    """Passes over the data, after which the run ends, whatever steps or tokens are left. The last rows are filled up
    with nothing. Not for a mixture. Default: as many as steps or tokens need."""
    tokenizer: str | None = None
    """bytes (every byte is a token), or the path or URL of a Hugging Face tokenizer.json, of the folder of one, of a
    SentencePiece model (.model), or of a vocabulary of tiktoken (.tiktoken, .model). Required with a preset whose
    vocabulary is fixed, as that of llama3-8b. Default: bytes."""
    block_cross_document_attention: bool = True
    """Documents that share a row do not see each other, and each begins at position 0."""
    max_skipped_fraction: Annotated[float, Range(0, 1)] = 0.1
    """Rows that cannot be used (null, empty, not UTF-8, malformed, with a special token in their text) are left out;
    the run fails when they are more than this part of those read."""
    lanes: Annotated[int, Range(1, 1048576)] | None = None
    """Independent streams that fill the global batch; a divisor of batchSize, fixed for the whole run. Default: one for
    each row, or as many as bufferBytes allows. A mixture has as many for each source."""
    unit_bytes: Annotated[int, Range(1, 1 << 31)] = 8 * MEBIBYTE
    """Decoded text that is read and shuffled together. A restart costs each lane at most one of these to read again."""
    buffer_bytes: Annotated[int, Range(1, 1 << 40)] = 4096 * MEBIBYTE
    """Host memory for text read ahead if one process held every lane: two units for each."""
    prefetch_batches: Annotated[int, Range(1, 256)] = 2
    """Batches that are made before the loop asks for them; more hide longer pauses of the storage."""
    retry_seconds: Annotated[int, Range(0, 86400)] = 300
    """How long a file that is gone, cut, unreadable or another one in the middle of a run is tried again. Then the run
    ends; what was committed is kept."""

    def __post_init__(self) -> None:
        _require_one({key: getattr(self, key) for key in self.one_of})
        self._require_consistent()
        if self.mixture and self.epochs is not None:
            raise ValueError("epochs: not for a mixture, whose sources have epochs of their own; use steps or tokens")

    def sources(self) -> tuple[tuple[str, SourceConfig], ...]:
        """Each source, with its place in the configuration."""
        if self.mixture:
            return tuple((f"{FIELD}.mixture[{number}]", part) for number, part in enumerate(self.mixture))
        return ((FIELD, self),)

    def weights(self) -> tuple[float, ...]:
        """The share of each source; they add up to 1."""
        given = [part.weight for part in self.mixture] if self.mixture else [1.0]
        return tuple(weight / sum(given) for weight in given)


def _require_template(key: str, source: str) -> None:
    try:
        Template(source)
    except TemplateError as error:
        raise ValueError(f"{key}: not a Jinja template: {error}") from error


def _require_one(given: dict[str, object]) -> None:
    there = [key for key, value in given.items() if value is not None]
    if not there:
        raise ValueError(f"path: required, and missing; or {' or '.join(list(given)[1:])}")
    if len(there) > 1:
        raise ValueError(f"{there[1]}: excludes {there[0]}; keep one of the two")
