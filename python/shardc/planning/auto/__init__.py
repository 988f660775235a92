"""Which mesh, stages, micro-batches and recomputation a step should have, around the search inside."""
