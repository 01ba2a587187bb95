"""`python -m tpujob_contract.launch`."""

import sys

from tpujob_contract.launch.main import main

sys.exit(main())
