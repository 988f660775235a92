"""In which precision devices add up what each has a part of."""
