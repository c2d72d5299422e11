"""Bundles: what an agent saw over a while, in one file that can be judged again anywhere (docs/bundle.md)."""
