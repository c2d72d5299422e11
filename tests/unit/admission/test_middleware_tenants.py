"""Whose a request is, for whom quotas are, over two servers and with short requests first."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.unit.admission.asking import DECISION, Answer, Bed, completion, run, until


@pytest.mark.parametrize(
    ("body", "tenant", "trusted", "whose"),
    [
        ({}, "acme", True, "acme"),
        ({"user": "bob"}, "", True, "bob"),
        ({"user": "bob"}, "", False, "none"),
        ({"user": "bob"}, "acme", True, "acme"),
        ({"model": "adapter"}, "", True, "adapter"),
        ({"model": "tiny"}, "", True, "none"),
    ],
)
def test_the_tenant_is_who_the_scheduler_would_say(body: Any, tenant: str, trusted: bool, whose: str) -> None:
    bed = Bed()
    bed.order(default_quota=0)
    answer = run(lambda: bed.post({**completion(1), **body}, tenant=tenant, trusted=trusted))
    assert f"Tenant {whose} " in answer.error["message"]


def test_a_tenants_name_gets_into_no_header() -> None:
    bed = Bed()
    bed.order(default_quota=0)
    answer = run(lambda: bed.post({**completion(1), "user": "x\r\nset-cookie: a=1"}, tenant=""))
    assert answer.status == 429
    assert set(answer.headers) == {"content-type", "content-length", "retry-after", DECISION}
    assert "\r" not in "".join(answer.headers.values())
    assert "x__set-cookie: a=1" in answer.error["message"]


def test_the_maps_quotas_are_in_force_only_by_order(tmp_path: Any) -> None:
    mapped = tmp_path / "map.json"
    mapped.write_text(json.dumps({"acme": {"quota_blocks": 1}, "gold": {"quota_ratio": 0.5}}))
    bed = Bed(env={"KVTIDE_TENANT_MAP": str(mapped)})
    assert run(lambda: bed.post(completion(64))).status == 200
    done = bed.order()
    assert run(lambda: bed.post(completion(64))).status == 429
    assert run(lambda: bed.post(completion(700), tenant="gold")).status == 200
    assert run(lambda: bed.post(completion(900), tenant="gold")).status == 429
    assert done.undo is not None
    assert done.undo() == {"refused": 2}
    assert run(lambda: bed.post(completion(64))).status == 200


def test_refusals_are_counted_for_a_bounded_number_of_tenants() -> None:
    bed = Bed()
    bed.order(shed=True)
    for number in range(70):
        run(lambda name=f"t{number}": bed.post(completion(1), tenant=name))
    rows = {row.tenant: row.reasons for row in bed.gate.refused.rows()}
    assert len(rows) == 65
    assert (rows["t0"], rows["other"]) == ({"shed": 1}, {"shed": 6})


def test_a_quota_holds_over_two_servers_in_total(tmp_path: Any) -> None:
    from tests.unit.admission.test_table import open_table

    shared = [open_table(tmp_path / "own") for _ in range(2)]
    beds = [Bed(open_table=lambda one=one: one.table) for one in shared]
    for bed in beds:
        bed.order(quotas={"acme": 10})

    async def work() -> list[int]:
        for bed in beds:
            bed.app.hold = asyncio.Event()
        seen = [Answer() for _ in range(8)]
        tasks = [asyncio.create_task(beds[n % 2].post(completion(64), seen=one)) for n, one in enumerate(seen)]
        await until(lambda: all(one.messages for one in seen))
        for bed in beds:
            assert bed.app.hold is not None
            bed.app.hold.set()
        await asyncio.gather(*tasks)
        return sorted(one.status for one in seen)

    assert run(work) == [200, 200] + [429] * 6
    for one in shared:
        assert one.table.total().blocks == 0
        one.close()


@pytest.mark.parametrize("ends", [True, False])
def test_a_long_request_waits_for_short_ones_for_a_while(ends: bool) -> None:
    bed = Bed()
    bed.order(short_first=True, short_tokens=20, long_wait_seconds=2.0 if ends else 0.05)

    async def work() -> str:
        bed.app.hold = asyncio.Event()
        short = asyncio.create_task(bed.post(completion(10)))
        await until(lambda: len(bed.app.bodies) == 1)
        long = asyncio.create_task(bed.post(completion(100)))
        if ends:
            await asyncio.sleep(0.02)
            assert len(bed.app.bodies) == 1  # it waits
            bed.app.hold.set()
        await until(lambda: len(bed.app.bodies) == 2)
        assert short.done() == ends
        bed.app.hold.set()
        await short
        return str((await long).headers[DECISION])

    assert run(work) == "admitted; waited"


def test_a_long_request_that_is_alone_does_not_wait() -> None:
    bed = Bed()
    bed.order(short_first=True, short_tokens=20)
    assert run(lambda: bed.post(completion(100))).headers[DECISION] == "admitted"
