"""Generation of attention kernels as loops over memory."""
