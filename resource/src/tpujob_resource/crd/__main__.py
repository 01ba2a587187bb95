"""`python -m tpujob_resource.crd` writes the definition, or compares it."""

import sys

from tpujob_resource.crd.build import main

sys.exit(main())
