"""Reports for people who were not there: one incident from a bundle, and a review of weeks."""
