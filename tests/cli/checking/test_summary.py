"""`tpujob check`: the sums, from the trainer's own arithmetic."""

import json
import subprocess
from pathlib import Path

import pytest
import tokenizers
from ruamel.yaml import YAML
from typer.testing import CliRunner

from tests.operator.manifests import manifest
from tests.wrong_inputs.files import BOMB
from tpujob.job.job_file import read_job
from tpujob.job.questions.compiled import describe_compiled, fastest
from tpujob.job.questions.facts_text import lines
from tpujob.job.questions.job_facts import check_job
from tpujob.main import app
from tpujob_contract import ExitCode
from tpujob_resource.topology.tables import GENERATIONS

pytestmark = pytest.mark.usefixtures("answered_here")

LLAMA = {"model": {"preset": "llama3-8b"}, "data": {"path": "gs://b/x", "tokenizer": "gs://b/t"}, "tokens": 20e9}


def job_file(folder: Path, **spec: object) -> Path:
    file = folder / "job.yaml"
    file.write_text(json.dumps(manifest("job", **{"trainer": None, **spec})))
    return file


def check(folder: Path, *options: str, **spec: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["check", str(job_file(folder, **spec)), *options])
    return done.exit_code, done.output


def test_the_sums_of_a_large_run(tmp_path: Path) -> None:
    code, text = check(tmp_path, accelerator="v5e-256", slices=2, trainer=LLAMA, checkpointDir="gs://bucket/c")
    assert code == 0, text
    assert "2 slices of v5e-256: topology 16x16, 128 hosts (ct5lp-hightpu-4t), 512 chips" in text
    assert "model: 8.0 B parameters" in text
    assert "4,769 steps of 512 x 8,192 tokens" in text
    # 8.03e9 parameters of 12 bytes over the 256 chips of a slice; the other slice repeats them.
    assert "weights and optimizer take 0.35 of 16 GiB" in text
    assert "warning" not in text


def test_json_has_the_same_facts_and_every_effective_value_if_asked(tmp_path: Path) -> None:
    job = {"accelerator": "v5p-128", "trainer": LLAMA, "checkpointDir": "gs://bucket/c"}
    code, text = check(tmp_path, "--all", "-o", "json", **job)
    assert code == 0, text
    facts = json.loads(text)
    assert (facts["chips"], facts["hosts"], facts["trainer"]["parameters"]) == (64, 16, 8_030_261_248)
    low, high = facts["trainer"]["hours"]
    # 6 operations for each parameter and token are most of the work.
    assert 6 * 8.03e9 * 20e9 / (459e12 * 64 * 0.5) / 3600 < low < high < 2 * low
    assert facts["effective"]["spec"]["trainer"]["seed"] == 0
    code, text = check(tmp_path, "--all", **job)
    assert code == 0, text
    assert "mesh: fsdp 64: all devices that no other axis takes" in text
    values = YAML(typ="safe").load(text[text.index("\nspec:") :])["spec"]
    assert values["gracePeriodSeconds"] == 60
    assert (values["trainer"]["optimizer"]["beta1"], values["trainer"]["model"]["layers"]) == (0.9, 32)
    assert values["trainer"]["mesh"]["fsdp"] == 64
    assert "emaDecay" not in values["trainer"]["optimizer"]


def test_the_sums_of_maxtext_are_of_its_arguments(tmp_path: Path) -> None:
    words = ["maxtext-train", "model_name=llama3.1-8b", "dataset_type=grain", "steps=500", "per_device_batch_size=2"]
    words.append("tokenizer_path=tokenizer_llama3.tiktoken")
    job = {"accelerator": "tpu7x-16", "framework": "maxtext", "image": "a/b:1", "checkpointDir": "gs://bucket/c"}
    code, text = check(
        tmp_path, **job, command=[*words, "gradient_accumulation_steps=4"], args=["checkpoint_period=50"]
    )
    assert code == 0, text
    # 8 chips of two devices each.
    assert (
        "MaxText: llama3.1-8b, 500 steps of 128 x 2,048 tokens, 131.1 M tokens in all; a checkpoint every 50 steps"
        in (text)
    )
    assert "  by MaxText's defaults: max_target_length\n" in text
    assert "warning" not in text
    code, text = check(tmp_path, **job, command=[*words, "steps=many"])
    assert "MaxText:" in text
    code, text = check(tmp_path, **job, command=["maxtext-train", "steps=many", "enable_checkpointing=false"])
    assert (code, "MaxText:" in text) == (0, False)
    code, text = check(tmp_path, **job, command=["maxtext-train", "enable_checkpointing=false"])
    assert "; no checkpoints\n" in text


