"""What a search says of the plan that it found."""
