"""Reports that are no test of a verdict, each with the reason: what kvtide does not see, or has no figure for."""

LEFT_OUT = {
    "kv-36": "kvtide does not follow KV events: it counts references in the engine itself",
    "kv-37": "kvtide does not follow KV events, so a silent feed is nobody's loss here",
    "gpu-09": "vLLM's profile at its start is a log line; the parts are measured, and add up, in test_waterfall.py",
    "frag-08": "a definition: fragmentation of free memory is tested in test_signals_allocators.py",
    "lm-01": "LMCache's own store is outside the pool; what it pins in the pool is a pin row, see test_kv_pinned.py",
    "lm-02": "LMCache's pin counts are told by nothing that kvtide reads; jobs that are late are, see test_tiers.py",
    "lm-03": "LMCache's own store is outside the pool; no report tells how much of it could be evicted",
    "met-03": "the reasons why requests ended are counted at the scheduler, not taken from the page",
    "nv-04": "a driver that reports too little of a unified memory gives no figure to compare with",
    "nv-18": "an exporter's percent metric; kvtide reads the driver itself and says used, free and reserved apart",
}
