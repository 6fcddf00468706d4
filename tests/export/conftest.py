"""The store these tests look at."""

from filled import filled_store_file as filled_store_file
from filled import store as store
