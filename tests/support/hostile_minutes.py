"""Duration of the long form of hostile stories, from the environment: a minute in `make truth`, an hour each night."""

import os
from typing import Final

MINUTES: Final = float(os.environ.get("HOSTILE_MINUTES", "1"))
SECONDS: Final = MINUTES * 60
