"""``plan="auto"``: chooses the sharding of each call by an integer program over the rules' factors."""
