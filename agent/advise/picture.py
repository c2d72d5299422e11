"""What each value of a setting has shown, as bars with how far the runs were apart."""

from __future__ import annotations

import io
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from agent.advise.compare import LABELS, MEASURES, Tried
from agent.report.pictures import GOOD, HELD, STYLE


def bars(results: Sequence[Tried]) -> str:
    """Return the drawing as SVG text; the value in use has another colour."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 2.2), layout="constrained")
        values = [each.value for each in results]
        colours = [GOOD if each.usual else HELD for each in results]
        for axes, name in zip(figure.subplots(1, len(MEASURES)), MEASURES, strict=True):
            estimates = [each.estimates[name] for each in results]
            means = [each.mean if each else 0.0 for each in estimates]
            low = [each.mean - each.low if each else 0.0 for each in estimates]
            high = [each.high - each.mean if each else 0.0 for each in estimates]
            axes.bar(values, means, yerr=[low, high], color=colours, ecolor="#333333", capsize=2)
            axes.set_title(LABELS[name], fontsize=9)
            axes.set_ylim(bottom=0.0)
            axes.tick_params(axis="x", labelrotation=45)
            if name != "p99_seconds":
                axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            else:
                axes.set_ylabel("s")
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        drawn = text.getvalue()
        return drawn[drawn.index("<svg") :]
