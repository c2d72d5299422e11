"""What runs in API server processes: whose a request is, found out there and carried to the scheduler."""
