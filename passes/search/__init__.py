"""``plan="auto"``: how each call of a step is cut, chosen by an integer program over the rules' factors."""
