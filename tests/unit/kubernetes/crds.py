"""What we use of the Prometheus operator's kinds (monitoring.coreos.com/v1), by its API reference.

The operator's own definitions are not in a registry that the test bed installs from. A field that is not here is none
that the chart writes: a misspelled one is found.
"""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
WORDS: dict[str, Any] = {"type": "object", "additionalProperties": TEXT}
DURATION: dict[str, Any] = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h|d|w|y))+$"}


def _whole(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": [*required]}


def _each(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


KEY = _whole(("name", "key"), name=TEXT, key=TEXT)
RELABEL = _whole(
    ("action",),
    action={"enum": ["replace", "labeldrop"]},
    sourceLabels=_each(TEXT),
    targetLabel=TEXT,
    replacement=TEXT,
    regex=TEXT,
)
ENDPOINT = _whole(
    ("port", "path", "interval"),
    port=TEXT,
    path=TEXT,
    interval=DURATION,
    scheme={"enum": ["http", "https"]},
    tlsConfig=_whole(ca=_whole(secret=KEY, configMap=KEY), serverName=TEXT, insecureSkipVerify={"type": "boolean"}),
    basicAuth=_whole(("username", "password"), username=KEY, password=KEY),
    relabelings=_each(RELABEL),
    metricRelabelings=_each(RELABEL),
)
SELECTOR = _whole(("matchLabels",), matchLabels=WORDS)
NAMESPACES = _whole(matchNames=_each(TEXT))
RULE = {
    **_whole(
        ("expr",),
        record=TEXT,
        alert=TEXT,
        expr=TEXT,
        **{"for": DURATION},
        keep_firing_for=DURATION,
        labels=WORDS,
        annotations=WORDS,
    ),
    "oneOf": [{"required": ["record"]}, {"required": ["alert"]}],
}
GROUP = _whole(("name", "rules"), name=TEXT, interval=DURATION, rules=_each(RULE))
SPECS = {
    "PodMonitor": _whole(
        ("selector", "podMetricsEndpoints"),
        selector=SELECTOR,
        namespaceSelector=NAMESPACES,
        podMetricsEndpoints=_each(ENDPOINT),
    ),
    "ServiceMonitor": _whole(("selector", "endpoints"), selector=SELECTOR, endpoints=_each(ENDPOINT)),
    "PrometheusRule": _whole(("groups",), groups=_each(GROUP)),
}


def schema(kind: str) -> dict[str, Any]:
    """Return the schema of an object of ``kind``; raises KeyError for one that is none of the operator's."""
    metadata = _whole(("name", "namespace"), name=TEXT, namespace=TEXT, labels=WORDS)
    return _whole(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": "monitoring.coreos.com/v1"},
        kind={"const": kind},
        metadata=metadata,
        spec=SPECS[kind],
    )
