"""Attention kernels as loops over memory."""
