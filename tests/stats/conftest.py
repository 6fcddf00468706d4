"""The store these tests look at."""

import os

# Several threads on matrices this small cost more than they gain, the more so on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from filled import filled_store_file as filled_store_file
from filled import store as store
