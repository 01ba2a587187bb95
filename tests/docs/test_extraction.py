"""The example of docs/extraction.md is a job that the operator and the trainer accept, and the page shows it whole."""

import re
from pathlib import Path

from ruamel.yaml import YAML

from tests.cli.extraction.test_progress import LINES
from tpujob.job.job_file import read_job
from tpujob_operator.base.settings import Settings
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.rules.trainer_rules import trainer_problems
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.corpus.extract.layers import column_of, sites_of

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "08-extraction.yaml"
HERE = REPOSITORY / "examples" / "13-extraction-here.yaml"
PAGE = (REPOSITORY / "docs" / "extraction.md").read_text()


def test_example_is_accepted():
    job = read_job(EXAMPLE)
    assert trainer_problems(job.spec.trainer or {}) == []
    config = parse_config(job.spec.trainer or {})
    assert config.extract is not None
    sites = sites_of(config.extract.layers, config.extract.keep, 28)
    assert [column_of(site, 28) for site in sites] == [f"layer_{number}_residual" for number in range(15, 19)]
    assert config.extract.rows == 100_000
    replicated = build_jobset(job, Settings())["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (replicated["parallelism"], replicated["completions"]) == (32, 32)


def test_page_shows_the_example():
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    yaml = YAML(typ="safe")
    assert yaml.load(shown) == yaml.load(EXAMPLE.read_text())


def test_page_shows_what_status_prints():
    lines = _texts()[0].splitlines()
    assert [line for line in LINES[:5] if line not in lines] == []


def test_pilot_is_the_example_with_one_worker():
    (expression,) = re.findall(r"sed '(s/.*/)' examples/08-extraction.yaml", PAGE)
    _, wanted, instead, _ = expression.split("/")
    assert EXAMPLE.read_text().count(wanted) == 1
    yaml = YAML(typ="safe")
    pilot, whole = (yaml.load(text) for text in (EXAMPLE.read_text().replace(wanted, instead), EXAMPLE.read_text()))
    assert pilot["spec"].pop("workers") == 1
    assert whole["spec"].pop("workers") == 32
    assert pilot == whole


def test_page_has_the_commands_of_the_run_here():
    (command,) = re.findall(r"^    (tpujob extract status /tmp.*)$", PAGE, flags=re.MULTILINE)
    job = read_job(HERE)
    assert parse_config(job.spec.trainer or {}).extract is not None
    assert f"#   {command}\n" in HERE.read_text()
    assert job.spec.checkpoint_dir in command.split()
    assert _texts()[1].splitlines()[0].startswith("units ")


def _texts():
    return re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)
