"""Reading credentials from a kubeconfig, where the official client is silent about a plug-in that gave none."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml
from kubernetes import client, config
from kubernetes.config import kube_config

from tfcluster.errors import UnreachableError

_OF_THE_CLIENT: Final = Path(config.__file__).parent


def load(configuration: client.Configuration, file: str | None, context: str | None) -> str:
    """Fill a configuration from a kubeconfig.

    Returns:
        The context's namespace, "" where it names none.

    Raises:
        ConfigException: there is none, or it lacks what is needed.
        UnreachableError: the program that gives the credentials did not.
    """
    with _heard() as said:
        config.load_kube_config(config_file=file, context=context, client_configuration=configuration)
    if said and not (configuration.api_key or configuration.cert_file or configuration.username):
        # NB: the official client goes on as nobody, and the API server would speak of a right that is missing.
        raise UnreachableError(
            f"the kubeconfig gives no credentials: {said[-1]}",
            hint="Log in again, and see that the program that it names for it can be run.",
        )
    # NB: the official client lists contexts only where there is a current one.
    read = kube_config.KubeConfigMerger(file or config.KUBE_CONFIG_DEFAULT_LOCATION).config
    chosen = kube_config.KubeConfigLoader(read, active_context=context).current_context
    return str(chosen["context"].get("namespace") or "")


def brief(error: Exception) -> str:
    """Say in one line what is wrong with a kubeconfig."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: it is no YAML: {error.problem}"
    if isinstance(error, (TypeError, KeyError, AttributeError)):
        return "it is not built as a kubeconfig is"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Give what the official client logs as an error meanwhile; without a handler it would be printed.

    It logs by the root logger, as other threads of the program may at the same moment.
    """
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if Path(record.pathname).parent == _OF_THE_CLIENT and record.thread == threading.get_ident():
                said.append(record.getMessage())

    listener, logger = Listener(logging.ERROR), logging.getLogger()
    logger.addHandler(listener)
    try:
        yield said
    finally:
        logger.removeHandler(listener)
