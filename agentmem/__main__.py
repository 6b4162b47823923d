"""`python -m agentmem`."""

import sys

from agentmem.cli.start import start

sys.exit(start())
