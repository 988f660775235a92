"""Timelines in the formats of other tools: Perfetto, Chrome, Chakra, tlparse."""
