"""The bytes of /metrics: compared with a golden file, rendered once per state, and safe for any label.

``python -m tests.unit.test_exposition`` writes the golden file anew.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporters.catalogue import CATALOGUE
from exporters.exposition import Exposition
from tests.unit.builders import make_engine, make_state

GOLDEN = Path(__file__).parent / "golden" / "metrics.txt"


def parsed(text: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_the_text_is_the_golden_one() -> None:
    assert Exposition().render(make_state(), compressed=False) == GOLDEN.read_bytes()


def test_a_parser_reads_every_family_with_its_type_and_help() -> None:
    families = {family.name: family for family in text_string_to_metric_families(GOLDEN.read_text())}
    assert set(families) == {metric.name.removesuffix("_total") for metric in CATALOGUE}
    for metric in CATALOGUE:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.type, metric.help)
        assert {sample.name for sample in family.samples} == {metric.name}


def test_families_come_in_the_catalogues_order() -> None:
    helps = [line.split()[2] for line in GOLDEN.read_text().splitlines() if line.startswith("# HELP")]
    assert helps == [metric.name for metric in CATALOGUE]


def test_one_state_is_rendered_once() -> None:
    exposition, state = Exposition(), make_state()
    plain = exposition.render(state, compressed=False)
    packed = exposition.render(state, compressed=True)
    assert exposition.render(state, compressed=False) is plain
    assert exposition.render(state, compressed=True) is packed
    assert gzip.decompress(packed) == plain


def test_a_new_state_is_rendered_anew_compressed_too() -> None:
    exposition = Exposition()
    exposition.render(make_state(), compressed=True)
    other = make_state(make_engine(running=99))
    packed = exposition.render(other, compressed=True)
    assert parsed(gzip.decompress(packed))["kvtide_requests_running"] == {(("engine", "m"),): 99.0}
    assert gzip.decompress(packed) == exposition.render(other, compressed=False)


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\b", "a\\nb", '\\"', "ü 中", "", "{}", "a,b=c", "#"])
def test_hostile_labels_survive(name: str) -> None:
    text = Exposition().render(make_state(make_engine(engine=name)), compressed=False)
    assert parsed(text)["kvtide_kv_blocks_held"] == {(("engine", name),): 300.0}


# The parser splits lines where str.splitlines does, which Prometheus itself does not.
_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])) | st.text('"\\\nn{}=,# ')


@given(_TEXT)
def test_any_label_survives(name: str) -> None:
    text = Exposition().render(make_state(make_engine(engine=name)), compressed=False)
    assert parsed(text)["kvtide_requests_waiting"] == {(("engine", name),): 3.0}


if __name__ == "__main__":
    GOLDEN.write_bytes(Exposition().render(make_state(), compressed=False))
