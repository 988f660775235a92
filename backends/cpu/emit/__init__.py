"""From a kernel's body to loops over memory."""
