"""Published iteration times of Megatron, and the same steps as shardc's programs."""
