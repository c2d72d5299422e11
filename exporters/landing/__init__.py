"""The landing page: one look at the node without Grafana. Plain HTML, no script, no external resource."""

from exporters.landing.whole import page

__all__ = ["page"]
