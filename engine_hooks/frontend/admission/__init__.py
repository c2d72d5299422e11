"""Admission: what an API server lets in, by the rules that the agent has ordered, while their lease lasts."""
