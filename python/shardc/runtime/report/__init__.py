"""What a running program says: messages, logs, progress, profiler ranges, the timeline of a pipeline."""
