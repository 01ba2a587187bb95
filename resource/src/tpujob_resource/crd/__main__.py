"""`python -m tpujob_resource.crd` writes the CustomResourceDefinition, or compares it."""

import sys

from tpujob_resource.crd.build import main

sys.exit(main())
