"""The policy: every threshold in one value, from one file. Profiles and the file are beside it."""
