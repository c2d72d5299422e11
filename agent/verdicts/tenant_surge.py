"""tenant_surge: one tenant has grown and others pay for it, or it has used up its quota."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agent.plain import plain
from agent.policy.types import Policy
from agent.retained import NO_TENANT, count_of, listed
from agent.signals.types import EngineSignals, TenantSignals
from agent.subject import Subject
from agent.units import human_seconds
from agent.verdicts.base import TIERS, Finding, View
from agent.verdicts.harm import signals_of
from engine_hooks.detail import OTHER

DOMINATES = 3.0
EARLY_SHARE_RATIO = 0.5  # of the pool: before a share is usual, only one that has most of it
_NOBODY = {NO_TENANT, OTHER}  # no tenant by itself
REMEDY = "Hold back this tenant at the gateway (429) or give it a quota; the others need nothing but that."
REMEDY_QUOTA = "Refuse this tenant's new requests (429) until it is below its quota, or raise the quota."
REMEDY_SESSIONS = (
    "End sessions that nobody uses, or list this tenant under long_session if its sessions are meant to be long."
)


class TenantSurge:
    """Growth of one tenant is a surge only where others wait or are thrown out for memory meanwhile.

    A quota that is used up is worth a word at any time. How long sessions live is judged in the textbook profile.
    """

    kind = "tenant_surge"
    confirm_seconds = 30.0
    clear_seconds = 60.0
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the tenants that crowd others out or are past their quotas."""
        for engine in {each.engine: None for each in view.signals.tenants}:
            tenants = [each for each in view.signals.tenants if each.engine == engine]
            signals = signals_of(view, engine)
            for tenant in tenants:
                if tenant.tenant in _NOBODY:
                    continue
                found = [*_of(tenant, [each for each in tenants if each is not tenant], signals, view.policy)]
                if found:
                    worst = max(found, key=lambda each: TIERS.index(each.tier))
                    yield Subject(scope="tenant", engine=engine, tenant=tenant.tenant), worst


def _of(
    tenant: TenantSignals, others: Sequence[TenantSignals], signals: EngineSignals | None, policy: Policy
) -> Iterator[Finding]:
    if signals is not None and signals.harm and (surge := _surge(tenant, others, policy)):
        yield surge
    yield from _quota(tenant, policy)
    if policy.profile == "textbook":
        yield from _sessions(tenant, policy)


def _surge(tenant: TenantSignals, others: Sequence[TenantSignals], policy: Policy) -> Finding | None:
    share = tenant.share_ratio
    if share is None or share < policy.tenants.surge_share_ratio:
        return None
    grown: list[str] = []
    evidence = {"share_ratio": share}
    shares = [(each.share_ratio, each.share_times) for each in others]
    if tenant.share_times is not None and _surges(tenant.share_times, shares, policy):
        evidence["share_times"] = tenant.share_times
        grown.append(f"{tenant.share_times:.1f} times its usual share")
    requests = [(each.requests_per_minute, each.requests_times) for each in others]
    if tenant.requests_times is not None and _surges(tenant.requests_times, requests, policy):
        evidence["requests_times"] = tenant.requests_times
        grown.append(f"{tenant.requests_times:.1f} times its usual requests")
    if tenant.share_times is None and tenant.requests_times is None:
        grown += [*_jumps(tenant, others, policy, evidence), *_dominates(tenant, others, evidence)]
    waiting = sum(each.waiting for each in others)
    thrown = sum(each.preempted_per_minute or 0.0 for each in others)
    if not grown or not (waiting or thrown):
        return None
    felt: list[str] = []
    if waiting:
        evidence["others_waiting_requests"] = waiting
        felt.append(f"{count_of(waiting, 'request')} of others wait{'s' if waiting == 1 else ''}")
    if thrown:
        evidence["others_preempted_per_minute"] = thrown
        felt.append(f"others are thrown out {max(1.0, thrown):,.0f} times a minute")
    return Finding(
        f"Tenant {plain(tenant.tenant)} holds {share:.0%} of the KV pool, with {listed(grown)}, while {listed(felt)}.",
        REMEDY,
        evidence,
        "warn",
    )


def _surges(times: float, others: Sequence[tuple[float | None, float | None]], policy: Policy) -> bool:
    """Whether a tenant that has ``times`` what it had has grown, and the others not as it has: where everybody comes
    with more it is the load, and nobody's surge. ``others``: what each has now, as how many times what it had.
    """
    most = policy.tenants.surge_times
    known = [(now, grown) for now, grown in others if now and grown]
    return times >= most and sum(now for now, _ in known) * most <= times * sum(now / grown for now, grown in known)


def _jumps(
    tenant: TenantSignals, others: Sequence[TenantSignals], policy: Policy, evidence: dict[str, float]
) -> list[str]:
    """Where nobody knows yet what is usual: one that takes most of the pool, which it did not some minutes before, and
    the others have not grown as it has.
    """
    share, times = tenant.share_ratio, tenant.early_share_times
    if share is None or share < EARLY_SHARE_RATIO or times is None:
        return []
    if not _surges(times, [(each.share_ratio, each.early_share_times) for each in others], policy):
        return []
    evidence["early_share_times"] = times
    return [f"{times:.1f} times its share of the minutes before"]


def _dominates(tenant: TenantSignals, others: Sequence[TenantSignals], evidence: dict[str, float]) -> list[str]:
    """Where nobody knows yet what is usual: one that sends many times as much as all others together."""
    own, rest = tenant.requests_per_minute, sum(each.requests_per_minute or 0.0 for each in others)
    if own is None or rest <= 0 or own < DOMINATES * rest:
        return []
    evidence["requests_against_others"] = own / rest
    return [f"{own / rest:.1f} times as many requests as all others together"]


def _quota(tenant: TenantSignals, policy: Policy) -> Iterator[Finding]:
    used = tenant.quota_ratio
    if used is None or used <= policy.tenants.quota_warn_ratio:
        return
    past = used >= 1
    textbook = policy.profile == "textbook"
    yield Finding(
        f"Tenant {plain(tenant.tenant)} holds {used:.0%} of its quota of KV blocks.",
        REMEDY_QUOTA,
        {"quota_ratio": used},
        "page" if past and textbook else "warn" if past or textbook else "note",
    )


def _sessions(tenant: TenantSignals, policy: Policy) -> Iterator[Finding]:
    life, rule = tenant.session_median_seconds, policy.tenants
    if life is None or life <= rule.session_warn_seconds:
        return
    evidence = {"session_median_seconds": life}
    sentence = f"Half of tenant {plain(tenant.tenant)}'s sessions live longer than {human_seconds(life)}"
    if tenant.tenant in rule.long_session:
        if tenant.session_times is None or tenant.session_times < rule.surge_times:
            return
        evidence["session_times"] = tenant.session_times
        yield Finding(
            f"{sentence}, {tenant.session_times:.1f} times as long as usual.", REMEDY_SESSIONS, evidence, "warn"
        )
        return
    page = life > rule.session_page_seconds
    yield Finding(f"{sentence}.", REMEDY_SESSIONS, evidence, "page" if page else "warn")