def test_a_configuration_file_of_maxtext_counts_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = {"accelerator": "v5e-16", "framework": "maxtext", "image": "a/b:1", "checkpointDir": "gs://bucket/c"}
    command = ["python3", "-m", "maxtext.trainers.pre_train.train", "mine.yml", "steps=700"]
    code, text = check(tmp_path, **job, command=command)
    assert code == 0, text
    assert "warning: spec.command: mine.yml was not read here" in text
    file = "base_config: base.yml\nsteps: 900\nper_device_batch_size: 2\ntokenizer_path: t\nlearning_rat: 1\n"
    (tmp_path / "mine.yml").write_text(file)
    code, text = check(tmp_path, **job, command=command)
    assert code == 0, text
    assert "MaxText: default, 700 steps of 32 x 2,048 tokens" in text
    assert '"learning_rat" is no key of MaxText, which refuses it; did you mean learning_rate?' in text


def test_a_model_from_elsewhere_is_not_guessed(tmp_path: Path) -> None:
    weights = {**LLAMA, "model": {"from": "gs://b/llama"}, "batchSize": 64}
    code, text = check(tmp_path, accelerator="v5e-64", trainer=weights, checkpointDir="gs://bucket/c")
    assert code == 0, text
    assert "what gs://b/llama comes to is known when its config.json is read" in text


def of_folder(tmp_path: Path, **changed: object) -> dict:
    """A trainer block that starts from a folder with the config.json of a small model."""
    made = {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({**made, "intermediate_size": 512, **changed}))
    return {
        **LLAMA,
        "model": {"from": str(tmp_path / "model")},
        "data": {"path": "/data", "tokenizer": str(tmp_path / "model")},
        "batchSize": 64,
    }


def test_a_model_on_this_machine_is_counted_from_its_config(tmp_path: Path) -> None:
    code, text = check(tmp_path, "-o", "json", accelerator="v5e-64", trainer=of_folder(tmp_path))
    assert code == 0, text
    facts = json.loads(text)
    assert facts["trainer"]["parameters"] == 2 * (4 * 256**2 + 3 * 256 * 512 + 2 * 256) + 2 * 32000 * 256 + 256
    assert facts["trainer"]["vocabulary_is_known"]
    assert facts["trainer"]["state_bytes_per_chip"] > 0
    assert "unknown" not in facts


EXTRACTION = {
    "task": "extract",
    "model": {"preset": "llama3-8b"},
    "data": LLAMA["data"],
    "sequenceLength": 512,
    "extract": {"layers": ["15-18"], "rows": 100_000},
}


