"""What an old log of nvidia-smi says about memory: shapes over time, and whether they are a leak's."""
