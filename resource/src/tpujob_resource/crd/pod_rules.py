"""What the API server refuses of the fields of `spec` that go into the pods as they are."""

from __future__ import annotations

from tpujob_contract.environment import RESERVED_PREFIXES
from tpujob_resource.crd.cel import Rule, rule, text, texts
from tpujob_resource.models.volumes import OWN_MOUNTS, OWN_NAMES
from tpujob_resource.rules.container_rules import CONFIDENTIAL_PATTERN, OWNED_KEY_PATTERN, PARENT_PATTERN
from tpujob_resource.rules.validation import OWNED_SELECTORS, TERMINATION_TAINT


def variable_rules() -> list[Rule]:
    """For each item of `spec.env`."""
    reserved = " || ".join(f"self.name.startsWith({text(prefix)})" for prefix in RESERVED_PREFIXES)
    return [
        rule(
            f"!({reserved})",
            expression="self.name + ' belongs to the operator, which sets what is right for each process'",
        ),
        rule("!(has(self.value) && has(self.valueFrom))", "give value or valueFrom, not both"),
        rule(
            f"!has(self.value) || self.value == '' || !self.name.matches({text(CONFIDENTIAL_PATTERN)})",
            expression="self.name + ' does not belong in a manifest; use valueFrom.secretKeyRef'",
        ),
    ]


def source_rules() -> list[Rule]:
    """For `valueFrom` of a variable."""
    return [rule("has(self.secretKeyRef) != has(self.configMapKeyRef)", "give one of secretKeyRef, configMapKeyRef")]


def resource_rules() -> list[Rule]:
    """For `spec.resources`."""
    return [
        rule(
            f"!has(self.requests) || !has(self.limits) || !has(self.requests.{name}) || !has(self.limits.{name}) || "
            f"quantity(string(self.requests.{name})).compareTo(quantity(string(self.limits.{name}))) <= 0",
            f"requests.{name} is more than limits.{name}; lower it, or raise the limit",
            field=f".requests.{name}",
        )
        for name in ("cpu", "memory")
    ]


def volume_rules() -> list[Rule]:
    """For each item of `spec.volumes`."""
    kinds = ("persistentVolumeClaim", "gcs", "secret", "configMap", "emptyDir")
    chosen = " + ".join(f"(has(self.{kind}) ? 1 : 0)" for kind in kinds)
    return [
        rule(f"{chosen} == 1", f"give one of {', '.join(kinds)}"),
        rule(f"!(self.name in {texts(list(OWN_NAMES))})", "the operator has a volume of that name", field=".name"),
        rule(
            f"!(self.mountPath in {texts(list(OWN_MOUNTS))})",
            "the operator mounts a volume there; take another path",
            field=".mountPath",
        ),
        rule(f"!self.mountPath.matches({text(PARENT_PATTERN)})", "contains ..", field=".mountPath"),
    ]


def pod_metadata_rules() -> list[Rule]:
    """For `spec.podLabels` and `spec.podAnnotations`."""
    return [
        rule(
            f"self.all(key, !key.matches({text(OWNED_KEY_PATTERN)}))",
            "has a key that belongs to Kubernetes, JobSet, Kueue or the operator; leave it out",
        )
    ]


def priority_class_rules() -> list[Rule]:
    """For `spec.priorityClassName`."""
    return [rule("!self.startsWith('system-')", "is for Kubernetes' own pods; use a class of your cluster's jobs")]


def node_selector_rules() -> list[Rule]:
    """For `spec.nodeSelector`."""
    return [
        rule(f"!({text(key)} in self)", f"{key} is set by {field}; leave it out")
        for key, field in OWNED_SELECTORS.items()
    ]


def toleration_rules() -> list[Rule]:
    """For each item of `spec.tolerations`."""
    return [
        rule(
            f"self.key != {text(TERMINATION_TAINT)}",
            f"{TERMINATION_TAINT} announces the end of a machine; never tolerate it",
        ),
        rule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds goes with effect NoExecute alone; leave it out",
        ),
    ]
