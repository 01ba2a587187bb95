"""The client of the cluster that the kubeconfig names."""

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, kube_config
from yaml import YAMLError  # comes with kubernetes

from tpujob.job.yaml_text import NotYaml, check_aliases, text_of
from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode

MOST_BYTES = 16 << 20
"""Of a kubeconfig: about 5 KB for each cluster."""
LOG_IN = "log in again (for GKE `gcloud auth login`), and try `kubectl get nodes`"


def open_client(context: str | None) -> tuple[Any, str, str]:
    """A client of the cluster that kubectl would use, the context's name and its namespace; sends no request.

    Args:
        context: Of the kubeconfig; None: its current one.

    Raises:
        CommandError: there is no kubeconfig, it cannot be read, there is no such context in it, or its auth plugin
            gives no credentials.
    """
    configuration = type.__call__(Configuration)  # as the library does: without the default of the process
    try:
        merged = _read()
        names = [each.value["name"] for each in merged.config["contexts"]]
        if context and context not in names:
            raise CommandError(f"--context: {context!r} is not in the kubeconfig; there are {', '.join(names)}")
        loader = _Loader(
            merged.config, active_context=context, config_base_path=None, config_persister=merged.save_changes
        )
        loader.load_and_set(configuration)
        _require_header(configuration.api_key.values())
        client, chosen = ApiClient(configuration), loader.current_context
        return client, chosen["name"], chosen["context"].get("namespace") or "default"
    except (ConfigException, YAMLError, RecursionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CommandError(
            f"no cluster: {str(error).rstrip('.')}; set KUBECONFIG, or make ~/.kube/config, for instance with "
            f"`gcloud container clusters get-credentials CLUSTER`. {_here()}"
        ) from error


def _require_header(tokens: Iterable[str]) -> None:
    if not all(token.isascii() and token.isprintable() for token in tokens):
        raise ValueError("the token of its user has a line break, or a letter that is not ASCII")


class _Loader(kube_config.KubeConfigLoader):  # type: ignore[misc]
    """The library's, which logs that an auth plugin failed, and goes on as system:anonymous."""

    def _load_from_exec_plugin(self) -> bool | None:
        """Runs the plugin of the context's user, if it has one.

        Raises:
            CommandError: the plugin is missing, fails, or gives no credentials.
        """
        if "exec" not in self._user:
            return None
        logged: list[str] = []

        def keep(record: logging.LogRecord) -> bool:
            logged.append(record.getMessage())
            return False

        logging.getLogger().addFilter(keep)
        try:
            if super()._load_from_exec_plugin():
                return True
        finally:
            logging.getLogger().removeFilter(keep)
        plugin = self._user["exec"]
        words = " ".join(logged).removeprefix("exec: ")
        if "'strip'" in words:  # on a terminal the plugin's words stand there, and the library fails for want of them
            words = "its words are above"
        advice = LOG_IN
        if "No such file" in words:
            advice = " ".join(str(plugin.safe_get("installHint") or "install it, or put it into PATH").split())
        raise CommandError(
            f"no credentials: {plugin['command']}, the auth plugin of the kubeconfig, fails: {words}; {advice}",
            exit_code=ExitCode.NOT_FOUND,
        )


def _read() -> Any:
    """The files of the kubeconfig, merged.

    Raises:
        ConfigException: there is none, or it is not one. The library follows aliases again and again.
    """
    for name in kube_config.KUBE_CONFIG_DEFAULT_LOCATION.split(os.pathsep):
        try:
            check_aliases(text_of(Path(name).expanduser(), MOST_BYTES))
        except NotYaml as error:
            raise ConfigException(f"{name}: {error}") from error
        except OSError:  # of which the library complains
            continue
    merged = kube_config.KubeConfigMerger(kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
    if merged.config is None:
        raise ConfigException("this machine has no kubeconfig")
    return merged


def _here() -> str:
    """How to see the runs on this machine: a command for clusters may have been meant for one of them."""
    runs = sorted({path.parent.name for path in Path(".tpujob").glob("*/*/logs")})
    if not runs:
        return "`tpujob run` needs no cluster"
    logs = f"`tpujob logs --local {runs[0]}`"
    return f"Runs on this machine: `tpujob get --local` lists them, {logs} shows a log ({', '.join(runs[:3])})"