def test_the_most_that_an_extraction_comes_to_is_known_without_its_data(tmp_path: Path) -> None:
    job = {"accelerator": "v4-8", "workers": 32, "checkpointDir": "gs://bucket/c"}
    known = check_job(read_job(job_file(tmp_path, **job, trainer=EXTRACTION)), bandwidth=200e6)
    found, text = known.as_json()["extraction"], "\n".join(lines(known))
    # Four sites of 4,096 values of two bytes at each token, and its number in four.
    assert found["row_bytes"] == 512 * (4 * 4096 * 2 + 4)
    assert found["value_bytes"] == 100_000 * found["row_bytes"]
    # 19 of 32 layers, whose matrices have 218 million values each, twice; attention over 512 tokens adds some.
    layers = 2 * 19 * 218_103_808 * 512 * 100_000
    assert layers < found["flops"] < 1.05 * layers
    low, high = found["computing_hours"]
    assert low == pytest.approx(found["flops"] / (275e12 * 128 * 0.5) / 3600)
    # 8 billion weights of two bytes; each host reads all, and has 4 chips.
    assert found["weight_bytes_per_chip"] == found["parameters"] * 2 / 4
    assert found["reading_seconds"] == pytest.approx(found["parameters"] * 2 / 200e6)
    assert found["writing_seconds"] == pytest.approx(found["value_bytes"] / 32 / 200e6)
    assert found["writing_seconds"] > 3600 * high, "the upload takes longer than the computing beside it"
    seconds = found["reading_seconds"] + found["writing_seconds"]
    assert [3600 * hours for hours in found["hours"]] == pytest.approx([seconds + 30, seconds + 180])

    assert "extraction: at most 100,000 rows of up to 512 tokens and 16.8 MB of values before compression: " in text
    assert "up to 51.2 M tokens and 1.68 TB in all; --data says more" in text
    assert "memory: weights take 3.74 of 32 GiB of each chip; activations come on top" in text
    assert "time: at most 6.21 to 8.71 minutes, of which each host" in text
    assert (
        "reads weights for 80.3 seconds (200 MB/s, --bandwidth) and compiles for 30 to 180 seconds (assumed)," in text
    )
    assert "seconds, at 50% to 30% of the chips' peak, and uploads for 4.37 minutes beside it" in text
    assert "chip-hours: at most 13.2 to 18.6" in text

    small = {**job, "accelerator": "v5e-1", "trainer": EXTRACTION}
    code, text = check(tmp_path, "--bandwidth", "2000", **small)
    assert "memory: weights take 14.96 of 16 GiB of each chip; activations come on top" in text
    assert "reads weights for 8.03 seconds (2,000 MB/s, --bandwidth)" in text
    code, text = check(tmp_path, "--bandwidth", "0", **job, trainer=EXTRACTION)
    assert code != 0
    assert "--bandwidth" in text
    of_all = {**EXTRACTION, "extract": {"layers": ["last"], "positions": "mean", "dtype": "int8"}}
    code, text = check(tmp_path, **job, trainer=of_all)
    assert "all rows of the data, each of up to 512 tokens and 6.1 kB of values before compression; --data" in text


def test_a_layer_that_a_model_lacks_is_refused_before_any_pod_runs(tmp_path: Path) -> None:
    missing = {**EXTRACTION, "extract": {"layers": ["15-99"]}}
    code, text = check(tmp_path, accelerator="v4-8", workers=32, checkpointDir="gs://bucket/c", trainer=missing)
    assert code == ExitCode.CONFIGURATION, text
    assert "spec.trainer.extract.layers: '15-99' is not in the model, which has layers 0 to 31" in text


OWN_MODEL = """
from flax import nnx


class Decoder(nnx.Module):
    def __init__(self, width, *, vocab_size, rngs):
        values = nnx.initializers.zeros_init()(rngs.params(), (vocab_size, width))
        self.words = nnx.Param(values, axes=("vocab", "embed"))

    def __call__(self, tokens, positions, segment_ids):
        return self.words[...][tokens], self.words[...].T
"""


def test_the_code_of_a_model_of_ones_own_is_taken_from_its_folder(tmp_path: Path) -> None:
    block = {
        "model": {"custom": "decoder_of_mine:Decoder", "arguments": {"width": 64}},
        "data": {"path": "gs://b/x", "tokenizer": "bytes"},
        "steps": 10,
    }
    code = tmp_path / "code"
    code.mkdir()
    (code / "decoder_of_mine.py").write_text(OWN_MODEL)
    subprocess.run(["git", "init", "-q", str(code)], check=True)

    exit_code, text = check(tmp_path, "--code", str(code), accelerator="v5e-8", trainer=block)
    assert exit_code == 0, text
    # 259 bytes and markers, padded to 384 of 64 values each.
    assert "model: 24.6 thousand parameters" in text

    exit_code, text = check(tmp_path, accelerator="v5e-8", trainer=block)
    assert exit_code == ExitCode.CONFIGURATION
    assert "no module named 'decoder_of_mine' is installed or on PYTHONPATH; submit it with --code" in text

    exit_code, text = check(tmp_path, accelerator="v5e-8", trainer=block, image="example.com/mine:1")
    assert exit_code == 0, text
    assert "is known where its module is, in spec.image; --code FOLDER checks it here" in text


