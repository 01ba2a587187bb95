"""The example of docs/extraction.md is a job that the operator and the trainer accept, and the page shows it whole."""

import re
from pathlib import Path

from ruamel.yaml import YAML

from tests.cli.test_extraction import LINES
from tpujob.job_file import read_job
from tpujob_operator.api.trainer_schema import trainer_problems
from tpujob_operator.jobset.build import materialize
from tpujob_operator.settings import Settings
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.extract.layers import column_of, sites_of

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "08-extraction.yaml"
PAGE = (REPOSITORY / "docs" / "extraction.md").read_text()


def test_example_is_accepted():
    job = read_job(EXAMPLE)
    assert trainer_problems(job.spec.trainer or {}) == []
    config = parse_config(job.spec.trainer or {})
    assert config.extract is not None
    sites = sites_of(config.extract.layers, config.extract.keep, 28)
    assert [column_of(site, 28) for site in sites] == [f"layer_{number}_residual" for number in range(15, 19)]
    assert config.extract.rows == 100_000
    replicated = materialize(job, Settings())["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (replicated["parallelism"], replicated["completions"]) == (32, 32)


def test_page_shows_the_example():
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    yaml = YAML(typ="safe")
    assert yaml.load(shown) == yaml.load(EXAMPLE.read_text())


def test_page_shows_what_status_prints():
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)
    lines = shown.splitlines()
    assert [line for line in LINES[:5] if line not in lines] == []
