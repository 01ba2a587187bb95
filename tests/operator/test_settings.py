import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpujob_operator.base.settings import Settings
from tpujob_operator.main import main
from tpujob_resource.models.settings import InvalidSetting


def test_nothing_set_means_defaults() -> None:
    assert Settings.from_environ({"PATH": "/bin", "OPERATOR_LOG_LEVEL": " "}) == Settings()


def test_variables_are_read_by_their_names() -> None:
    found = Settings.from_environ(
        {
            "OPERATOR_TRAINER_IMAGE": "trainer:1",
            "OPERATOR_IMAGE_PULL_POLICY": "Never",
            "OPERATOR_WATCH_NAMESPACES": "a, b",
            "OPERATOR_REPORT_INTERVAL_SECONDS": "0.5",
            "OPERATOR_RUN_AS_USER": "1234",
        }
    )
    assert (found.trainer_image, found.image_pull_policy) == ("trainer:1", "Never")
    assert found.watch_namespaces == ("a", "b")
    assert (found.report_interval_seconds, found.run_as_user) == (0.5, 1234)


def test_links_to_services_are_not_settings() -> None:
    links = {
        "OPERATOR_METRICS_SERVICE_HOST": "10.0.0.1",
        "OPERATOR_METRICS_SERVICE_PORT_HTTP": "80",
        "OPERATOR_METRICS_PORT": "tcp://10.0.0.1:80",
        "OPERATOR_METRICS_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    assert Settings.from_environ(links) == Settings()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("OPERATOR_TRAINER_IMGE", "x", "is not a setting"),
        ("OPERATOR_RUN_AS_USER", "nobody", "is not a number"),
        ("OPERATOR_RUN_AS_USER", "0", "is root"),
        ("OPERATOR_IMAGE_PULL_POLICY", "never", "none of Always, IfNotPresent, Never"),
        ("OPERATOR_METRICS_PORT", "99999", "is not a port"),
        ("OPERATOR_RESYNC_SECONDS", "0", "not between"),
        ("OPERATOR_STALLED_AFTER_SECONDS", "-1", "not between"),
        ("OPERATOR_NETWORK_POLICIES", "maybe", "neither true nor false"),
    ],
)
def test_what_cannot_work_is_refused_by_name(key: str, value: str, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words) as refusal:
        Settings.from_environ({key: value})
    assert key in str(refusal.value)


def test_bad_setting_ends_it_with_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OPERATOR_TRAINER_IMGE", "x")
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "OPERATOR_TRAINER_IMGE is not a setting" in capsys.readouterr().err


def test_an_operator_without_a_cluster_says_so_without_a_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tpujob_operator"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert "tpujob-operator: no cluster: " in done.stderr
    assert "Traceback" not in done.stderr
