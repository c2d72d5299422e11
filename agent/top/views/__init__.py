"""The views: each is a pure function from what is seen to a page of lines."""
