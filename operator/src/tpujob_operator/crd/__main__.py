"""`python -m tpujob_operator.crd` writes the definition, or compares it."""

import sys

from tpujob_operator.crd.build import main

sys.exit(main())
