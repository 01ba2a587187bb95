import json

import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tpujob_trainer.data import DataConfig, load_tokenizer
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError

TEXT = st.text(max_size=40)


@pytest.fixture(scope="module")
def definition():
    """A byte-level BPE of 300 tokens, trained on a few words."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<unk>", "<s>", "</s>", "<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 9, trainer)
    model.enable_truncation(3)
    return model.to_str()


def load(folder, definition, settings=None):
    (folder / "tokenizer.json").write_text(definition)
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return load_tokenizer(DataConfig(path="p", tokenizer=str(folder / "tokenizer.json")))


def bytes_tokenizer():
    return load_tokenizer(DataConfig(path="p"))


@given(texts=st.lists(TEXT, max_size=5))
def test_bytes_there_and_back(texts):
    tokenizer = bytes_tokenizer()

    assert [tokenizer.decode(ids) for ids in tokenizer.encode(texts)] == texts


@given(texts=st.lists(TEXT, max_size=6), skip=st.integers(0, 3))
def test_documents_stand_between_their_marks(texts, skip):
    tokenizer = bytes_tokenizer()

    tokens, lengths = tokenizer.documents(pa.array(texts, pa.large_string()).slice(skip))

    expected = [[tokenizer.bos, *text.encode(), tokenizer.eos] for text in texts[skip:]]
    assert tokens.tolist() == [token for document in expected for token in document]
    assert lengths.tolist() == [len(document) for document in expected]


def test_hugging_face_there_and_back(tmp_path, definition):
    tokenizer = load(tmp_path, definition)
    texts = ["the quick fox, and a much longer text than its truncation", "naïve → 日本"]

    assert [tokenizer.decode(ids) for ids in tokenizer.encode(texts)] == texts
    assert tokenizer.vocab_size == max(json.loads(definition)["model"]["vocab"].values()) + 1
    assert (tokenizer.bos, tokenizer.eos) == (1, 2)


def test_hugging_face_documents_stand_between_their_marks(tmp_path, definition):
    tokenizer = load(tmp_path, definition)
    texts = ["the dog", "a fox"]

    tokens, lengths = tokenizer.documents(pa.array(texts, pa.large_string()))

    expected = [[1, *ids, 2] for ids in tokenizer.encode(texts)]
    assert tokens.tolist() == [token for document in expected for token in document]
    assert lengths.tolist() == [len(document) for document in expected]


@pytest.mark.parametrize("token", ["<|end|>", {"content": "<|end|>", "special": True}], ids=["text", "object"])
def test_author_says_what_ends_a_document(tmp_path, definition, token):
    named = load(tmp_path, definition, {"eos_token": token, "bos_token": None})

    assert named.eos == 3


def test_folder_of_a_model_will_do(tmp_path, definition):
    (tmp_path / "tokenizer.json").write_text(definition)

    tokenizer = load_tokenizer(DataConfig(path="p", tokenizer=str(tmp_path)))

    assert tokenizer.decode(tokenizer.encode(["the dog"])[0]) == "the dog"


def test_special_tokens_are_written_where_asked_for(tmp_path, definition):
    tokenizer = load(tmp_path, definition, {"eos_token": "</s>"})
    ids = tokenizer.encode(["the fox<|end|> the dog"])[0]
    assert tokenizer.decode(ids) == "the fox the dog"
    assert tokenizer.decode(ids, with_special=True) == "the fox<|end|> the dog"


def test_other_tokenizer_has_other_fingerprint(tmp_path, definition):
    (tmp_path / "named").mkdir()
    plain = load(tmp_path, definition)
    named = load(tmp_path / "named", definition, {"eos_token": "<|end|>"})

    assert len({plain.fingerprint, named.fingerprint, bytes_tokenizer().fingerprint}) == 3
    assert load(tmp_path, definition).fingerprint == plain.fingerprint


def test_missing_tokenizer_is_named(tmp_path):
    with pytest.raises(NotFoundError, match=r"^spec\.trainer\.data\.tokenizer: '.*nowhere\.json' is not there"):
        load_tokenizer(DataConfig(path="p", tokenizer=str(tmp_path / "nowhere.json")))


@pytest.mark.parametrize("content", ["{}", "\xff"], ids=["json", "bytes"])
def test_other_file_is_no_tokenizer(tmp_path, content):
    with pytest.raises(ConfigurationError, match=r"^spec\.trainer\.data\.tokenizer: '.*' is not a tokenizer.json"):
        load(tmp_path, content)


def test_tokenizer_without_an_end_is_refused(tmp_path, definition):
    with pytest.raises(ConfigurationError, match="has no token that ends a document; name one as eos_token"):
        load(tmp_path, definition.replace("</s>", "<nothing>"))


@pytest.mark.parametrize("is_beside", [True, False], ids=["additional_chat_templates", "a list of chat_template"])
def test_tool_use_is_the_template_where_there_are_tools(tmp_path, definition, is_beside):
    named = [{"name": "default", "template": "DEFAULT"}, {"name": "tool_use", "template": "TOOLS {{ tools }}"}]
    if is_beside:
        (tmp_path / "chat_template.jinja").write_text("DEFAULT")
        (tmp_path / "additional_chat_templates").mkdir()
        (tmp_path / "additional_chat_templates/tool_use.jinja").write_text("TOOLS {{ tools }}")
    tokenizer = load(tmp_path, definition, {"eos_token": "</s>", "chat_template": "not this" if is_beside else named})

    def written(tools):
        said = [{"role": "user", "content": "hello"}]
        return tokenizer.chat_template.written(said, loss_on="all", is_prompt=False, tools=tools).text

    assert (written(None), written(["weather"])) == ("DEFAULT", "TOOLS ['weather']")
