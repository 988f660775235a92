"""One offline HTML page that shows a plan and what it costs."""
