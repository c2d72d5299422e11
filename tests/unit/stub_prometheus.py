"""A server that answers range queries as a test wants, on a loopback port."""

from __future__ import annotations

import bisect
import re
import ssl
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from tests.bed.prometheus import Sample
from tests.unit.stub_server import Answer, Asked, StubServer

LOOK_BACK = 300.0  # a Prometheus carries the last value on for so long


class Question(NamedTuple):
    """One range query."""

    query: str
    start: float
    end: float
    step: float

    @property
    def points(self) -> int:
        return int((self.end - self.start) / self.step) + 1


class StubPrometheus(StubServer):
    """Answers with ``answer`` and keeps what it was asked, and with which headers."""

    def __init__(self, answer: Callable[[Question], Answer], tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Question] = []
        self.headers: list[dict[str, str]] = []

        def judge(asked: Asked) -> Answer:
            form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
            question = Question(form["query"], float(form["start"]), float(form["end"]), float(form["step"]))
            self.asked.append(question)
            self.headers.append(dict(asked.headers))
            return answer(question)

        super().__init__(judge, tls)


def matrix(*series: dict[str, Any]) -> Answer:
    """Return a good answer."""
    return Answer({"status": "success", "data": {"resultType": "matrix", "result": list(series)}})


def of_samples(samples: Iterable[Sample]) -> Callable[[Question], Answer]:
    """Return what a Prometheus without marks of what vanished would say of ``samples``, for the questions we ask."""
    kept: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for name, labels, value, at in samples:
        kept.setdefault(tuple(sorted({**labels, "__name__": name}.items())), []).append((at, value))

    def answer(question: Question) -> Answer:
        found = re.search(r'__name__=~"([^"]*)"', question.query)
        assert found is not None
        by = re.match(r"max by \(([^)]*)\)", question.query)
        series: dict[tuple[tuple[str, str], ...], list[list[Any]]] = {}
        for labels, points in kept.items():
            known = dict(labels)
            if not re.fullmatch(found[1].replace("\\\\", "\\"), known["__name__"]):
                continue
            wanted = by[1].split(",") if by else list(known)
            key = tuple((label, known[label]) for label in wanted if label in known)
            for number in range(question.points):
                at = question.start + number * question.step
                last = bisect.bisect_right(points, at, key=lambda point: point[0]) - 1
                if last >= 0 and at - LOOK_BACK < points[last][0]:
                    series.setdefault(key, []).append([at, repr(points[last][0 if by else 1])])
        return matrix(*({"metric": dict(key), "values": values} for key, values in series.items()))

    return answer
