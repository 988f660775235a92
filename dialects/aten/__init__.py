"""The torch dialect as shardc reads and writes it: types, calls, operator schemas."""
