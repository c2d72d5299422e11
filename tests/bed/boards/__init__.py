"""Boards over real data: a node that is played, every query of a board asked, and a drawing of what came.

``scene`` runs a node: a real engine, more engines without a model, a scripted driver, an agent and a Prometheus.
``query`` asks a board's queries as Grafana would; ``web/`` draws the answers with Grafana's own published components.
``make boards`` runs it all.
"""
