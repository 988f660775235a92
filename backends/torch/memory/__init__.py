"""When the values of an emitted program live, and what may share memory."""
