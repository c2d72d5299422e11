"""For each alert what must fire it and what must not: warm-up, long documents, restarts, saw-teeth, gaps."""

from __future__ import annotations

from tests.unit.alerts.cases.actions import ACTIONS
from tests.unit.alerts.cases.base import E
from tests.unit.alerts.cases.device import DEVICE
from tests.unit.alerts.cases.healthy import HEALTHY
from tests.unit.alerts.cases.host import HOST
from tests.unit.alerts.cases.kv import KV
from tests.unit.alerts.cases.node import AGENT
from tests.unit.alerts.cases.serving import SERVING
from tests.unit.alerts.cases.textbook import TEXTBOOK
from tests.unit.alerts.promtool import Case

__all__ = ["CASES", "HEALTHY", "E"]

CASES: tuple[Case, ...] = (*KV, *SERVING, *DEVICE, *HOST, *ACTIONS, *AGENT, *TEXTBOOK)
