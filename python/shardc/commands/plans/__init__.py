"""Requests to ``shardc plan``: what is asked, and the parts of an answer."""
