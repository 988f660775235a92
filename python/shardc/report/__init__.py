"""Reports of compiled programs: text, pictures and traces for other tools."""
