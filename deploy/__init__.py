"""What kvtide is deployed with: the chart, container files, units; and what builds a release of them."""
