"""What pipelines add to a search that takes stages as equally long and joined without transfers."""
