"""The waterfall as a person, a scraper and a script see it."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from agent.cli import client
from agent.cli.app import app
from agent.errors import KvtideError
from agent.faces.waterfall import BAR_WIDTH, WORDS, render
from agent.state import AgentState
from agent.waterfall.state import Part, PartName, Waterfall
from exporters.collectors.waterfall import collect, collect_detail
from tests.unit.builders import MIB, make_state
from tests.unit.node_builders import make_devices, make_gpu, make_source, make_waterfall


def drawn(*waterfalls: Waterfall, width: int = 80, **state: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    console.print(render(make_state(waterfalls=waterfalls, **state)))
    lines: list[str] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    return [" ".join(line.strip("│╭╮╰╯─ ").split()) for line in lines]


def test_every_part_has_a_name_for_people_and_a_look_of_its_own() -> None:
    assert set(WORDS) == set(PartName.__args__)  # type: ignore[attr-defined]
    assert (
        len({letter for _, letter, _ in WORDS.values()}) == len({name for name, _, _ in WORDS.values()}) == len(WORDS)
    )


@pytest.mark.parametrize("width", [80, 120])
def test_every_number_is_there_at_any_width(width: int) -> None:
    lines = drawn(make_waterfall(), width=width)
    for line in (
        "GPU 0 NVIDIA H100 80GB HBM3 80.0 GiB",
        "W weights 14.6 GiB 18.3% m",
        "- KV empty 19.5 GiB 24.4% m",
        "T torch, other use 2.0 GiB 2.4% ± 2.0 MiB torch/train",
        "U not told 700.0 MiB 0.9% ± 2.0 MiB quiet",
        "O other processes 1.0 GiB 1.2% ± 4.0 MiB 2 processes",
        "? unattributed 296.0 MiB 0.4% ± 14.0 MiB",
    ):
        assert line in lines


@pytest.mark.parametrize("rest", [296 * MIB, 0, -40_000 * MIB])
def test_the_bar_is_to_scale_and_has_every_part(rest: int) -> None:
    parts = make_waterfall().parts
    bar = drawn(make_waterfall(unattributed_bytes=rest))[1]
    assert len(bar) == BAR_WIDTH
    letters = {WORDS[part.part][1] for part in parts} | ({"?"} if rest > 0 else set())
    assert set(bar) == letters
    assert bar.count("-") > bar.count("W") > bar.count("#") > bar.count("+") > bar.count("G")


def test_what_an_engine_has_none_of_is_not_shown_and_zero_otherwise_is() -> None:
    names = ("weights", "draft_model", "lora", "encoder_cache", "graphs", "free")
    parts = tuple(Part(part=name, bytes=0, error_bytes=0, owner="m") for name in names)
    text = drawn(make_waterfall(parts=parts, unattributed_bytes=81920 * MIB))
    assert [line.split(" 0 B")[0] for line in text if " 0 B" in line] == ["W weights", "G CUDA graphs", ". free"]


def test_a_remainder_below_zero_is_shown_as_it_is() -> None:
    lines = drawn(make_waterfall(unattributed_bytes=-3072 * MIB, reasons=("m: because",)))
    assert "? unattributed -3.0 GiB -3.8% ± 14.0 MiB" in lines
    assert "m: because." in lines


def test_without_a_sum_there_are_sizes_and_no_shares() -> None:
    lines = drawn(make_waterfall(total_bytes=None, unattributed_bytes=None, reasons=("no sum is claimed",)))
    assert "W weights 14.6 GiB m" in lines
    assert not [line for line in lines if "%" in line or "unattributed" in line]


def test_very_long_names_do_not_push_numbers_off_the_screen() -> None:
    part = Part(part="weights", bytes=15000 * MIB, error_bytes=123 * MIB, owner="x" * 64)
    (line,) = (line for line in drawn(make_waterfall(parts=(part,))) if line.startswith("W weights"))
    assert line.startswith("W weights 14.6 GiB 18.3% ± 123.0 MiB xxxx")


def test_an_instance_of_a_gpu_has_its_own_name() -> None:
    gpu = make_gpu("0", instances=(make_gpu("0/3", parent="0", name="NVIDIA H100 80GB HBM3 MIG 3g.40gb"),))
    lines = drawn(make_waterfall(gpu="0/3"), device=make_devices(gpu))
    assert lines[0] == "GPU 0/3 NVIDIA H100 80GB HBM3 MIG 3g.40gb 80.0 GiB"


@pytest.mark.parametrize(
    ("sources", "reason"),
    [
        ((make_source(up=False, reason="no NVIDIA driver here"),), "no NVIDIA driver here"),
        ((make_source(),), "no GPU that works was found"),
        ((), "sources.device is off"),
    ],
)
def test_without_any_it_says_why(sources: Any, reason: str) -> None:
    assert drawn(sources=sources) == [f"No waterfall: {reason}."]


def test_metrics_add_up_to_the_gpu() -> None:
    two = (Part(part="weights", bytes=5 * MIB, error_bytes=MIB, owner="m"),) * 2
    waterfall = make_waterfall()
    found = {
        (sample.metric.name, *sample.labels): sample.value
        for each in (collect, collect_detail)
        for sample in each(make_state(waterfalls=(waterfall, make_waterfall(gpu="1", parts=two))))
    }
    values = [value for key, value in found.items() if key[:2] == ("kvtide_waterfall_bytes", "0")]
    assert sum(values) == waterfall.total_bytes
    assert found["kvtide_waterfall_bytes", "0", "unattributed", ""] == 296 * MIB
    assert found["kvtide_waterfall_error_bytes", "0", "unattributed", ""] == 14 * MIB
    assert found["kvtide_waterfall_bytes", "0", "torch_active", "torch/train"] == 2000 * MIB
    assert found["kvtide_waterfall_bytes", "1", "weights", "m"] == 10 * MIB
    assert found["kvtide_waterfall_error_bytes", "1", "weights", "m"] == 2 * MIB


def test_without_a_sum_there_is_no_remainder_in_metrics() -> None:
    state = make_state(waterfalls=(make_waterfall(total_bytes=None, unattributed_bytes=None),))
    assert "unattributed" not in {sample.labels[1] for sample in collect(state)}


def test_as_json_there_are_the_waterfalls_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    state = make_state()
    monkeypatch.setattr(client.AgentClient, "state_json", lambda _: msgspec.json.encode(state))
    run = CliRunner().invoke
    only = run(app, ["status", "--waterfall", "--json"])
    answer = msgspec.json.decode(only.stdout)
    assert answer.keys() == {"waterfalls", "reason"}
    assert msgspec.convert(answer["waterfalls"], tuple[Waterfall, ...]) == state.waterfalls
    assert answer["reason"] == ""
    assert msgspec.json.decode(run(app, ["status", "--json"]).stdout, type=AgentState) == state


def test_as_json_without_any_there_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    state = make_state(waterfalls=(), sources=())
    monkeypatch.setattr(client.AgentClient, "state_json", lambda _: msgspec.json.encode(state))
    answer = msgspec.json.decode(CliRunner().invoke(app, ["status", "--waterfall", "--json"]).stdout)
    assert answer == {"waterfalls": [], "reason": "No waterfall: sources.device is off."}


def test_what_is_no_json_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.AgentClient, "state_json", lambda _: b"<html>")
    with pytest.raises(KvtideError, match="is that a kvtide agent"):
        client.AgentClient("127.0.0.1:1").state_text()
