"""What share of new requests each engine gets from a load balancer: halved, isolated and given back, step by step."""
