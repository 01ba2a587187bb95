"""Small files of a job (tokenizer, model, adapter) on a storage that is away: asked again, then named by field."""

import json
import threading

import fsspec
import pytest

from tests.trainer.data.stub_hub import Fault, StubHub
from tpujob_trainer.data import DataConfig, load_tokenizer
from tpujob_trainer.model.lora_config import LoraConfig
from tpujob_trainer.model.weights.adapter_config import check_adapter
from tpujob_trainer.model.weights.companions import read_companions, read_config
from tpujob_trainer.storage import remote
from tpujob_trainer.storage.remote import content_of, is_there
from tpujob_trainer.storage.retrying import Retrying, StorageFailedError
from tpujob_trainer.values.errors import ConfigurationError

CONFIG = {"model_type": "llama"}
READERS = {
    "spec.trainer.data.tokenizer": lambda url: load_tokenizer(DataConfig(path="unused", tokenizer=f"{url}/chat")).eos,
    "spec.trainer.model.from": lambda url: read_config(f"{url}/model"),
    "spec.trainer.lora.from": lambda url: check_adapter(f"{url}/adapter", LoraConfig(rank=8, alpha=16.0)),
}


@pytest.fixture
def folder(tmp_path):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    (tmp_path / "chat").mkdir()
    Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(tmp_path / "chat" / "tokenizer.json"))
    (tmp_path / "chat" / "tokenizer_config.json").write_text(json.dumps({"eos_token": "b"}))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]})
    )
    return tmp_path


def quick(limit_seconds):
    return Retrying(limit_seconds=limit_seconds, wait=lambda seconds: threading.Event().wait(0.01))


@pytest.mark.parametrize("field", READERS)
def test_a_storage_that_stays_away_is_named_with_its_field(folder, monkeypatch, field):
    monkeypatch.setattr(remote, "RETRYING", quick(limit_seconds=0))
    with StubHub(folder) as hub:
        url = hub.url
    with pytest.raises(StorageFailedError, match=rf"^{field}: {url}/.* could not be read \(reset for 0 s, 1 try\)"):
        READERS[field](url)


@pytest.mark.parametrize("field", READERS)
def test_one_bad_answer_ends_nothing(folder, monkeypatch, field):
    monkeypatch.setattr(remote, "RETRYING", quick(limit_seconds=60))
    told = []

    def first(number, host, path):
        if path.endswith(".json") and path not in told:
            told.append(path)
            return Fault("status", 503)
        return None

    expected = READERS[field](str(folder))
    with StubHub(folder, first) as hub:
        assert READERS[field](hub.url) == expected
    assert told


def test_what_an_export_takes_along_is_asked_for_again(folder, monkeypatch):
    monkeypatch.setattr(remote, "RETRYING", quick(limit_seconds=60))
    faults = iter([Fault("status", 503), Fault("reset")])
    with StubHub(folder, lambda number, host, path: next(faults, None)) as hub:
        found = read_companions(f"{hub.url}/model", DataConfig(path="unused", tokenizer=f"{hub.url}/chat"))
    assert found.config == CONFIG
    assert found.files["tokenizer.json"] == (folder / "chat" / "tokenizer.json").read_bytes()


def test_a_signature_stands_in_no_message(folder, monkeypatch):
    monkeypatch.setattr(remote, "RETRYING", quick(limit_seconds=0))
    with StubHub(folder, lambda number, host, path: Fault("status", 503)) as hub:
        signed = f"{hub.url}/chat/tokenizer.json?X-Goog-Signature=canary"
        with pytest.raises(StorageFailedError, match=r"chat/tokenizer\.json could not be read") as error:
            load_tokenizer(DataConfig(path="unused", tokenizer=signed))
    assert "canary" not in str(error.value)


def test_only_not_found_is_absent(folder, monkeypatch):
    monkeypatch.setattr(remote, "RETRYING", quick(limit_seconds=60))
    faults = iter([Fault("status", 503), Fault("status", 503), Fault("reset"), Fault("status", 500)])
    with StubHub(folder, lambda number, host, path: next(faults, None)) as hub:
        filesystem, _ = fsspec.core.url_to_fs(hub.url)
        assert is_there(filesystem, f"{hub.url}/chat/tokenizer.json")
        assert next(faults, None) is None, "all of them were met"
        assert not is_there(filesystem, f"{hub.url}/chat/nothing.json")
        assert content_of(filesystem, f"{hub.url}/chat/nothing.json") is None
    local, _ = fsspec.core.url_to_fs(str(folder))
    assert is_there(local, str(folder / "chat"))
    assert content_of(local, str(folder / "chat")) is None, "a folder has no content"
    assert content_of(local, str(folder / "chat" / "tokenizer.json" / "below")) is None


@pytest.mark.parametrize("name", ["chat/tokenizer.json", "chat/tokenizer_config.json", "model/config.json"])
def test_a_file_of_gigabytes_is_refused_unread(folder, name):
    """A hole of 600 GiB: read, it would take the machine's memory."""
    with (folder / name).open("wb") as file:
        file.truncate(600 * 2**30)
    field = "spec.trainer.data.tokenizer" if "chat" in name else "spec.trainer.model.from"
    with pytest.raises(ConfigurationError, match=rf"{name}: has 644,245,094,400 bytes, and 536,870,912 are the most"):
        READERS[field](str(folder))
