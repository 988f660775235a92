"""Reports of a running program: messages, logs, progress, profiler ranges and timelines."""
