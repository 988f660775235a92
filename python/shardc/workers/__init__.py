"""Worker processes, which answer one kind of question each."""