def test_packages_without_hashes_are_refused_with_the_command_that_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.txt").write_text("einops\n")
    spec = {"image": "example.com/mine:1", "command": ["train"], "packages": {"requirements": "requirements.txt"}}
    code, text = check(tmp_path, accelerator="v5e-8", **spec)
    assert code == ExitCode.CONFIGURATION, text
    assert "spec.packages.requirements: requirements.txt: 'einops' is not NAME==VERSION" in text
    assert "pip compile --generate-hashes requirements.in" in text
    hashes = " \\\n".join(f"    --hash=sha256:{digit * 64}" for digit in "ab")
    pinned = f"einops==0.8.1 \\\n{hashes}\n    # via -r requirements.in\n"
    (tmp_path / "requirements.txt").write_text(pinned)
    code, text = check(tmp_path, accelerator="v5e-8", **spec)
    assert code == 0, text


def test_a_model_of_ones_own_has_the_ids_of_its_tokenizer_and_a_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "unnamed.py").write_text(OWN_MODEL.replace(', axes=("vocab", "embed")', ""))
    (tmp_path / "rows.jsonl").write_text('{"text": "w1 w2 w3"}\n' * 50)
    words = tokenizers.models.WordLevel(
        {"</s>": 0} | {f"w{number}": number for number in range(1, 700)}, unk_token="w1"
    )
    (tmp_path / "words").mkdir()
    tokenizers.Tokenizer(words).save(str(tmp_path / "words" / "tokenizer.json"))
    block = {
        "model": {"custom": "unnamed:Decoder", "arguments": {"width": 64}},
        "data": {"path": str(tmp_path / "rows.jsonl"), "tokenizer": str(tmp_path / "words")},
        "steps": 10,
    }
    code, text = check(tmp_path, "--data", accelerator="cpu:2x1", trainer=block)
    assert code == 0, text
    # 700 words, padded to 768 of 64 values each.
    assert "model: 49.2 thousand parameters" in text
    assert "1 weights do not name their dimensions" in text
    assert "divide: words\n" in text
    assert "passes over it" in text


def test_data_of_a_model_from_elsewhere_are_forecast(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "w1 w2 w3"}\n' * 50)
    block = of_folder(tmp_path)
    words = tokenizers.models.WordLevel({"</s>": 0, "w1": 1, "w2": 2, "w3": 3}, unk_token="w1")
    tokenizers.Tokenizer(words).save(str(tmp_path / "model" / "tokenizer.json"))
    block["data"]["path"] = str(tmp_path / "rows.jsonl")

    code, text = check(tmp_path, "--data", "-o", "json", accelerator="v5e-64", trainer=block)
    assert code == 0, text
    facts = json.loads(text)
    assert facts["forecast"]["parameters"] == facts["trainer"]["parameters"]
    assert facts["forecast"]["passes"] > 1

    (tmp_path / "model" / "config.json").unlink()
    code, text = check(tmp_path, "--data", accelerator="v5e-64", trainer=block)
    assert code == ExitCode.NOT_FOUND, text
    assert "KeyError" not in text
    assert "is not there; check the spelling" in text


def test_what_a_config_asks_for_that_is_not_supported_is_said_before_any_pod_runs(tmp_path: Path) -> None:
    code, text = check(tmp_path, accelerator="v5e-64", trainer=of_folder(tmp_path, logit_scale=0.1))
    assert code == ExitCode.CONFIGURATION, text
    assert "logit_scale may change numbers and tpujob does not know it; `model.ignoreConfigKeys: [logit_scale]`" in text


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"accelerator": "v5e-16", "trainer": LLAMA}, "warning: spec.checkpointDir: is missing"),
        (
            {"accelerator": "v5e-8", "trainer": {**LLAMA, "data": {"path": "my-data/x", "tokenizer": "bytes"}}},
            '"my-data/x" is relative',
        ),
        (
            {"accelerator": "v5e-16", "trainer": LLAMA, "capacity": {"spot": True}, "gracePeriodSeconds": 60},
            "pods on spot machines get 15",
        ),
    ],
    ids=["nothing is saved", "a relative path", "more grace than there is"],
)
def test_what_is_doubtful_is_a_warning(tmp_path: Path, spec: dict, words: str) -> None:
    code, text = check(tmp_path, **spec)
    assert code == 0, text
    assert words in text


