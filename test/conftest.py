"""Settings of all Python tests, made before anything imports torch; processes that tests start inherit them."""

import os

# Tests run side by side (pytest -n): one thread each is faster than all of them fighting for the cores.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
# Models have random weights and small configurations: nothing is ever downloaded.
os.environ["HF_HUB_OFFLINE"] = "1"
