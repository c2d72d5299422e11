"""The policy file: what differs is enough; a mistake is one line with the key, the value and what is allowed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.testing import CliRunner

from agent.cli.app import app
from agent.cli.app import run as run_command
from agent.errors import ConfigError
from agent.generated_page import keys
from agent.policy import docs
from agent.policy.file import choose, differences, load, of_profile, text_of
from agent.policy.section import Section
from agent.policy.types import DEFAULT, TEXTBOOK, Policy, TenantPolicy, UsePolicy


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert text.startswith(str(path))
    return text.removeprefix(f"{path}:").strip()


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments), standalone_mode=False)
    code = run_command(list(arguments)) if result.exception else result.exit_code
    return code, result.output


def test_only_what_differs_is_needed(tmp_path: Path) -> None:
    policy = load(
        written(tmp_path, "profile: textbook\ngrowth: {page_per_minute: 0.3}\ntenants: {long_session: [a]}\n")
    )
    assert policy.profile == "textbook"
    assert differences(policy, TEXTBOOK) == {
        "growth.page_per_minute": (0.3, 0.08),
        "tenants.long_session": (("a",), ()),
    }
    assert policy.use == DEFAULT.use
    assert load(written(tmp_path, "")) == DEFAULT


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("growht: {}", "unknown key growht; allowed here: profile, use, growth, host, "),
        ("use: {warn: 0.5}", "unknown key use.warn; allowed here: warn_ratio, warn_seconds, page_ratio, "),
        ("use: {warn_ratio: 1.5}", "use.warn_ratio: 1.5: Input should be less than or equal to 1"),
        ("use: {warn_ratio: '0.5'}", "use.warn_ratio: '0.5': Input should be a valid number"),
        ("use: {warn_ratio: yes}", "use.warn_ratio: True: Input should be a valid number"),
        ("use: {warn_ratio: .nan}", "use.warn_ratio: nan: Input should be a finite number"),
        ("growth: {forecast_seconds: .inf}", "growth.forecast_seconds: inf: Input should be a finite number"),
        ("serving: {queue_warn: 5.5}", "serving.queue_warn: 5.5: Input should be a valid integer"),
        ("tenants: {long_session: a}", "tenants.long_session: 'a': must be a list (lines that begin with \"-\")"),
        ("profile: strict", "profile: 'strict': Input should be 'default', 'latency', 'throughput' or 'textbook'"),
        ("use: 3", "use: 3: must be a mapping with warn_ratio, "),
        ("use:", "use: None: must be a mapping with warn_ratio, "),
        ("[1]", "must be a mapping of settings, not list"),
        ("use: {warn_ratio: 0.1}\nuse: {}", "line 2: not valid YAML: 'use' twice"),
        ("use: {warn_ratio: 0.1, warn_ratio: 0.2}", "line 1: not valid YAML: 'warn_ratio' twice"),
        ("use: [", "line 1: not valid YAML: "),
        (b"\xff\xfe\x00", "not valid YAML: "),
        ("# " + "x" * (1 << 20), "more than 1 MiB: no file of settings is so large"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str | bytes, told: str) -> None:
    assert refusal(written(tmp_path, text)).startswith(told)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    told = refusal(written(tmp_path, "use: {warn_ratio: 2}\nserving: {queue: 3}\n"))
    assert "use.warn_ratio: 2" in told
    assert "unknown key serving.queue" in told


def test_what_warns_must_not_lie_above_what_pages(tmp_path: Path) -> None:
    told = refusal(written(tmp_path, "use: {warn_ratio: 0.97}"))
    assert told == "use.warn_ratio: 0.97: must not be above page_ratio, which is 0.95"
    # The one that was set is named, whichever it is.
    told = refusal(written(tmp_path, "serving: {queue_page: 20}"))
    assert told == "serving.queue_page: 20: must not be below queue_warn, which is 50"
    # Equal is no mistake, and moving both is how one moves them.
    assert load(written(tmp_path, "use: {warn_ratio: 0.95}")).use.warn_ratio == 0.95
    assert load(written(tmp_path, "serving: {queue_warn: 10, queue_page: 20}")).serving.queue_page == 20


@pytest.mark.parametrize(
    ("section", "ladder"),
    [
        (name, ladder)
        for name, field in Policy.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
        for ladder in field.annotation.ascending
    ],
)
def test_each_ladder_is_of_keys_that_are_there_and_is_held(section: str, ladder: tuple[str, ...]) -> None:
    model = Policy.model_fields[section].annotation
    assert isinstance(model, type)
    kept = getattr(DEFAULT, section)
    assert [getattr(kept, key) for key in ladder] == sorted(getattr(kept, key) for key in ladder)
    for lower, upper in pairwise(ladder):
        with pytest.raises(ValidationError, match="must not be"):
            model(**{lower: getattr(kept, upper), upper: getattr(kept, lower)})


def test_every_pair_of_warn_and_page_is_a_ladder() -> None:
    for key, _ in keys(Policy):
        section, _, name = key.rpartition(".")
        twin = name.replace("warn", "page")
        kind = Policy.model_fields[section].annotation if section else None
        if "warn" not in name or not isinstance(kind, type) or twin not in kind.model_fields or "seconds" in name:
            continue  # for how long something must last is no ladder: what pages may do so sooner
        assert any(name in ladder and twin in ladder for ladder in kind.ascending), key


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.yaml") == "No such file or directory"
    assert refusal(tmp_path) == "Is a directory"


def test_a_policy_is_chosen_by_profile_or_file(tmp_path: Path) -> None:
    assert (choose("default"), choose("textbook")) == (DEFAULT, TEXTBOOK)
    assert choose(str(written(tmp_path, "fp8_factor: 0.5"))).fp8_factor == 0.5
    with pytest.raises(ConfigError, match=r"no such profile \(default, latency, throughput, textbook\)"):
        choose("strict")
    with pytest.raises(ConfigError, match="must be one of default, latency, throughput, textbook"):
        of_profile("strict")


@given(warn=st.floats(0, 0.9), seconds=st.floats(0, 1e9), names=st.lists(st.text(min_size=1), max_size=3).map(tuple))
def test_what_is_shown_is_the_same_policy(
    tmp_path_factory: pytest.TempPathFactory, warn: float, seconds: float, names: tuple[str, ...]
) -> None:
    names = tuple(name for name in names if name.isprintable())
    policy = Policy(
        use=UsePolicy(warn_ratio=warn, warn_seconds=seconds),
        tenants=TenantPolicy(long_session=names),
        profile="textbook",
    )
    assert load(written(tmp_path_factory.mktemp("p"), text_of(policy))) == policy


def test_what_is_shown_says_what_each_key_is_and_what_was_changed() -> None:
    text = text_of(Policy(use=UsePolicy(warn_ratio=0.5)))
    lines = text.splitlines()
    for key, field in keys(Policy):
        name = key.rpartition(".")[2]
        assert any(line.strip().startswith(f"{name}: ") and f"# {field.description}" in line for line in lines), key
    assert "warn_ratio: 0.5 " in text
    assert "(default: 0.85)" in text
    assert text.count("(default:") == 1


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run("policy", "show")
    assert (code, output) == (0, text_of(DEFAULT))
    assert run("policy", "show", "--profile", "textbook")[1] == text_of(TEXTBOOK)
    path = written(tmp_path, "use: {warn_ratio: 0.5}")
    assert "warn_ratio: 0.5 " in run("policy", "show", str(path))[1]
    code, output = run("policy", "check", str(path))
    assert code == 0
    assert output.splitlines()[-1] == "  use.warn_ratio: 0.5 (profile: 0.85)"
    assert run("policy", "show", str(path), "--profile", "default")[0] == 2
    assert run("policy", "check", str(written(tmp_path, "use: 3")))[0] == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert all(line.startswith("kvtide: ") for line in errors)


def test_the_page_of_the_docs_is_fresh() -> None:
    assert docs.TARGET.read_text() == docs.render()
    for key, _ in keys(Policy):
        assert f"| `{key}` |" in docs.render()