def test_only_a_step_on_tpus_is_compiled(tmp_path: Path) -> None:
    code, text = check(tmp_path, "--compile", accelerator="cpu:2x1", trainer={**LLAMA, "batchSize": 8})
    assert code != 0
    assert "--compile: only the step of a job with spec.trainer on TPU slices" in text


STEP = {
    "topology": "1 x v5e:4x4",
    "mesh": {"fsdp": 16},
    "compile_seconds": 61.0,
    "fits": True,
    "hbm_limit_bytes": 16_911_433_728,
    "peak_bytes": 11.7e9,
    "argument_bytes": 5.06e9,
    "temporary_bytes": 10.1e9,
    "step_flops": 338e12,
    "ideal_step_seconds": 1.7,
    "computing_seconds": 1.5,
    "waiting_seconds": 0.2,
    "hidden_seconds": 0.4,
    "memory_seconds": 0.01,
    "tokens_per_second": 77_000.0,
    "exchanges": [
        {
            "kind": "all-gather",
            "axes": "fsdp",
            "is_between_slices": False,
            "is_asynchronous": True,
            "sent_bytes": 22e9,
            "count": 388,
        }
    ],
}


def test_figures_of_a_compiled_step_are_sentences() -> None:
    text = "\n".join(describe_compiled({"step": STEP}, chips=16))
    assert "memory: 11.70 of 16.91 GB on each device (state 5.06, temporary 10.10)" in text
    assert (
        "at least 1.700 s: 1.500 s of arithmetic, 0.200 s waiting for exchanges, 0.400 s more beside it; "
        "at most 77,000 tokens/s, 57.7 chip-hours for a billion tokens"
    ) in text
    assert "all-gather over fsdp: 22.00 GB in 388, beside arithmetic" in text


def test_step_bound_by_its_state_says_so() -> None:
    text = "\n".join(describe_compiled({"step": {**STEP, "memory_seconds": 1.7}}, chips=16))
    assert "at least 1.700 s, to read and write the state; at most" in text


def test_layouts_are_ranked_with_their_times() -> None:
    slow = {**STEP, "ideal_step_seconds": 2.0, "waiting_seconds": 0.5, "hidden_seconds": 0.0}
    large = {**STEP, "fits": False, "peak_bytes": 24e9}
    ranked = [
        {"change": "mesh.fsdp: 8, mesh.tensor: 2", "fields": {"mesh.fsdp": 8, "mesh.tensor": 2}, "step": STEP},
        {"change": None, "fields": {}, "step": slow},
        {"change": "model.remat: none", "fields": {"model.remat": "none"}, "step": large},
    ]
    found = {"step": slow, "compared": 46, "ranked": ranked}
    lines = list(describe_compiled(found, chips=16))[-4:]
    assert lines[0] == "other layouts that fit by arithmetic: 46; compiled, the fastest first:"
    assert lines[1].startswith(
        "1. mesh.fsdp: 8, mesh.tensor: 2: fits, at least 1.700 s: 1.500 s of arithmetic, 0.200 s"
    )
    assert lines[2].startswith("2. as it is: fits, at least 2.000 s: 1.500 s of arithmetic, 0.500 s waiting for exch")
    assert lines[3].startswith("3. model.remat: none: does not fit, 24.00 of 16.91 GB")
    assert (best := fastest(found)) is not None
    assert best["fields"] == {"mesh.fsdp": 8, "mesh.tensor": 2}
    assert fastest({"ranked": ranked[1:]}) is None


