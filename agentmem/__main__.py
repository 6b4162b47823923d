"""`python -m agentmem`."""

import sys

from agentmem.cli.main import main

sys.exit(main())
