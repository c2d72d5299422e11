"""How well the verdicts are: the labelled corpus judged in both profiles, counted, with confidence intervals."""
