"""What torch's CUDA allocator does in this process: counters, segments, what failed. docs/torch.md tells more.

``attach()`` has any PyTorch process reported; vLLM's workers are without it.
"""

from engine_hooks.torch.process import Attachment as Attachment
from engine_hooks.torch.process import attach as attach
