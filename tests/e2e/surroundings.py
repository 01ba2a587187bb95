"""What a run of the tests has around it: a cluster, a bucket, images. `python -m tests.e2e` prepares it for pytest."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from tests.quick_compiling import XLA_FLAGS
from tools.localcluster import background, one_machine, product, product_images, prometheus, storage
from tools.localcluster.client import Client

VARIABLE = "TPUJOB_E2E"
"""By which a run that prepared them hands the surroundings to pytest, as JSON."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Where the tests are played."""

    kubeconfig: str
    is_own: bool
    """Whether it is the cluster of `make cluster`, of which more is known: its node, its audit log, its name server."""
    bucket_url: str | None
    """Of the storage emulator, from here; None for a real bucket."""
    bucket: str
    bucket_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables by which pods find the emulator."""
    operator_namespace: str
    operator_account: str
    """The operator's service account."""
    python_image: str
    """Has Python and not the trainer."""
    trainer_image: str = ""
    """What the operator gives to jobs with a `trainer` block."""
    jax_image: str | None = None
    """That of examples/any-container."""
    prometheus_url: str | None = None
    proxy_url: str | None = None
    """Of a `kubectl proxy` that leads there."""
    ends_afterwards: bool = False
    """Whether the run started the cluster, so that it may end it."""

    @classmethod
    def own(cls, *, ends_afterwards: bool = False) -> Self:
        """The cluster of `make cluster`."""
        return cls(
            kubeconfig=str(background.DIRECTORY / "kubeconfig"),
            is_own=True,
            bucket_url=storage.OWN.url,
            bucket=storage.OWN.name,
            bucket_environment=storage.OWN.environment,
            operator_namespace=product.NAMESPACE,
            operator_account=f"{product.RELEASE}-tpujob-operator",
            python_image=product_images.image_name("operator"),
            trainer_image=product_images.image_name("trainer"),
            jax_image=product_images.image_name("jax"),
            prometheus_url=prometheus.URL,
            ends_afterwards=ends_afterwards,
        )

    @classmethod
    def handed_over(cls) -> Self | None:
        """Those that a run prepared, or of a cluster of `make cluster` that is up; None where there are none."""
        prepared = os.environ.get(VARIABLE)
        if prepared is not None:
            return cls(**json.loads(prepared))
        is_up = one_machine.is_running(background.DIRECTORY) and background.has_started(background.DIRECTORY)
        return cls.own() if is_up else None

    def to_json(self) -> str:
        """The value of `VARIABLE`."""
        return json.dumps(asdict(self))

    @property
    def client(self) -> Client:
        """Its kubectl and Helm."""
        return Client(Path(self.kubeconfig), prefers_installed=not self.is_own, proxy_url=self.proxy_url)

    @property
    def storage(self) -> storage.Bucket:
        """The bucket."""
        if self.bucket_url is None:
            return storage.GoogleBucket(self.bucket)
        return storage.EmulatedBucket(self.bucket_url, self.bucket, self.bucket_environment)

    @property
    def job_environment(self) -> dict[str, str]:
        """Variables of all jobs: where storage is, and how to compile."""
        return {**self.bucket_environment, "XLA_FLAGS": XLA_FLAGS}