@pytest.mark.parametrize("options", [["--write"], ["--suggest", "--write", "--set", "spec.trainer.steps=5"]])
def test_only_what_is_compared_is_written(tmp_path: Path, options: list[str]) -> None:
    code, text = check(tmp_path, *options, accelerator="v5e-16", trainer={**LLAMA, "batchSize": 16})
    assert code != 0
    assert "--write: goes with --suggest and without --set" in text


def test_memory_of_the_host_stands_beside_the_devices() -> None:
    text = "\n".join(describe_compiled({"step": {**STEP, "host_bytes": 2.1e9}}, chips=16))
    assert "(state 5.06, temporary 10.10), and 2.10 GB of its host's memory" in text


def test_change_that_makes_it_fit_is_named() -> None:
    large = {**STEP, "fits": False, "peak_bytes": 24e9, "argument_bytes": None}
    found = {"step": large, "change": {"change": "gradientAccumulation: 2", "step": STEP}}
    text = "\n".join(describe_compiled(found, chips=16))
    assert "memory: 24.00 of 16.91 GB on each device; 7.09 GB too much" in text
    assert "it fits with spec.trainer.gradientAccumulation: 2: 11.70 of" in text


def test_no_change_that_makes_it_fit_says_what_is_left() -> None:
    large = {**STEP, "fits": False, "peak_bytes": 24e9, "argument_bytes": None}
    text = "\n".join(describe_compiled({"step": large, "change": None}, chips=16))
    assert "no single change makes it fit; take more chips" in text


def priced(folder: Path, table: str, **spec: object) -> tuple[int, str]:
    (folder / "prices.yaml").write_text(table)
    job = {"accelerator": "v5p-128", "trainer": LLAMA, "checkpointDir": "gs://bucket/c", **spec}
    return check(folder, "--prices", str(folder / "prices.yaml"), "-o", "json", **job)


@pytest.mark.parametrize(("spec", "price"), [({}, 4.2), ({"capacity": {"spot": True}}, 1.5)], ids=["on demand", "spot"])
def test_cost_is_the_chip_hours_at_the_given_price(tmp_path: Path, spec: dict, price: float) -> None:
    code, text = priced(tmp_path, "{currency: EUR, chipHour: {v5p: 4.2}, spotChipHour: {v5p: 1.5}}", **spec)
    assert code == 0, text
    facts = json.loads(text)
    assert facts["cost"]["currency"] == "EUR"
    assert facts["cost"]["chips"] == pytest.approx([hours * 64 * price for hours in facts["trainer"]["hours"]])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("{chipHour: {v4: 1}}", "--prices: chipHour has no v5p; it has v4"),
        ("{chipHours: {v4: 1}}", "chipHour is missing"),
        ("{chipHour: {v5p: 1}, gibMonths: 2}", "gibMonths is not known; these are: currency, chipHour"),
        ("{chipHour: {v5p: dear}}", "'dear' is not a number"),
        ("[", "--prices: "),
        (BOMB, "aliases such as *"),
    ],
)
def test_wrong_price_table_is_refused_by_name(tmp_path: Path, table: str, words: str) -> None:
    code, text = priced(tmp_path, table)
    assert code == ExitCode.CONFIGURATION, text
    assert words in text


def test_whole_number_may_be_written_as_the_advice_says(tmp_path: Path) -> None:
    job = {"accelerator": "v6e-8", "image": "example.com/image", "command": ["train"]}
    code, text = check(tmp_path, activeDeadlineSeconds="4k", **job)
    assert code == 78
    assert 'spec.activeDeadlineSeconds: "4k" is not a whole number; write 4e3' in text
    file = tmp_path / "job.yaml"
    file.write_text(file.read_text().replace('"4k"', "4e3"))
    assert read_job(file).spec.active_deadline_seconds == 4000


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_generation_has_its_sums(tmp_path: Path, generation: str) -> None:
    size = list(GENERATIONS[generation].sizes)[3]
    code, text = check(tmp_path, accelerator=f"{generation}-{size}", trainer=LLAMA, checkpointDir="gs://bucket/c")
    assert code == 0, text
    assert f"of {GENERATIONS[generation].hbm_gib} GiB of each chip" in text
