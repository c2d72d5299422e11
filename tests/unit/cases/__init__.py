"""Real reports as tests: the figures that people gave, and what kvtide says of them. Ids are of the list of reports."""
