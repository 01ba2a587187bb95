"""The table of docs/reference/models.md: what holds for each family beside transformers, computed by both.

    python -m tests.trainer.model.weights.table [--write] [--python PYTHON …] [MODEL …]

Each PYTHON has torch and transformers, and PEFT where adapters are tried (`make reference-models` makes them). The
models are the small random ones of `reference/`. A cell is the largest difference of numbers, or says what is not so;
the exit code is 1 where a number is above its tolerance. `--write` puts the table into docs/reference/models.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "reference" / "models.md"
BEGIN, END = "<!-- table: make reference-models -->", "<!-- end of table -->"
TOLERANCE = 1e-4
RATE = 0.05
TOKENS = 16
RANK, ALPHA = 3, 6.0
NOT_READ = "not tried: its rope_parameters"
IN_PEFT, FROM_PEFT = "adapter in PEFT", "adapter from PEFT"
COLUMNS = ("model", "import: logits", "one step of SGD", "export: logits", "generate", IN_PEFT, FROM_PEFT)


def lora_model(name: str, times: float = 1) -> tuple[Any, str]:
    """A small model with adapters on all matrices that may have one, and the folder of its weights.

    Args:
        name: of the model.
        times: how much wider the adapters are than usual.
    """
    import jax

    from tests.trainer.model.weights.make_reference import FOLDER
    from tpujob_trainer.model.lora import LoraModel
    from tpujob_trainer.model.lora_config import LoraConfig, Target
    from tpujob_trainer.model.mesh.build import build_mesh
    from tpujob_trainer.model.weights.read_shape import read_shape

    source = str(FOLDER / name)
    shape = read_shape(source, remat="none", compute_dtype="float32")
    of_attention: tuple[Target, ...] = ("query", "key", "value", "out")
    targets: tuple[Target, ...] = (*of_attention, "gate", "up", "down")
    if shape.latent is not None:
        targets = ("query", "out")
    elif shape.swiglu_alpha or shape.shared_mlp_dim:
        targets = of_attention
    config = LoraConfig(rank=round(RANK * times), alpha=ALPHA * times, targets=targets)
    return LoraModel(shape, build_mesh(slices=1, devices=jax.devices()[:1]), config), source


def ours(name: str, folder: Path) -> dict[str, Any]:
    """Export a model, the same model after a step, and it with adapters; what the trainer computes of them."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from tests.trainer.model.weights.make_reference import PROMPT
    from tests.trainer.model.weights.running import greedy, logits
    from tpujob_trainer.data.config import DataConfig
    from tpujob_trainer.model.decoder import soft_capped
    from tpujob_trainer.model.lora import LORA
    from tpujob_trainer.model.weights.adapter import export_adapter
    from tpujob_trainer.model.weights.companions import read_companions
    from tpujob_trainer.model.weights.export import export_weights
    from tpujob_trainer.model.weights.load import load_weights

    model, source = lora_model(name)
    shape, plain = model.shape, model._base
    weights = load_weights(source, shape, plain.abstract_weights, plain.shardings)
    dice = np.random.default_rng(3)
    drawn = jax.tree.map(lambda leaf: dice.normal(0, 0.2, leaf.shape).astype(np.float32), model.abstract_weights[LORA])
    adapted = {**weights, LORA: jax.device_put(drawn, model.shardings[LORA])}
    ids = jnp.asarray([PROMPT])

    def loss(weights: Any) -> jax.Array:
        hidden, output = plain.hidden(weights, ids, jnp.arange(len(PROMPT))[None], jnp.ones_like(ids))
        found = jax.nn.log_softmax(soft_capped(hidden[0] @ output, shape.logit_softcap))
        return -jnp.mean(found[jnp.arange(len(PROMPT) - 1), ids[0, 1:]])

    gradients = jax.jit(jax.grad(loss))(weights)
    stepped = jax.tree.map(lambda weight, gradient: weight - RATE * gradient, weights, gradients)
    beside = read_companions(source, DataConfig(path="/"))
    for kind, content in (("export", weights), ("stepped", stepped)):
        export_weights(str(folder / kind), shape, content, max_positions=128, companions=beside, dtype="F32")
    export_adapter(str(folder / "adapter"), model, adapted, base=source, companions=beside)
    return {
        "source": source,
        "logits": logits(plain, weights, PROMPT).tolist(),
        "generated": greedy(plain, weights, PROMPT, TOKENS),
        "adapted": logits(model, adapted, PROMPT).tolist(),
    }


def from_peft(name: str, folder: Path, logits_there: list[list[float]]) -> float:
    """How far logits with an adapter that PEFT wrote are from those it computed."""
    import numpy as np

    from tests.trainer.model.weights.make_reference import PROMPT
    from tests.trainer.model.weights.running import logits
    from tpujob_trainer.model.lora import LORA
    from tpujob_trainer.model.weights.companions import read_config
    from tpujob_trainer.model.weights.load import load_weights
    from tpujob_trainer.model.weights.read_adapter import read_adapter

    # PEFT makes one adapter of gate and up of experts beside transformers 5, of twice the rank.
    ranks = json.loads((folder / "from-peft" / "adapter_config.json").read_text())["rank_pattern"] or {}
    model, source = lora_model(name, max([RANK, *ranks.values()]) / RANK)
    weights = load_weights(source, model.shape, model.abstract_weights, model.shardings)
    weights[LORA] = read_adapter(str(folder / "from-peft"), model, read_config(source))
    return float(np.abs(np.asarray(logits(model, weights, PROMPT)) - np.array(logits_there)).max())


