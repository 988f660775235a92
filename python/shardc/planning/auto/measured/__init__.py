"""What searches measure on the machine that runs: local products, and steps of close plans."""
