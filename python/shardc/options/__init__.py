"""Options of compile_step, torch.compile and the command line."""
