"""What a running agent's state tells of the installation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.doctor.findings import WHEEL, Finding, bad, note, ok, warn
from agent.faces.words import invitation, refusals
from agent.retained import count_of
from agent.sharing import sharings
from agent.state import AgentState, EngineState
from agent.units import human_seconds
from engine_hooks import __version__

CLOCK_SECONDS = 2.0  # what is further apart confuses who reads logs side by side
# What a source needs, by its name: the setting or the privilege; docs/host.md has all of them.
_NEEDS = {
    "device": "NVIDIA's driver with libnvidia-ml.so.1; in a container: --gpus all",
    "host": "see docs/host.md: what each privilege gives",
    "driver_calls": "bpftrace and CAP_BPF, CAP_PERFMON; switch it off where that is not wanted: sources.driver_calls",
    "scrape": "sources.scrape in the agent's configuration: docs/hookless.md",
}
# The same in a pod, where it is another thing that gives it.
_NEEDS_OF_A_POD = _NEEDS | {
    "device": "NVIDIA's driver on the node; in the pod NVIDIA_VISIBLE_DEVICES=all, NVIDIA_DRIVER_CAPABILITIES=utility, "
    "and NVIDIA's runtime class where that is not the nodes' default: the chart's nvidia.enabled, .runtimeClassName",
    "host": "docs/kubernetes.md: what each privilege gives",
    "driver_calls": "not in a pod; switch it off: sources.driver_calls",
}
_HOOKS = f"pip install {WHEEL} in the engine's environment, then restart it when convenient (docs/release.md)"
_HOOKS_OF_A_POD = "a hooks image of the agent's version (hooksImage), then restart the engine's pods when convenient"


def findings(state: AgentState, now: float, *, pod: bool = False) -> Iterator[Finding]:
    """Yield what the state of an agent says; ``now``: Unix seconds of who asks. ``pod``: this is one of Kubernetes."""
    yield _agent(state)
    yield _clock(state, now)
    yield from _engines(state, pod)
    yield from _link(state)
    yield from _sources(state, _NEEDS_OF_A_POD if pod else _NEEDS)
    yield from _shared(state)
    yield _policy(state)
    yield _recorder(state)
    yield _actions(state)
    if state.judge_errors:
        names = ", ".join(sorted(state.judge_errors))
        yield bad("judging", f"kvtide itself failed at {names}", "see the agent's log; report it")


def _agent(state: AgentState) -> Finding:
    if state.version != __version__:
        text = f"the agent is {state.version}, this command {__version__}"
        return warn("agent", text, "restart the agent after an upgrade")
    if not state.ready:
        return bad("agent", f"not ready: {state.not_ready_reason}", "see the agent's log")
    return ok("agent", f"kvtide {state.version} answers and is ready")


def _clock(state: AgentState, now: float) -> Finding:
    apart = abs(now - state.at)
    if apart > CLOCK_SECONDS:
        text = f"the agent's clock and this one are {human_seconds(apart)} apart"
        return warn("clock", text, "let both hosts' clocks follow NTP: timedatectl status")
    return ok("clock", "the agent's clock is ours")


def _engines(state: AgentState, pod: bool) -> Iterator[Finding]:
    if not state.engines:
        pages = len(state.scrape.engines) if state.scrape is not None else 0
        if pages:
            text = f"none with hooks; {count_of(pages, 'engine')} read by its own page"
            yield note("engines", text, "docs/hookless.md says what is lost")
        else:
            text = f"none is connected at {state.link.socket}"
            mend = "patch the engines' workload with what the chart has written: docs/kubernetes.md"
            yield warn("engines", text, mend if pod else invitation(state))
    for engine in state.engines:
        yield _engine(engine, pod)


def _engine(engine: EngineState, pod: bool) -> Finding:
    name = f"engine {engine.engine}"
    if engine.phase != "live":
        return bad(name, f"{engine.phase}: {engine.reason}", "see the engine's log")
    hooks = engine.hooks
    if hooks is not None and hooks.off:
        off = ", ".join(f"{hook} ({why})" for hook, why in sorted(hooks.off.items()))
        return bad(name, f"hooks switched themselves off: {off}", "report it")
    if not engine.audit_supported:
        text = f"no exact accounting: {engine.audit_reason}"
        return warn(name, text, "docs/compatibility.md")
    if engine.hooks_version != __version__:
        text = f"its hooks are {engine.hooks_version}, the agent {__version__}"
        return note(name, text, _HOOKS_OF_A_POD if pod else _HOOKS)
    missing = [
        f"{engine.up(role)} of {expected} {role}s"
        for role, expected in (("worker", engine.workers_expected), ("frontend", engine.frontends_expected))
        if expected is not None and engine.up(role) < expected
    ]
    if missing:
        mend = "the same environment and KVTIDE_SOCKET for all of the engine's processes"
        return warn(name, f"reports from {' and '.join(missing)} only", mend)
    levers = [row.lever for row in engine.levers if row.ok]
    allowed = f"; it obeys {', '.join(levers)}" if levers else ""
    return ok(name, f"vLLM {engine.engine_version}, exact accounting{allowed}")


def _link(state: AgentState) -> Iterator[Finding]:
    folded = ", ".join(f"{count_of(names, kind)}" for kind, names in sorted(state.link.folded_names.items()) if names)
    if folded:
        text = f"names that were too many in a short time are told as other: {folded}"
        yield warn("names", text, "find out who draws them: docs/security.md")
    if refused := refusals(state.link):
        yield warn("link", refused.rstrip("."), "docs/configuration.md: link.group, link.key_file")
    if dropped := sum(state.link.rejected_frames.values()):
        yield warn("link", f"{count_of(dropped, 'frame')} could not be read", "report it")


def _sources(state: AgentState, needs: Mapping[str, str]) -> Iterator[Finding]:
    for source in state.sources:
        name = f"source {source.source}"
        if source.up:
            yield ok(name, "reads")
            continue
        yield (note if source.absent else warn)(name, source.reason, needs.get(source.source, ""))


def _shared(state: AgentState) -> Iterator[Finding]:
    for each in sharings(state):
        if each.owners and each.shared:
            mend = "levers are pulled there only with actions.shared_gpu in the policy: docs/actions.md"
            yield note(f"GPU {each.gpu}", str(each), mend)


def _policy(state: AgentState) -> Finding:
    policy = state.policy
    if policy is None:
        return note("policy", "this agent does not tell")
    if policy.problem:
        text = f"the last reload was refused, the one before is in force: {policy.problem}"
        return bad("policy", text, f"kvtide policy check {policy.source}")
    return ok("policy", f"{policy.source}, profile {policy.profile}")


def _recorder(state: AgentState) -> Finding:
    recorder = state.recorder
    if recorder is None:
        return note("recorder", "switched off", "recorder.enabled: true")
    if not recorder.recording:
        mend = f"make {recorder.directory} writable for the agent, with room for {recorder.max_bytes >> 20} MiB"
        return bad("recorder", f"keeps nothing: {recorder.reason}", mend)
    return ok("recorder", f"keeps states in {recorder.directory}")


def _actions(state: AgentState) -> Finding:
    actions = state.actions
    if actions is not None and actions.mode == "observe" and actions.off:
        return note("actions", f"observes only, and persons' orders are refused: {actions.off}", "kvtide actions on")
    if actions is None or actions.mode == "observe":
        return ok("actions", "observes only, as long as nobody lets it act")
    if actions.problem:
        return bad("actions", f"nothing is done: {actions.problem}", "kvtide actions")
    if actions.breaker.open:
        text = f"the breaker is open: {actions.breaker.reason}"
        return bad("actions", text, "find out why, then: kvtide actions close-breaker")
    if actions.mode == "enforce" and not any(row.ok for engine in state.engines for row in engine.levers):
        text = "may act, but no engine obeys any lever"
        mend = "KVTIDE_LEVERS in the engine's environment: docs/levers.md"
        return note("actions", text, mend)
    return ok("actions", f"mode {actions.mode}, {actions.budget_left} left this hour")
