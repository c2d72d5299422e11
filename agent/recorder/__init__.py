"""The flight recorder: every judged state of the last half hour, one a minute of the last weeks, and bundles."""
