"""Gates: what may stand between a plan and an engine. Pure; :mod:`agent.actions.safety` has their order."""
