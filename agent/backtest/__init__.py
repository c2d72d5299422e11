"""What a policy would have said: the judge over recorded history, from bundles or from Prometheus."""
