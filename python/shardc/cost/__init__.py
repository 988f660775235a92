"""What programs cost: time and memory, modelled."""
