# ours: the bindings' own module, for the search path of dialects.
from typing import Any

_cext: Any

def __getattr__(name: str) -> Any: ...
