"""Long-text traffic for locust, with its pass marks: no OOM, P99 below 5 s, errors below 0.1 %.

    kvtide-chaos load http://HOST:8000 --users 32 --for 5m --kvtide http://HOST:9477

Exit code 0 if every mark is met, 1 if not. With ``--kvtide URL`` failed allocations are read from kvtide's agent
before and after; without it, "no OOM" is said to be not known, and only a server that no longer answers fails it.
"""

from __future__ import annotations

import random
import re
import time
from typing import Any

import requests
from locust import HttpUser, between, events, task

WORDS = (
    "tide",
    "block",
    "pool",
    "cache",
    "queue",
    "token",
    "shore",
    "harbour",
    "pressure",
    "current",
    "swell",
    "ebb",
    "flood",
    "reach",
    "wave",
    "basin",
)
FAILURES = re.compile(r'^kvtide_memory_failures_total\{[^}]*kind="(?:oom|memory)"[^}]*\} (\S+)', re.MULTILINE)


@events.init_command_line_parser.add_listener
def add_options(parser: Any) -> None:
    """What is asked, and what passes."""
    group = parser.add_argument_group("long texts")
    group.add_argument("--model", default="", help="the model's name; empty: the server's first")
    group.add_argument("--prompt-words", type=int, default=1500, help="words of each prompt, +-50 %%")
    group.add_argument("--answer-tokens", type=int, default=256, help="tokens of each answer at most")
    group.add_argument("--p99-seconds", type=float, default=5.0, help="pass mark of a whole answer")
    group.add_argument("--error-share", type=float, default=0.001, help="pass mark: failed / sent, refusals included")
    group.add_argument("--kvtide", default="", help="address of kvtide's agent, to read failed allocations from")


class LongText(HttpUser):
    """A reader of long answers to long prompts."""

    wait_time = between(0.1, 1.0)

    def on_start(self) -> None:
        """Learn the model's name if none was given."""
        options = self.environment.parsed_options
        self.model = options.model or self.client.get("/v1/models").json()["data"][0]["id"]

    @task
    def answer(self) -> None:
        """One completion, read to its end; its time to the first token is an entry of its own."""
        options = self.environment.parsed_options
        words = random.choices(WORDS, k=int(options.prompt_words * random.uniform(0.5, 1.5)))
        body = {"model": self.model, "prompt": " ".join(words), "max_tokens": options.answer_tokens, "stream": True}
        began = time.perf_counter()
        first = None
        with self.client.post(
            "/v1/completions", json=body, stream=True, name="answer", catch_response=True
        ) as response:
            if response.status_code != 200:
                response.failure(f"{response.status_code}: {_reason(response)}")
                return
            ended = False
            for line in response.iter_lines():
                if line and first is None:
                    first = time.perf_counter() - began
                ended = ended or line == b"data: [DONE]"
            # Locust takes the time until the headers, which a streaming server sends at once.
            response.request_meta["response_time"] = (time.perf_counter() - began) * 1000
            if not ended:
                response.failure("the answer broke off")
        if first is not None:
            self.environment.events.request.fire(
                request_type="", name="first token", response_time=first * 1000, response_length=0, exception=None
            )


def _reason(response: Any) -> str:
    try:
        return str(response.json()["error"]["message"])[:120]
    except (ValueError, KeyError, TypeError):
        return str(response.text)[:120]


def failed_allocations(url: str) -> float | None:
    """Return how many allocations failed since the agent at ``url`` started; None if it can't be known."""
    if not url:
        return None
    try:
        text = requests.get(f"{url.rstrip('/')}/metrics", timeout=10).text
    except requests.RequestException:
        return None
    if "kvtide_" not in text:
        return None
    return sum(float(value) for value in FAILURES.findall(text))


@events.test_start.add_listener
def before(environment: Any, **_: Any) -> None:
    """Remember what had failed before."""
    environment.failed_before = failed_allocations(environment.parsed_options.kvtide)


@events.quitting.add_listener
def judge(environment: Any, **_: Any) -> None:
    """Say each mark and set the exit code."""
    options = environment.parsed_options
    answers = environment.stats.get("answer", "POST")
    marks = [("answers", answers.num_requests > 0, f"{answers.num_requests} answers, at least 1 is wanted")]
    if answers.num_requests:
        p99 = answers.get_response_time_percentile(0.99) / 1000
        share = answers.num_failures / answers.num_requests
        marks.append(("P99", p99 < options.p99_seconds, f"{p99:.2f} s, below {options.p99_seconds:g} s"))
        marks.append(("errors", share < options.error_share, f"{share:.4%}, below {options.error_share:.4%}"))
    marks.append(("no OOM", *_no_oom(environment, options)))
    for name, passed, text in marks:
        print(f"{'pass' if passed else 'FAIL'}  {name}: {text}")
    environment.process_exit_code = 0 if all(passed for _, passed, _ in marks) else 1


def _no_oom(environment: Any, options: Any) -> tuple[bool, str]:
    try:
        alive = requests.get(f"{environment.host.rstrip('/')}/health", timeout=10).status_code == 200
    except requests.RequestException:
        alive = False
    if not alive:
        return False, "the server no longer answers /health"
    after = failed_allocations(options.kvtide)
    before = environment.failed_before
    if after is None or before is None:
        why = "kvtide did not answer" if options.kvtide else "give --kvtide URL"
        return not options.kvtide, f"failed allocations not known ({why}); the server is alive"
    return after <= before, f"{after - before:.0f} failed allocations, 0 is wanted"
