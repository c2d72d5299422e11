"""The waterfall: a GPU's memory as parts that add up, each with a source of its own, and what is left over."""
