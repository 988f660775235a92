"""The ``pipe`` dialect: stages, actions and schedules of pipelines."""
