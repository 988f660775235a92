"""Search strategies, which select the points to try next. ``registry.py`` has their names."""