def theirs(folder: Path, found: dict[str, Any]) -> dict[str, Any]:
    """With torch: the same from the files."""
    import torch
    import transformers
    from transformers import AutoConfig

    from tests.trainer.model.weights.make_reference import PROMPT, class_of

    def loaded(path: str | Path) -> Any:
        kind = class_of(AutoConfig.from_pretrained(path))
        return kind.from_pretrained(path, attn_implementation="eager", torch_dtype=torch.float32).eval()

    def apart(tensor: Any, numbers: Any) -> float:
        return float((tensor.detach() - torch.tensor(numbers)).abs().max())

    model_type = json.loads((folder / "export" / "config.json").read_text())["model_type"]
    if model_type not in transformers.CONFIG_MAPPING:
        return dict.fromkeys(COLUMNS[1:], f"not tried: has no {model_type}")
    ids = torch.tensor([PROMPT])
    told: dict[str, Any] = {}
    model = loaded(folder / "export")
    told["export: logits"] = apart(model(ids, use_cache=False).logits[0], found["logits"])
    made = model.generate(ids, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False)
    told["generate"] = 0.0 if made[0, len(PROMPT) :].tolist() == found["generated"] else 1.0
    if _is_of_version_5(found["source"]) and int(transformers.__version__.split(".")[0]) < 5:
        told |= dict.fromkeys(("import: logits", "one step of SGD"), NOT_READ)
    else:
        source = loaded(found["source"])
        logits = source(ids, use_cache=False).logits[0]
        told["import: logits"] = apart(logits, found["logits"])
        torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:]).backward()
        stepped = loaded(folder / "stepped").state_dict()
        told["one step of SGD"] = max(
            apart(weight - RATE * weight.grad, stepped[name].tolist())
            for name, weight in source.named_parameters()
            if weight.grad is not None
        )
    try:
        import peft as peft_library
    except ImportError as error:
        return told | dict.fromkeys((IN_PEFT, FROM_PEFT), f"not tried: {error}")
    # Another model than the one that generated, which may keep the frequencies of its longest text.
    peft = peft_library.PeftModel.from_pretrained(loaded(folder / "export"), folder / "adapter").eval()
    told[IN_PEFT] = apart(peft(ids, use_cache=False).logits[0], found["adapted"])
    targets = json.loads((folder / "adapter" / "adapter_config.json").read_text())["target_modules"]
    config = peft_library.LoraConfig(
        r=RANK,
        lora_alpha=ALPHA,
        target_modules=targets,
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    trained = peft_library.get_peft_model(loaded(folder / "export"), config).eval()
    trained.save_pretrained(folder / "from-peft")
    return told | {"of PEFT": trained(ids, use_cache=False).logits[0].tolist()}


def _is_of_version_5(source: str) -> bool:
    """Whether a folder's config.json has keys that transformers 4 ignores, and reads other numbers without."""
    return "rope_parameters" in (Path(source) / "config.json").read_text()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--python", action="append", help="one for each release of transformers")
    parser.add_argument("--theirs", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.theirs:
        folder = Path(options.theirs)
        told = {}
        for name, found in json.loads((folder / "ours.json").read_text()).items():
            try:
                told[name] = theirs(folder / name, found)
            except Exception as error:  # noqa: BLE001 - what a library makes of a file is the answer
                told[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
        import transformers

        sys.stdout.write(json.dumps({"version": transformers.__version__, "models": told}) + "\n")
        return 0
    from tests.trainer.model.weights.make_reference import FAMILIES

    pythons = options.python or [str(ROOT / ".cache" / "reference" / "bin" / "python")]
    with tempfile.TemporaryDirectory(prefix="weights-table-") as made:
        folder = Path(made)
        found = {name: ours(name, folder / name) for name in options.models or FAMILIES}
        (folder / "ours.json").write_text(json.dumps(found))
        answers = []
        for python in pythons:
            answers.append(_asked(python, folder))
            for name, told in answers[-1]["models"].items():
                if (of_peft := told.pop("of PEFT", None)) is not None:
                    told[FROM_PEFT] = from_peft(name, folder / name, of_peft)
    text, worst = _table(answers)
    sys.stdout.write(text)
    if options.write:
        page = PAGE.read_text()
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
    return 1 if worst > TOLERANCE else 0


def _asked(python: str, folder: Path) -> dict[str, Any]:
    command = [python, "-m", __spec__.name, "--theirs", str(folder)]
    done = subprocess.run(
        command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _table(answers: list[dict[str, Any]]) -> tuple[str, float]:
    """As Markdown, and the largest number in it."""
    lines = [f"| {' | '.join(('transformers', *COLUMNS))} |", "| --- " * (len(COLUMNS) + 1) + "|"]
    worst = 0.0
    for answer in answers:
        for name, told in answer["models"].items():
            cells = [answer["version"], name]
            for column in COLUMNS[1:]:
                value = told.get(column, told.get("error", "not computed"))
                if isinstance(value, float):
                    worst = max(worst, value)
                    value = ("equal" if value == 0 else "differs") if column == "generate" else f"{value:.0e}"
                elif not str(value).startswith("not tried"):
                    worst = float("inf")
                cells.append(str(value).replace("\n", " ").replace("|", "/"))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n", worst


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(main())
