"""Choice of a pipeline schedule for ``schedule="auto"``, by the stages' costs on the step's cluster."""
