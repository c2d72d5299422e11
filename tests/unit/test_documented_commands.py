"""Every `kvtide` and `kvtide-chaos` line in the documentation is one that the program takes, its options, too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from kvtide_chaos.cli import app as chaos

from agent.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "chaos" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = {"kvtide": app, "kvtide-chaos": chaos}
# What stands before it in a shell: root, a folder, a variable.
LINE = re.compile(
    r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:sudo )?(?:[\w./-]*/)?(?P<program>kvtide(?:-chaos)?)(?= )(?P<rest> .*)$"
)
INLINE = re.compile(r"`(kvtide(?:-chaos)?) ([^`]+)`")
# Not a line to be typed: a list of commands, an option that is left open, a part of a sentence.
OPEN = re.compile(r"[|<>\[\]]|\.\.\.|(?:^|[ =])[A-Z][A-Z_]*(?:$|[ .,/])")
END = re.compile(r"\s+#|\s*[|;<>&]")
LEAST = 60  # lines: fewer means that they are not found any more


def blocks(text: str) -> Iterator[str]:
    """Yield the lines of fenced and of indented blocks, those that go on in the next line put together."""
    fenced, held = False, ""
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced, held = not fenced, ""
            continue
        if not fenced and not line.startswith("    "):
            held = ""
            continue
        whole = f"{held} {line.strip()}".strip()
        held = whole.removesuffix("\\").strip() if whole.endswith("\\") else ""
        if not held:
            yield whole


def commands() -> Iterator[tuple[str, str, str]]:
    """Yield the page, the program and the arguments of each command line."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for line in blocks(text):
            if (match := LINE.match(line)) and "…" not in line:  # a screen is shown with it
                yield page.name, match["program"], END.split(match["rest"])[0].strip()
        for match in INLINE.finditer(text):
            if not OPEN.search(match[2]):
                yield page.name, match[1], match[2]


COMMANDS = sorted(set(commands()))


def test_there_are_lines_to_look_at() -> None:
    assert len(COMMANDS) > LEAST


@pytest.mark.parametrize(("page", "program", "line"), COMMANDS)
def test_the_program_takes_it(page: str, program: str, line: str) -> None:
    command: Any = typer.main.get_command(PROGRAMS[program])
    arguments = shlex.split(line)
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        assert arguments[0] in command.commands, f"{page}: {program} {line}"
        command, arguments = command.commands[arguments[0]], arguments[1:]
    if not arguments:
        return  # the name of a command, in a sentence
    try:
        command.make_context(program, list(arguments))
    except Exception as error:  # click's own, of whichever click typer has
        if type(error).__name__ == "Exit":  # --help, --version
            return
        raise AssertionError(f"{page}: {program} {line}: {error}") from None


@pytest.mark.parametrize("line", ["status --colour", "nothing", "report a.kvtide --format", "doctor a b c"])
def test_what_the_program_does_not_take_is_found(line: str) -> None:
    with pytest.raises(AssertionError):
        test_the_program_takes_it("a page", "kvtide", line)


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each command that does something, with its whole name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for part in inner:
        yield from leaves(inner[part], f"{name} {part}")


ALL = [each for program, its in PROGRAMS.items() for each in leaves(typer.main.get_command(its), program)]


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_its_help_has_an_example_that_it_takes(name: str, command: Any) -> None:
    text = f"{command.help or ''}\n\n{command.epilog or ''}"
    paragraphs = [" ".join(each.split()) for each in text.split("\n\n") if each.strip().startswith("Example")]
    shown = [line for each in paragraphs for line in re.findall(r"kvtide(?:-chaos)? [^;]*", each)]
    assert any(f"{line} ".startswith(f"{name} ") for line in shown), f"{name} --help shows no example"
    for line in shown:
        program, rest = END.split(line)[0].split(" ", 1)
        test_the_program_takes_it("its --help", program, rest.rstrip(". "))
