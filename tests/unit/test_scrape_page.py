"""Pages of engines: every version's names give the same numbers; what can't be is told from what is absent."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sources.scrape.families import Reading, reading_of
from agent.sources.scrape.page import MAX_ROWS, Page, PageError, PageReader, RowKey
from agent.sources.scrape.pool import cannot, pool_of
from agent.sources.scrape.reporters import Reporters
from tests.bed.pages import DIALECTS, Load, line, page

DATA = Path(__file__).parents[3] / "shared" / "data" / "engine_metrics"


def readings(text: str) -> dict[tuple[str, str], Reading]:
    """By model and rank."""
    rows = PageReader().read(text).rows
    return {
        (key.model, key.rank): reading_of(key.kind, Reporters().choose(key.kind, row, 0.0)) for key, row in rows.items()
    }


def said(reading: Reading) -> dict[str, float]:
    return {name: value for name, value in msgspec.structs.asdict(reading).items() if value is not None}


def refused(text: str) -> str:
    with pytest.raises(PageError) as caught:
        PageReader().read(text)
    return str(caught.value)


# -- real pages -------------------------------------------------------------------------------------------

IDLE = {"usage": 0.0, "running": 0.0, "waiting": 0.0, "preemptions": 0.0}
REAL = {
    "v0_early_2024_datadog.prom": {
        ("facebook/opt-125m", ""): {
            **IDLE,
            "swapped": 0.0,
            "prompt_tokens": 5.0,
            "generation_tokens": 7.0,
            "prefix_queries": 117.0,
            "prefix_hits": 64.0,
        }
    },
    "v1_0100_both_names.prom": {
        ("zai-org/GLM-4.5", "0"): {"usage": 9.75010481363281e-06, "prefix_queries": 32.0, "prefix_hits": 0.0}
    },
    "v1_011_idle_haw.prom": {
        ("Qwen/Qwen1.5-0.5B-Chat", "0"): {
            **IDLE,
            "prompt_tokens": 0.0,
            "generation_tokens": 0.0,
            "prefix_queries": 0.0,
            "prefix_hits": 0.0,
        }
    },
    "v1_admission_stall.prom": {("", "0"): {"usage": 0.0, "running": 0.0, "waiting": 6.0}},
    "v1_negative_usage.prom": {("DeepSeek-V4-Flash", "3"): {}},
    "v1_pid_label_collision.prom": {("Qwen/Qwen3-VL-8B-Instruct", "0"): {"usage": 0.6530455880475035}},
    "vllm_0.32_cpu_full.prom": {
        ("tiny", "0"): {
            **IDLE,
            "prompt_tokens": 24043.0,
            "generation_tokens": 680.0,
            "prefix_queries": 24043.0,
            "prefix_hits": 19968.0,
        }
    },
    "sglang_lines.prom": {
        ("google/gemma-2-9b-it", ""): {"usage": 0.0, "running": 0.0},
        ("Llama-3.2-3B", ""): {"capacity_tokens": 570979.0, "prompt_tokens": 230794.0, "prefix_queries": 230794.0},
        ("meta-llama/Llama-3.1-8B-Instruct", ""): {
            "running": 162.0,
            "used_tokens": 123859.0,
            "throughput": 86.50814177726902,
        },
    },
}


def real(name: str) -> str:
    if not DATA.is_dir():
        pytest.skip("../shared/data is not here")
    return (DATA / name).read_text()


@pytest.mark.parametrize("name", REAL)
def test_real_pages_give_what_stands_on_them(name: str) -> None:
    assert {key: said(reading) for key, reading in readings(real(name)).items()} == REAL[name]


def test_all_real_pages_are_in_the_test() -> None:
    if not DATA.is_dir():
        pytest.skip("../shared/data is not here")
    assert {path.name for path in DATA.iterdir()} == set(REAL)


def test_the_pool_of_real_pages() -> None:
    (full,) = PageReader().read(real("vllm_0.32_cpu_full.prom")).rows.values()
    pool = pool_of(Reading(usage=0.5), full.info)
    assert (pool.capacity_blocks, pool.block_tokens, pool.capacity_tokens) == (199, 128, 25472)
    assert pool.held_blocks == 100
    assert pool.capacity_bytes is None, "it was told a number of blocks, so that the bytes are not theirs"
    (early,) = PageReader().read(real("v0_early_2024_datadog.prom")).rows.values()
    pool = pool_of(Reading(usage=0.5, swapped=0.0), early.info)
    assert (pool.capacity_blocks, pool.block_tokens, pool.capacity_tokens) == (7281, 16, 116_496)


def test_a_negative_use_is_rejected_with_its_value() -> None:
    (row,) = PageReader().read(real("v1_negative_usage.prom")).rows.values()
    assert [tuple(each) for each in row.rejected] == [("kv_cache_usage_perc", -0.3875395987328405, "negative")]


# -- every version ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_version_says_the_same(dialect: str) -> None:
    (reading,) = readings(page(dialect)).values()
    load = Load()
    expected = {
        "usage": 0.25,
        "running": 3,
        "waiting": 2,
        "preemptions": 5,
        "prompt_tokens": load.prompt,
        "generation_tokens": load.generated,
        "prefix_queries": load.prompt,
        "prefix_hits": load.cached,
    }
    if dialect == "vllm 0.8 V0":  # V0 counts no hits
        del expected["prefix_queries"], expected["prefix_hits"]
    assert {name: getattr(reading, name) for name in expected} == expected
    assert (reading.swapped is not None) == (dialect == "vllm 0.8 V0")


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if DIALECTS[name].info])
def test_the_size_of_the_pool_is_known_where_the_page_has_it(dialect: str) -> None:
    (row,) = PageReader().read(page(dialect)).rows.values()
    pool = pool_of(readings(page(dialect)).popitem()[1], row.info)
    own = 0 if dialect == "vllm 0.8 V0" else 1  # the block that V1 keeps for itself
    assert (pool.capacity_blocks, pool.block_tokens) == (1001 - own, 16)
    assert pool.held_blocks == 250
    assert pool.held_bytes is None


def test_the_new_name_counts_where_both_are() -> None:
    both = (
        line("vllm:gpu_cache_usage_perc", 0.1, {"engine": "0"})
        + "\n"
        + line("vllm:kv_cache_usage_perc", 0.2, {"engine": "0"})
    )
    assert readings(both + "\n")["", "0"].usage == 0.2


def test_bytes_are_known_where_the_engine_was_told_them() -> None:
    info = {"num_gpu_blocks": "1001", "block_size": "16", "kv_cache_memory_bytes": str(1 << 30)}
    pool = pool_of(Reading(usage=0.25), info)
    assert (pool.capacity_bytes, pool.held_bytes) == (1 << 30, 1 << 28)
    assert "bytes" not in cannot(pool, Reading(usage=0.25), rejected=False)


@pytest.mark.parametrize("text", ["None", "", "-5", "0", "1e3", "²", "9" * 30])
def test_a_number_of_blocks_that_is_none_is_not_known(text: str) -> None:
    pool = pool_of(Reading(usage=0.25), {"num_gpu_blocks": text, "block_size": "16"})
    assert (pool.capacity_blocks, pool.held_blocks, pool.capacity_tokens) == (None, None, None)


def test_sglang_counts_tokens_while_they_are_made() -> None:
    labels = {"model_name": "m", "dp_rank": "0", "tp_rank": "0"}
    modes = {"prefill_compute": 30, "prefill_cache": 70, "decode": 5}
    lines = [line("sglang:realtime_tokens_total", v, {**labels, "mode": mode}) for mode, v in modes.items()]
    lines += [line("sglang:token_usage", 0.5, labels), line("sglang:generation_tokens_total", 1, {"model_name": "m"})]
    reading = readings("\n".join(lines) + "\n")["m", "0"]
    assert (reading.prompt_tokens, reading.generation_tokens) == (100, 5)
    assert (reading.prefix_queries, reading.prefix_hits) == (100, 70)


# -- several engines on a page ----------------------------------------------------------------------------


def test_ranks_models_and_replicas_are_kept_apart() -> None:
    text = "".join(
        page("vllm 0.33", Load(usage=number / 10), engine=rank, model_name=model)
        for number, (rank, model) in enumerate([("0", "a"), ("1", "a"), ("0", "b")], 1)
    )
    found = {key: reading.usage for key, reading in readings(text).items() if key[0] != "org/model"}
    assert found == {("a", "0"): 0.1, ("a", "1"): 0.2, ("b", "0"): 0.3}
    rays = page("ray vllm_", Load(usage=0.1)) + page("ray vllm_", Load(usage=0.2), ReplicaId="r2")
    assert {key.replica for key in PageReader().read(rays).rows} == {"r1", "r2"}


def test_labels_that_are_missing_are_filled_in_where_one_engine_fits() -> None:
    whole = line("vllm:kv_cache_usage_perc", 0.5, {"engine": "0", "model_name": "m"})
    loose = line("vllm:num_requests_running", 3, {"engine": "0"})
    (reading,) = readings(f"{whole}\n{loose}\n").values()
    assert (reading.usage, reading.running) == (0.5, 3)
    other = line("vllm:kv_cache_usage_perc", 0.25, {"engine": "0", "model_name": "n"})
    found = readings(f"{whole}\n{other}\n{loose}\n")
    assert {key: said(reading) for key, reading in found.items()} == {
        ("m", "0"): {"usage": 0.5},
        ("n", "0"): {"usage": 0.25},
    }


def test_what_sglangs_front_says_is_not_that_of_one_of_several_ranks() -> None:
    ranks = [line("sglang:token_usage", 0.5, {"model_name": "m", "dp_rank": rank}) for rank in "01"]
    front = line("sglang:generation_tokens_total", 9, {"model_name": "m"})
    assert all(r.generation_tokens is None for r in readings("\n".join([*ranks, front, ""])).values())
    assert readings(f"{ranks[0]}\n{front}\n")["m", "0"].generation_tokens == 9


def test_engines_beyond_the_limit_are_counted() -> None:
    text = "".join(line("vllm:num_requests_running", 1, {"engine": str(n)}) + "\n" for n in range(MAX_ROWS + 5))
    found = PageReader().read(text)
    assert (len(found.rows), found.left_out) == (MAX_ROWS, 5)


def collision(**values: float) -> Page:
    lines = [
        line("vllm:kv_cache_usage_perc", value, {"engine": "0", "model_name": "m", "pid": pid})
        for pid, value in values.items()
    ]
    return PageReader().read(
        "\n".join([*lines, line("vllm:prompt_tokens_total", 7, {"engine": "0", "model_name": "m"})]) + "\n"
    )


def test_of_several_processes_the_one_that_changed_last_is_believed() -> None:
    key = RowKey("vllm", "m", "0", "")
    reporters = Reporters()

    def usage(now: float, **values: float) -> float | None:
        found = reporters.choose("vllm", collision(**values).rows[key], now)
        assert found["prompt_tokens_total"] == 7, "what has no pid belongs to all"
        return reading_of("vllm", found).usage

    assert usage(0, p1=0.0, p2=0.65, p3=0.1) == 0.65, "nothing has changed yet: the one that says the most"
    assert usage(1, p1=0.0, p2=0.65, p3=0.2) == 0.2
    assert usage(2, p1=0.0, p2=0.65, p3=0.2) == 0.2
    assert usage(3, p1=0.0, p2=0.65, p3=0.0) == 0.0, "the engine is idle; p2 only has not heard of it"
    assert usage(4, p1=0.3, p2=0.4, p3=0.0) == 0.4
    assert usage(5, p1=0.3, p2=0.4, p4=0.1) == 0.1, "a new process has just said something"


# -- what is no page --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the page is empty"),
        ("<!DOCTYPE html><html><body>Bad Gateway</body></html>", "HTML"),
        ("<html>\nvllm is here\n</html>\n", "HTML"),
        ("process_open_fds 34.0\n", "no metric of vLLM or SGLang"),
        ('{"error": "x"}\n', "no metric of vLLM or SGLang"),
        (page()[:-1], "in the middle of a line"),
        (page()[: page().rindex("vllm:num_requests_running") + 40], "in the middle of a line"),
        ('vllm:kv_cache_usage_perc{engine="0"} lots\n', "kv_cache_usage_perc can't be read"),
        ('vllm:kv_cache_usage_perc{engine="0" 0.5\n', "kv_cache_usage_perc can't be read"),
        ("vllm:kv_cache_usage_perc\n", "no metric of vLLM or SGLang"),
        ("vllm:kv_cache_usage_perc 0.5 x\n", "kv_cache_usage_perc can't be read"),
    ],
)
def test_what_is_no_page_is_refused_with_the_reason(text: str, reason: str) -> None:
    assert reason in refused(text)


@pytest.mark.parametrize(
    ("value", "reason"), [("NaN", "not_finite"), ("+Inf", "not_finite"), ("-0.01", "negative"), ("1.01", "above_one")]
)
def test_values_that_cannot_be_are_rejected_and_the_others_stay(value: str, reason: str) -> None:
    text = f'vllm:kv_cache_usage_perc{{engine="0"}} {value}\nvllm:num_requests_running{{engine="0"}} 3\n'
    (row,) = PageReader().read(text).rows.values()
    assert [each.reason for each in row.rejected] == [reason]
    assert row.base == {"num_requests_running": 3}
    assert "can't be" in cannot(pool_of(Reading(), {}), Reading(), rejected=True)["use of the pool"]


@pytest.mark.parametrize("value", ["0", "1", "1.0000001", "9.75e-06"])
def test_values_that_can_be_are_taken(value: str) -> None:
    (row,) = PageReader().read(f"vllm:kv_cache_usage_perc {value}\n").rows.values()
    assert row.base == {"kv_cache_usage_perc": float(value)}
    assert not row.rejected


def test_time_stamps_are_the_pages_age() -> None:
    text = "vllm:kv_cache_usage_perc 0.5 1700000000000\nvllm:num_requests_running 1 1700000002500\n"
    assert PageReader().read(text).newest == 1_700_000_002.5
    assert PageReader().read(page()).newest is None


def test_label_values_with_odd_characters() -> None:
    text = 'vllm:kv_cache_usage_perc{model_name="a \\"b\\" {x} 1\\\\",engine="0"} 0.5\n'
    assert readings(text)['a "b" {x} 1\\', "0"].usage == 0.5


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200), st.integers(0, 400))
def test_no_text_does_anything_but_parse_or_be_refused(noise: str, cut: int) -> None:
    whole = page()
    for text in (
        noise,
        noise + "\n",
        whole[:cut] + noise + whole[cut:],
        whole + "vllm:num_requests_waiting" + noise + "\n",
    ):
        with contextlib.suppress(PageError):
            assert PageReader().read(text).rows


@given(st.text(alphabet='{}",=\\a1 _', max_size=30))
def test_no_labels_do_anything_but_parse_or_be_refused(labels: str) -> None:
    with contextlib.suppress(PageError):
        assert PageReader().read(f"vllm:num_requests_waiting{{{labels}}} 1\n").rows
