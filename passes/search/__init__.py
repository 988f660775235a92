"""``plan="auto"``: chooses the sharding of each call, as a cost function network over the rules' factors."""
