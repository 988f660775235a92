"""Random programs of all kinds of ops: drawn, run under ``torch.compile``, held against eager, reduced where
they fail.

``lines/`` has what programs are made of, a file a kind; ``draw.py`` puts lines together, ``fields.py`` fills
them; ``program.py`` is a program as text; ``how.py`` says how it is compiled and with which sizes it is
called; ``seen.py`` runs it; ``check.py`` says what is wrong; ``reduce.py`` takes from a failing program what
does not matter.
"""
